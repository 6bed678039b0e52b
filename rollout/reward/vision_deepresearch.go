package reward

import "searchloop/rollout/trajectory"

// visionDeepResearch is the verdict alone. A trajectory without an answer, or in
// which more than half of the turns were bad, has no reward at all: it is masked,
// and stands in no group, so that it moves no baseline either.
func visionDeepResearch(in Input) Result {
	turns, bad := 0, 0
	for _, t := range in.Row.Turns {
		if t.Role != "assistant" {
			continue
		}
		turns++
		if t.Error != "" {
			bad++
		}
	}
	out := plain(in)
	if !in.Row.HasAnswer || 2*bad > turns {
		out.Parts = append(out.Parts, trajectory.Component{Name: MaskedPart, Value: 1})
		out.Reward, out.Scored = 0, false
	}
	return out
}
