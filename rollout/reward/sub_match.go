package reward

import "strings"

// SubMatch says whether one of the accepted answers stands, in normal form and as
// whole words, in the answer. An accepted answer without a normal form stands
// nowhere.
func SubMatch(answer string, accepted []string) bool {
	a := " " + Normal(answer) + " "
	for _, x := range accepted {
		if n := Normal(x); n != "" && strings.Contains(a, " "+n+" ") {
			return true
		}
	}
	return Match(answer, accepted)
}
