package reward

import (
	"strings"

	"searchloop/rollout/trajectory"
)

// F1Right is the F1 from which an answer counts as right.
const F1Right = 0.8

// F1 is the greatest F1 of the answer's words with those of an accepted answer,
// both in normal form; a word counts as often as it stands in both (SQuAD's measure).
func F1(answer string, accepted []string) float64 {
	words := strings.Fields(Normal(answer))
	best := 0.0
	for _, x := range accepted {
		gold := strings.Fields(Normal(x))
		left := map[string]int{}
		for _, w := range gold {
			left[w]++
		}
		same := 0
		for _, w := range words {
			if left[w] > 0 {
				left[w]--
				same++
			}
		}
		if same > 0 {
			best = max(best, 2*float64(same)/float64(len(words)+len(gold)))
		}
	}
	if best == 0 && Match(answer, accepted) {
		return 1 // "A" and "The" have no words in normal form
	}
	return best
}

// f1 is accuracy times the F1 itself; a verdict of correct counts as 1.
func f1(in Input) Result {
	v := 0.0
	if in.Row.HasAnswer && in.Row.Answer != "" {
		if v = F1(in.Row.Answer, in.Row.Answers); in.Correct {
			v = 1
		}
	}
	return Result{[]trajectory.Component{{Name: AccuracyPart, Value: v, Weight: in.Rule.Accuracy}}, in.Rule.Accuracy * v, true}
}
