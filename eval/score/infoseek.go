package score

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"searchloop/rollout/reward"
)

// infoSeek is the rule of github.com/edchengg/infoseek_eval. Texts and times must
// equal an accepted one in normal form. A number must lie in the question's range;
// two numbers are a range, which must lie in it or overlap by half of their union.
// Without a range, the truth's number is right within a tenth.
func infoSeek(i Item) float64 {
	if i.Category != "numerical" {
		return bit(reward.Match(i.Answer, i.Accepted))
	}
	low, high, ok := i.bounds()
	if !ok {
		return bit(reward.Match(i.Answer, i.Accepted))
	}
	return bit(inRange(numbersOf(i.Answer), low, high))
}

// bounds is the range within which a number is right.
func (i Item) bounds() (low, high float64, ok bool) {
	var fields struct {
		Range []json.RawMessage `json:"range"`
	}
	if json.Unmarshal([]byte(i.Meta), &fields) == nil && len(fields.Range) >= 2 {
		var b [2]float64
		for n := range b {
			v, err := strconv.ParseFloat(strings.Trim(string(fields.Range[n]), `"`), 64)
			if err != nil {
				return 0, 0, false
			}
			b[n] = v
		}
		return b[0], b[1], true
	}
	if len(i.Accepted) == 0 {
		return 0, 0, false
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(i.Accepted[0]), ",", ""), 64)
	low, high = v*(1-0.1), v*(1+0.1)
	return min(low, high), max(low, high), err == nil
}

var quantity = regexp.MustCompile(`[-+]?[.]?\d+(?:,\d\d\d)*[.]?\d*(?:[eE][-+]?\d+)?`)

// numbersOf reads one number, or the two of a range, from a text. A hyphen after a
// digit separates. Of more than two numbers the first two count, of two in falling
// order the first. A text without any number reads as the range from 0 to 0, as
// published, so that it is right where 0 is.
func numbersOf(s string) []float64 {
	s = strings.Map(func(r rune) rune {
		if r >= '０' && r <= '９' {
			return r - '０' + '0'
		}
		return r
	}, s)
	var b strings.Builder
	var last byte
	for n := range len(s) { // bytes of a longer character are no digits
		if s[n] == '-' && last >= '0' && last <= '9' {
			b.WriteString(" - ")
		} else {
			b.WriteByte(s[n])
		}
		last = s[n]
	}
	var out []float64
	for _, text := range quantity.FindAllString(b.String(), 2) {
		text = strings.Trim(strings.ReplaceAll(text, ",", ""), ".")
		v, err := strconv.ParseFloat(text, 64)
		if err != nil && v == 0 {
			continue
		}
		out = append(out, v)
	}
	switch {
	case len(out) == 0:
		return []float64{0, 0}
	case len(out) == 2 && out[0] > out[1]:
		return out[:1]
	}
	return out
}

func inRange(v []float64, low, high float64) bool {
	in := func(x float64) bool { return low <= x && x <= high }
	if len(v) == 1 {
		return in(v[0])
	}
	if in(v[0]) && in(v[1]) {
		return true
	}
	const tiny = 1e-12 // a range of one point has a length, as published
	lo, hi := min(low, high), max(low, high)
	overlap := max(0, min(v[1], hi)-max(v[0], lo))
	union := (v[1] - v[0] + tiny) + (hi - lo + tiny) - overlap
	return union != 0 && overlap/union >= 0.5-tiny
}
