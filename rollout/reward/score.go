// Package reward turns a trajectory and the verdict on its answer into a number
// and the parts that it is made of. It asks no judge and reads only what the
// model wrote.
package reward

import (
	"searchloop/internal/fail"
	"searchloop/internal/recipe"
	"searchloop/rollout/trajectory"
)

// Names of components.
const (
	FormatPart   = "format"
	AccuracyPart = "accuracy"
	ScalePart    = "scale" // factor on the sum; weight 0, present only when it is not 1
)

// maxAnswerTags is how many opening or closing answer tags a trajectory may have
// before its reward is divided: more is an attempt to have every guess graded.
const maxAnswerTags = 10

// Score gives the reward of a trajectory by the mm-deepresearch rule:
// format·Format + accuracy·correct, nothing at all without an answer, a quarter of
// it when the answer tags pass a count of 10. correct is the verdict; an empty
// answer is never correct.
func Score(r recipe.Reward, row *trajectory.Row, correct bool) ([]trajectory.Component, float64, error) {
	if r.Name != "mm-deepresearch" {
		return nil, 0, fail.New(fail.Usage, "score", "", "no reward is named %q", r.Name)
	}
	parts := []trajectory.Component{{Name: FormatPart, Weight: r.Format}, {Name: AccuracyPart, Weight: r.Accuracy}}
	if row.HasAnswer {
		if Format(row.Turns) {
			parts[0].Value = 1
		}
		if correct && row.Answer != "" {
			parts[1].Value = 1
		}
	}
	total := parts[0].Weight*parts[0].Value + parts[1].Weight*parts[1].Value
	if opening, closing := answerTags(row.Turns); opening > maxAnswerTags || closing > maxAnswerTags {
		parts = append(parts, trajectory.Component{Name: ScalePart, Value: 0.25})
		total /= 4
	}
	return parts, total, nil
}
