package reward

import (
	"math"
	"regexp"
	"strconv"
	"strings"
)

// tolerance is the relative difference up to which two numbers are the same.
const tolerance = 0.01

var number = regexp.MustCompile(`[-+−]?(?:\d{1,3}(?:[,\x{00A0}\x{202F} ]\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?|[-+−]?\.\d+`)

var magnitudes = map[string]float64{"thousand": 1e3, "k": 1e3, "million": 1e6, "mn": 1e6, "m": 1e6, "billion": 1e9, "bn": 1e9, "b": 1e9, "trillion": 1e12}

// SameNumber says whether the answer holds exactly one number, and it differs from
// the one number of an accepted answer by at most the given share of it. "3.2
// million" is a number; a per cent sign must stand with both or neither; an answer
// that offers several numbers hedges, and is not the same as any.
func SameNumber(answer string, accepted []string, share float64) bool {
	a, percent, ok := oneNumber(answer)
	if !ok {
		return false
	}
	for _, x := range accepted {
		n, p, ok := oneNumber(x)
		if ok && p == percent && math.Abs(a-n) <= share*math.Abs(n) {
			return true
		}
	}
	return false
}

// oneNumber reads the only number of a text.
func oneNumber(s string) (n float64, percent, ok bool) {
	all := number.FindAllStringIndex(s, 2)
	if len(all) != 1 {
		return 0, false, false
	}
	from, to := all[0][0], all[0][1]
	if to < len(s) && (s[to] == '.' || s[to] == ',') && to+1 < len(s) && s[to+1] >= '0' && s[to+1] <= '9' {
		return 0, false, false // 1.2.3 is no number
	}
	digits := strings.NewReplacer(",", "", " ", "", "\u00A0", "", "\u202F", "", "−", "-").Replace(s[from:to])
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || math.IsInf(n, 0) {
		return 0, false, false
	}
	rest := strings.ToLower(strings.TrimSpace(s[to:]))
	if strings.HasPrefix(rest, "%") || strings.HasPrefix(rest, "percent") || strings.HasPrefix(rest, "per cent") {
		return n, true, true
	}
	word, _, _ := strings.Cut(rest, " ")
	if m := magnitudes[strings.Trim(word, ".,;")]; m != 0 {
		n *= m
	}
	return n, false, true
}
