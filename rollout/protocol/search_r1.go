package protocol

import (
	"strings"

	"searchloop/internal/recipe"
)

// searchR1 is Search-R1's protocol: one assistant turn, into which results are put.
//
//	<think> … </think> <search> query </search>
//
//	<information>Doc 1(Title: …) …</information>
//
//	<think> … </think> <answer> … </answer>
//
// A turn ends at </search> or </answer>; its first closed search or answer counts.
// What a policy samples stays as it is: an end mark that it sets too early is kept,
// and the correction stands behind it.
type searchR1 struct{ recipe.Protocol }

// What the policy is told in search-r1, as if it told itself: the text stands in its
// own turn.
const (
	NoAction    = "My last step was no action. To search I write the query between <search> and </search>; to answer I write the answer between <answer> and </answer>. I try again."
	EmptySearch = "My last search had no query. I write one between <search> and </search>, or the answer between <answer> and </answer>."
)

func (p searchR1) User(q Question) string { return p.UserPrefix + asked(q.Text) }
func (p searchR1) Before(Question) []Call { return nil }
func (p searchR1) Role() string           { return RoleInline }
func (p searchR1) Stops() []string        { return []string{"</" + Search + ">", "</" + Answer + ">"} }

// asked ends a question with a question mark.
func asked(q string) string {
	if q = strings.TrimSpace(q); q != "" && !strings.HasSuffix(q, "?") {
		q += "?"
	}
	return q
}

func (p searchR1) Read(text string, _ Place) Turn {
	all := blocks(text, []string{Search, Answer}, "", Information)
	if len(all) == 0 {
		return Turn{Problem: NoAction}
	}
	if b := all[0]; b.Name == Answer {
		return Turn{Answer: strings.TrimSpace(b.Body), HasAnswer: true}
	}
	q := oneLine(all[0].Body)
	if q == "" {
		return Turn{Problem: EmptySearch}
	}
	return Turn{Calls: []Call{search(TextSearch, q)}}
}

func (p searchR1) Tell(o Observation) string {
	if o.Problem {
		return "\n" + o.Text + "\n"
	}
	return "\n\n<" + Information + ">" + strings.TrimSpace(Tame(o.Text, Think, Search, Information, Answer)) + "</" + Information + ">\n\n"
}
