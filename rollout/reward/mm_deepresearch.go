package reward

import (
	"searchloop/internal/recipe"
	"searchloop/rollout/trajectory"
)

// maxAnswerTags is how many opening or closing answer tags a trajectory may have
// before its reward is divided: more is an attempt to have every guess graded.
const maxAnswerTags = 10

// mmDeepResearch is format·Format + accuracy·correct, nothing at all without an
// answer, a quarter of it when the answer tags pass a count of 10. An empty answer
// is never correct. With a penalty a right answer is worth that share less when a
// tool was called for it, once or (per_search) for every call.
func mmDeepResearch(in Input) Result {
	parts := []trajectory.Component{{Name: FormatPart, Weight: in.Rule.Format}, {Name: AccuracyPart, Weight: in.Rule.Accuracy}}
	if in.Row.HasAnswer {
		parts[0].Value = bit(Format(in.Row.Turns))
		parts[1].Value = bit(in.Correct && in.Row.Answer != "")
	}
	if in.Rule.Penalty != 0 {
		calls := toolCalls(in.Row.Turns)
		parts[1].Value *= searchCost(in.Rule, calls)
		parts = append(parts, trajectory.Component{Name: SearchesPart, Value: float64(calls)})
	}
	total := parts[0].Weight*parts[0].Value + parts[1].Weight*parts[1].Value
	if opening, closing := answerTags(in.Row.Turns); opening > maxAnswerTags || closing > maxAnswerTags {
		parts = append(parts, trajectory.Component{Name: ScalePart, Value: 0.25})
		total /= 4
	}
	return Result{parts, total, true}
}

// toolCalls counts the calls that were executed, answered or not.
func toolCalls(turns []trajectory.Turn) (n int) {
	for i := range turns {
		if turns[i].Called() {
			n++
		}
	}
	return n
}

// searchCost is what is left of a right answer's worth after so many searches.
func searchCost(rule recipe.Reward, searches int) float64 {
	if !rule.PerSearch {
		searches = min(searches, 1)
	}
	left := 1.0
	for range searches {
		left *= 1 - rule.Penalty
	}
	return left
}
