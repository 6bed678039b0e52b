package protocol

import "strings"

// Turn is what one assistant turn says.
type Turn struct {
	Calls     []Call // every call, well-formed or not, in order
	Answer    string // content of the last closed answer tag, trimmed
	HasAnswer bool
	Problem   string // the turn asks for nothing and gives no answer; the policy is told so, in these words, and goes on
}

// Parse reads an assistant turn of mm-deepresearch.
//
//   - A closed think block is opaque: calls and answers inside it are thoughts.
//     A think tag that is never closed is ignored, and what follows it is read.
//   - A tool_response that the model invented is opaque; when it is not closed, the
//     rest of the turn belongs to it.
//   - A tool_call without its end tag is a bad call and takes the rest of the turn.
//   - An answer without its end tag is no answer.
func Parse(text string) Turn {
	var t Turn
	tags := Tags(text)
	last := closers(tags)
	for i := 0; i < len(tags); i++ {
		open := tags[i]
		if open.Close {
			continue
		}
		j := end(tags, i+1, last[open.Name], open.Name)
		switch open.Name {
		case Think:
			if j >= 0 {
				i = j
			}
		case ToolResponse:
			if j < 0 {
				return t
			}
			i = j
		case ToolCall:
			if j < 0 {
				t.Calls = append(t.Calls, Call{Problem: NotClosed})
				return t
			}
			t.Calls = append(t.Calls, parseCall(text[open.To:tags[j].From]))
			i = j
		case Answer:
			if j < 0 {
				continue
			}
			// The innermost opening tag is the one that was closed.
			for k := j - 1; k > i; k-- {
				if tags[k].Name == Answer {
					open = tags[k]
					break
				}
			}
			t.Answer, t.HasAnswer = strings.TrimSpace(text[open.To:tags[j].From]), true
			i = j
		}
	}
	return t
}
