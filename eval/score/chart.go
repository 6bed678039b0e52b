package score

import (
	"math"
	"strconv"
	"strings"
)

// relativeChange is how far a number of ChartQA may be from the truth (Masry et al.
// 2022, end of section 5.1).
const relativeChange = 0.05

// Relaxed is ChartQA's relaxed accuracy, as lmms-eval and Qwen-VL compute it: when
// both are numbers (a per cent sign divides by 100) and the truth is not 0 they may
// differ by 5 % of the truth; else they must be equal but for case.
func Relaxed(answer string, accepted []string) bool {
	p, number := plainNumber(answer)
	for _, x := range accepted {
		if t, ok := plainNumber(x); ok && number && t != 0 {
			if math.Abs(p-t)/math.Abs(t) <= relativeChange {
				return true
			}
		} else if strings.EqualFold(answer, x) {
			return true
		}
	}
	return false
}

// plainNumber reads a text that is a number as Python's float does.
func plainNumber(s string) (float64, bool) {
	digits := strings.TrimRight(s, "%")
	digits = strings.TrimSpace(digits)
	if strings.ContainsAny(digits, "xX_pP") {
		return 0, false // of Go's syntax, not of Python's
	}
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil || math.IsNaN(v) {
		return 0, false
	}
	if strings.HasSuffix(s, "%") {
		v /= 100
	}
	return v, true
}
