package protocol

import (
	"strings"

	"searchloop/internal/recipe"
)

// rag is the workflow that MMSearch-R1 is compared with: every question is
// searched for, whether that helps or not. The image is looked up before the first
// turn; the first turn is a query for text; the second is the answer.
type rag struct{ recipe.Protocol }

func (p rag) User(q Question) string {
	if q.Images > 0 || p.AfterImage == "" {
		return p.UserPrefix + q.Text
	}
	return p.UserPrefix + q.Text + "\n" + p.AfterImage // what the result of the image search would have ended with
}

func (p rag) Before(q Question) []Call {
	if q.Images == 0 {
		return nil
	}
	return []Call{{Name: ToolLens, Args: "{}"}}
}

func (p rag) Role() string              { return RoleUser }
func (p rag) Stops() []string           { return nil }
func (p rag) Tell(o Observation) string { return tellMMSearchR1(p.Protocol, o) }

// Read takes the first turn for a query, in text_search tags or bare, and any
// later one for the answer.
func (p rag) Read(text string, at Place) Turn {
	if at.Round > 0 {
		return plainAnswer(text, Reason)
	}
	q := ""
	if all := blocks(text, []string{TextSearch}, Reason, Information); len(all) > 0 {
		q = oneLine(all[len(all)-1].Body)
	} else {
		q = oneLine(plainAnswer(text, Reason).Answer)
	}
	if q == "" {
		return Turn{Calls: []Call{{Name: ToolText, Problem: NoQuery}}}
	}
	if r := []rune(q); len(r) > maxQueryRunes {
		q = strings.TrimSpace(string(r[:maxQueryRunes]))
	}
	return Turn{Calls: []Call{search(ToolText, q)}}
}

// maxQueryRunes bounds a bare query: a policy that rambles still searches for
// something.
const maxQueryRunes = 400
