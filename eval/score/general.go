package score

import (
	"math"
	"strconv"
	"strings"
)

// ocrBench is the rule of OCRBench as lmms-eval has it: an accepted text stands in
// the answer, in lower case and with line ends as blanks; full-width ASCII is the
// same as ASCII. Formulas (HME100k) are compared with their case and without blanks.
func ocrBench(i Item) float64 {
	answer := strings.ReplaceAll(strings.TrimSpace(i.Answer), "\n", " ")
	formula := i.meta("dataset") == "HME100k"
	if formula {
		answer = strings.ReplaceAll(answer, " ", "")
	} else {
		answer = strings.TrimSpace(strings.ToLower(strings.Map(halfWidth, answer)))
	}
	for _, x := range i.Accepted {
		x = strings.ReplaceAll(strings.TrimSpace(x), "\n", " ")
		if formula {
			x = strings.ReplaceAll(x, " ", "")
		} else {
			x = strings.TrimSpace(strings.ToLower(strings.Map(halfWidth, x)))
		}
		if x != "" && strings.Contains(answer, x) {
			return 1
		}
	}
	return 0
}

func halfWidth(r rune) rune {
	switch {
	case r >= 0xFF01 && r <= 0xFF5E:
		return r - 0xFEE0
	case r == 0x3000:
		return ' '
	}
	return r
}

// YesNo is MME's reading of an answer: yes or no when it is that word, y or n, or
// has yes, else no, among its first four characters; points do not count.
func YesNo(answer string, accepted []string) bool {
	plain := func(s string) string { return strings.ReplaceAll(strings.TrimSpace(strings.ToLower(s)), ".", "") }
	said := plain(answer)
	label := ""
	switch {
	case said == "y":
		label = "yes"
	case said == "n":
		label = "no"
	default:
		r := []rune(said)
		head := string(r[:min(4, len(r))])
		if strings.Contains(head, "yes") {
			label = "yes"
		} else if strings.Contains(head, "no") {
			label = "no"
		}
	}
	for _, x := range accepted {
		if label != "" && plain(x) == label {
			return true
		}
	}
	return false
}

// mathVista compares as MathVista does once the answer is found: of questions with
// options the option; whole numbers after cutting a fraction off; numbers after
// rounding to the stated precision; anything else as text.
func mathVista(i Item) float64 {
	if i.meta("question_type") == "multi_choice" {
		return bit(Choice(i.Answer, i.Accepted))
	}
	if len(i.Accepted) == 0 {
		return 0
	}
	answer, truth := strings.TrimSpace(i.Answer), strings.TrimSpace(i.Accepted[0])
	kind := i.meta("answer_type")
	if kind != "integer" && kind != "float" {
		return bit(answer == truth)
	}
	v, ok := plainNumber(answer)
	want, ok2 := plainNumber(truth)
	if !ok || !ok2 || math.IsInf(v, 0) || strings.HasSuffix(answer, "%") {
		return 0
	}
	if kind == "integer" {
		return bit(math.Trunc(v) == want)
	}
	places, err := strconv.ParseFloat(i.meta("precision"), 64)
	if err != nil {
		places = 2
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'f', int(max(0, min(places, 15))), 64), 64)
	return bit(err == nil && rounded == want)
}
