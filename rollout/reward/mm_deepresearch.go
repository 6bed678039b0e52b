package reward

import "searchloop/rollout/trajectory"

// maxAnswerTags is how many opening or closing answer tags a trajectory may have
// before its reward is divided: more is an attempt to have every guess graded.
const maxAnswerTags = 10

// mmDeepResearch is format·Format + accuracy·correct, nothing at all without an
// answer, a quarter of it when the answer tags pass a count of 10. An empty answer
// is never correct.
func mmDeepResearch(in Input) Result {
	parts := []trajectory.Component{{Name: FormatPart, Weight: in.Rule.Format}, {Name: AccuracyPart, Weight: in.Rule.Accuracy}}
	if in.Row.HasAnswer {
		parts[0].Value = bit(Format(in.Row.Turns))
		parts[1].Value = bit(in.Correct && in.Row.Answer != "")
	}
	total := parts[0].Weight*parts[0].Value + parts[1].Weight*parts[1].Value
	if opening, closing := answerTags(in.Row.Turns); opening > maxAnswerTags || closing > maxAnswerTags {
		parts = append(parts, trajectory.Component{Name: ScalePart, Value: 0.25})
		total /= 4
	}
	return Result{parts, total, true}
}
