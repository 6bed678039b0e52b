package score

import (
	"regexp"
	"strings"

	"searchloop/rollout/reward"
)

var letterFirst = regexp.MustCompile(`^(?i:(?:the )?(?:correct |right |best )?(?:answer|option|choice)(?: is|:)?\s*)?[(\[*]*([A-Za-z])[)\].:*]*(?:\s|$)`)

// Choice says whether an answer names the right option of a multiple choice: it
// equals the option's text or an accepted spelling, or it begins with the option's
// letter, alone or before the option's text ("B", "(B)", "B. Blue", "Option B"). A
// marked letter counts more than the text behind it: "A. Blue" is not B. A letter
// that is followed by anything else ("A or B") is no choice.
//
// accepted holds the letter beside the texts, as questions with options have it.
func Choice(answer string, accepted []string) bool {
	answer = strings.TrimSpace(answer)
	letter, texts := "", []string(nil)
	for _, x := range accepted {
		if strings.EqualFold(answer, strings.TrimSpace(x)) {
			return answer != ""
		}
		if len(x) == 1 && x[0] >= 'A' && x[0] <= 'Z' {
			letter = x
		} else {
			texts = append(texts, x)
		}
	}
	m := letterFirst.FindStringSubmatchIndex(answer)
	if letter == "" || m == nil {
		return reward.Match(answer, texts)
	}
	said, rest := answer[m[2]:m[3]], strings.TrimSpace(answer[m[1]:])
	marked := strings.ContainsAny(answer[m[3]:m[1]], ")].:")
	switch {
	case !marked && rest != "": // a word of one letter begins the text
		return reward.Match(answer, texts)
	case !strings.EqualFold(said, letter):
		return false
	}
	return rest == "" || reward.Match(rest, texts)
}
