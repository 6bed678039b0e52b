package reward

import (
	"strings"

	"searchloop/rollout/protocol"
	"searchloop/rollout/trajectory"
)

// Format says whether a trajectory keeps the protocol's form: every turn is one
// thought and one call, each call is followed by exactly one tool result, and the
// last turn is one thought and one answer. Nothing but white space may stand
// outside the tags, nothing at all before the first. Tool results count as
// structure only: what they say is never read.
func Format(turns []trajectory.Turn) bool {
	first, wantResult, done := true, false, false
	for _, t := range turns {
		switch t.Role {
		case "system", "user":
			if !first {
				return false
			}
		case "tool":
			if !wantResult {
				return false
			}
			wantResult = false
		case "assistant":
			if wantResult || done || t.Error != "" {
				return false
			}
			if first && !strings.HasPrefix(t.Text, "<"+protocol.Think+">") {
				return false
			}
			first = false
			switch shape(t.Text) {
			case protocol.ToolCall:
				wantResult = true
			case protocol.Answer:
				done = true
			default:
				return false
			}
		}
	}
	return done && !wantResult
}

// shape gives the action of a turn of the form think, action; "" for any other form.
func shape(text string) string {
	t := protocol.Tags(text)
	if len(t) != 4 {
		return ""
	}
	action := t[2].Name
	for i, name := range []string{protocol.Think, protocol.Think, action, action} {
		if t[i].Name != name || t[i].Close != (i%2 == 1) {
			return ""
		}
	}
	outside := text[:t[0].From] + text[t[1].To:t[2].From] + text[t[3].To:]
	if strings.TrimSpace(outside) != "" {
		return ""
	}
	return action
}

// answerTags counts the opening and the closing answer tags the model wrote.
func answerTags(turns []trajectory.Turn) (opening, closing int) {
	for _, t := range turns {
		if t.Role != "assistant" {
			continue
		}
		for _, tag := range protocol.Tags(t.Text) {
			switch {
			case tag.Name != protocol.Answer:
			case tag.Close:
				closing++
			default:
				opening++
			}
		}
	}
	return opening, closing
}
