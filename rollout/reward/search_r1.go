package reward

import (
	"strings"

	"searchloop/rollout/protocol"
	"searchloop/rollout/trajectory"
)

// searchR1Format is Search-R1's graded reward (its version 0.3), with s for
// structure, f for final and r for retrieval:
//
//	right answer, good form          1
//	right answer, bad form           1 − s
//	no right answer, good form       s, and r more when a result holds the answer
//	wrong answer, bad form           f
//	no answer, bad form              0
//
// The weights of the components are what they add to the sum.
func searchR1Format(in Input) Result {
	form := searchR1Form(in.Row.Turns)
	right := in.Correct && in.Row.HasAnswer && in.Row.Answer != ""
	s, f, r := in.Rule.Structure, in.Rule.Final, in.Rule.Retrieval
	parts := []trajectory.Component{{Name: FormatPart, Value: bit(form)}, {Name: AccuracyPart, Value: bit(right)}}
	switch {
	case right:
		parts[0].Weight, parts[1].Weight = s, in.Rule.Accuracy-s
	case form:
		parts[0].Weight = s
		parts = append(parts, trajectory.Component{Name: RetrievalPart, Value: bit(found(in.Row)), Weight: r})
	case in.Row.HasAnswer:
		parts = append(parts, trajectory.Component{Name: TagPart, Value: 1, Weight: f})
	}
	sum := 0.0
	for _, p := range parts {
		sum += p.Weight * p.Value
	}
	return Result{parts, sum, true}
}

// found says whether a result holds one of the accepted answers.
func found(row *trajectory.Row) bool {
	for _, t := range row.Turns {
		if t.Role == protocol.RoleInline && t.Error == "" && SubMatch(strings.NewReplacer("<", " ", ">", " ").Replace(t.Text), row.Answers) {
			return true
		}
	}
	return false
}

// searchR1Form says whether a trajectory is thoughts, searches with their results,
// and one answer at the end: think → search → information → think … → answer,
// with nothing but white space between the tags. A result counts by its place; what
// it says is never read, and it is always whole, since it is cut inside its tags.
func searchR1Form(turns []trajectory.Turn) bool {
	answered, wait := false, false
	for _, t := range turns {
		switch t.Role {
		case "system", "user":
		case protocol.RoleInline:
			if !wait || t.Error != "" && t.Call == "" {
				return false
			}
			wait = false
		case "assistant":
			if answered || wait {
				return false
			}
			switch thoughtAction(t.Text) {
			case protocol.Search:
				wait = true
			case protocol.Answer:
				answered = true
			default:
				return false
			}
		default:
			return false
		}
	}
	return answered && !wait
}

// thoughtAction is the action of a turn of one thought and one action, "" for any
// other turn.
func thoughtAction(text string) string {
	tags := protocol.TagsOf(text, []string{protocol.Think, protocol.Search, protocol.Information, protocol.Answer})
	if len(tags) != 4 {
		return ""
	}
	a := tags[2].Name
	for i, name := range []string{protocol.Think, protocol.Think, a, a} {
		if tags[i].Name != name || tags[i].Close != (i%2 == 1) {
			return ""
		}
	}
	if strings.TrimSpace(text[:tags[0].From]+text[tags[1].To:tags[2].From]+text[tags[3].To:]) != "" {
		return ""
	}
	return a
}
