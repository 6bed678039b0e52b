// Package leak finds questions that are another one over again: with the same
// picture, encoded anew or cropped, or with nearly the same words. Questions with
// their pictures go in, the question that each repeats comes out. It asks no model.
package leak

import (
	"strings"

	"searchloop/corpus/near"
	"searchloop/internal/picture"
)

// Question is what is compared.
type Question struct {
	ID, Text, Answer string
	Pictures         []*Print
}

// Kinds of finds.
const (
	SamePicture = "same picture" // as a held-out question: whatever is asked about it
	SameText    = "same question"
)

// Find is the question that another repeats.
type Find struct {
	ID    string  // of the earlier one
	Kind  string  // SamePicture, SameText
	Score float64 // correlation of the pictures, similarity of the texts
}

// Rule says how near is too near.
type Rule struct {
	Text    float64 // least Jaccard similarity of the runs of three characters of two questions with one answer or picture; 0: 0.55
	Picture bool    // a picture in common alone is too near: for held-out questions
}

const (
	alikeText = 0.55
	sureText  = 0.85 // so near that the answer does not matter
)

// Index holds questions to compare with. Not safe for concurrent use.
type Index struct {
	rule Rule
	list []entry
}

type entry struct {
	Question
	plain, answer string
	grams         near.Set
}

// New makes an empty index.
func New(r Rule) *Index {
	if r.Text == 0 {
		r.Text = alikeText
	}
	return &Index{rule: r}
}

func enter(q Question) entry {
	e := entry{Question: q, plain: near.Plain(q.Text), answer: near.Plain(q.Answer)}
	e.grams = near.Grams(e.plain)
	return e
}

// Add takes a question in.
func (x *Index) Add(q Question) { x.list = append(x.list, enter(q)) }

// Look finds the first question that q repeats. With a picture in common they are
// the same if the rule says so, or when they also ask nearly the same (0.85) or have
// one answer and texts that are alike. With different pictures they never are.
// Without pictures to compare, texts that are alike and have one answer are the
// same, and so are equal texts.
func (x *Index) Look(q Question) (Find, bool) {
	e := enter(q)
	for i := range x.list {
		if f, ok := x.compare(&e, &x.list[i]); ok {
			return f, true
		}
	}
	return Find{}, false
}

func (x *Index) compare(a, b *entry) (Find, bool) {
	s := near.Jaccard(a.grams, b.grams)
	if s < x.rule.Text && !x.rule.Picture {
		return Find{}, false
	}
	picture, score := common(a.Pictures, b.Pictures)
	apart := len(a.Pictures) > 0 && len(b.Pictures) > 0 && !picture // two pictures of different things make different questions
	answer := a.answer != "" && a.answer == b.answer
	switch {
	case picture && x.rule.Picture:
		return Find{b.ID, SamePicture, score}, true
	case apart:
	case s >= x.rule.Text && answer, s >= sureText && picture, a.plain == b.plain:
		return Find{b.ID, SameText, s}, true
	}
	return Find{}, false
}

// common says whether two questions share a picture.
func common(a, b []*Print) (bool, float64) {
	for _, p := range a {
		for _, q := range b {
			if same, s := Same(p, q); same {
				return true, s
			}
		}
	}
	return false, 0
}

// Mentions says whether a text names something: its words stand in it in a row.
func Mentions(text, name string) bool {
	n := near.Plain(name)
	return n != "" && strings.Contains(" "+near.Plain(text)+" ", " "+n+" ")
}

// PrintOf decodes a picture and makes its print.
func PrintOf(data []byte) (*Print, error) {
	p, err := picture.Decode(data)
	if err != nil {
		return nil, err
	}
	return Of(p), nil
}
