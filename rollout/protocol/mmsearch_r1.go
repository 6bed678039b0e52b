package protocol

import (
	"strings"

	"searchloop/internal/recipe"
)

// Names of the tools that mmsearch-r1 and rag call.
const (
	ToolText = "text_search"
	ToolLens = "image_search_by_lens"
)

// What results begin with in mmsearch-r1.
const (
	ImageResults = "[Image Search Results]"
	TextResults  = "[Text Search Results]"
)

// NoQuery is what the policy is told of an empty text search.
const NoQuery = "Error: the search has no query."

// mmSearchR1 is MMSearch-R1's protocol. A turn is a thought and one action at its
// very end:
//
//	<reason> … </reason> <search><img></search>
//	<reason> … </reason> <text_search> query </text_search>
//	<reason> … </reason> <answer> … </answer>
//
// Anything else ends the trajectory. Results come as a user message that repeats
// the question. White space after the action and line ends in a query are no
// reason to take a search for an answer.
type mmSearchR1 struct{ recipe.Protocol }

func (p mmSearchR1) User(q Question) string { return p.UserPrefix + q.Text }
func (p mmSearchR1) Before(Question) []Call { return nil }
func (p mmSearchR1) Role() string           { return RoleUser }
func (p mmSearchR1) Stops() []string        { return nil }

func (p mmSearchR1) Read(text string, _ Place) Turn {
	text = strings.TrimRight(text, " \t\r\n")
	all := blocks(text, []string{Search, TextSearch, Answer}, Reason, Information)
	if len(all) == 0 {
		return Turn{}
	}
	last := all[len(all)-1]
	if last.To == len(text) {
		switch last.Name {
		case Search:
			if strings.TrimSpace(last.Body) == "<img>" {
				return Turn{Calls: []Call{{Name: ToolLens, Args: "{}"}}}
			}
		case TextSearch:
			q := oneLine(last.Body)
			if q == "" {
				return Turn{Calls: []Call{{Name: ToolText, Problem: NoQuery}}}
			}
			return Turn{Calls: []Call{search(ToolText, q)}}
		}
	}
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Name == Answer {
			return Turn{Answer: strings.TrimSpace(all[i].Body), HasAnswer: true}
		}
	}
	return Turn{}
}

func (p mmSearchR1) Tell(o Observation) string { return tellMMSearchR1(p.Protocol, o) }

// tellMMSearchR1 is a result, the question again, and what to do next. A failure
// stands there bare.
func tellMMSearchR1(p recipe.Protocol, o Observation) string {
	head, after := TextResults, p.AfterText
	if o.Call.Name == ToolLens {
		head, after = ImageResults, p.AfterImage
	}
	var b strings.Builder
	if o.Problem {
		b.WriteString(head + " " + o.Text)
	} else {
		b.WriteString("Search results:\n<" + Information + ">" + head + "\n" + strings.TrimSpace(Tame(o.Text, Reason, Search, TextSearch, Information, Answer)) + "</" + Information + ">")
	}
	b.WriteString("\n" + p.UserPrefix + o.Question.Text)
	if after != "" {
		b.WriteString("\n" + after)
	}
	return b.String()
}
