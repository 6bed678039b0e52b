// Package protocol reads what a policy writes in the mm-deepresearch protocol:
//
//	<think> … </think>
//	<tool_call> {"name": "text_search", "arguments": {"query_list": ["…"]}} </tool_call>
//	<answer> … </answer>
//
// One assistant turn goes in; calls and the answer come out. Reading is total:
// any bytes give a result, and what is wrong with a call is said in the words
// that the model is told. Only assistant turns are ever read: tags inside tool
// results mean nothing. It runs no tool and grades nothing.
package protocol

import "strings"

// Tag is one opening or closing tag of the protocol in a text.
type Tag struct {
	Name     string // think, tool_call, tool_response, answer
	Close    bool
	From, To int // the tag itself is text[From:To]
}

// Names of the tags.
const (
	Think        = "think"
	ToolCall     = "tool_call"
	ToolResponse = "tool_response"
	Answer       = "answer"
)

var names = []string{Think, ToolCall, ToolResponse, Answer}

// Tags lists the protocol's tags of text in order. A tag is exactly <name> or
// </name>: no spaces, attributes or capitals.
func Tags(text string) []Tag {
	var out []Tag
	for at := 0; ; {
		i := strings.IndexByte(text[at:], '<')
		if i < 0 {
			return out
		}
		at += i
		rest := text[at+1:]
		inner, closing := strings.CutPrefix(rest, "/")
		at++
		for _, n := range names {
			if len(inner) > len(n) && inner[len(n)] == '>' && inner[:len(n)] == n {
				to := at + len(n) + 1
				if closing {
					to++
				}
				out = append(out, Tag{Name: n, Close: closing, From: at - 1, To: to})
				at = to
				break
			}
		}
	}
}

// closers tells where the last closing tag of each name is, so that a text of
// many unclosed tags is not searched again for each of them.
func closers(tags []Tag) map[string]int {
	last := map[string]int{}
	for i, t := range tags {
		if t.Close {
			last[t.Name] = i
		}
	}
	return last
}

// end finds the closing tag of name in tags[from:last+1]; -1 if there is none.
func end(tags []Tag, from, last int, name string) int {
	for i := from; i <= last; i++ {
		if tags[i].Close && tags[i].Name == name {
			return i
		}
	}
	return -1
}
