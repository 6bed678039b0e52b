package scripted

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strings"

	"searchloop/corpus"
)

// finder looks questions up by what a request shows of them.
type finder struct {
	ordered []corpus.Question // by id
	rank    []int             // place of each in the order of their ids' hashes
	byText  map[string][]int  // places in ordered
	lengths []int             // of the texts, longest first
}

func newFinder(qs []corpus.Question) *finder {
	f := &finder{ordered: slices.Clone(qs), byText: map[string][]int{}}
	slices.SortFunc(f.ordered, func(a, b corpus.Question) int { return strings.Compare(a.ID, b.ID) })
	for i, q := range f.ordered {
		t := strings.TrimSpace(q.Text)
		if len(f.byText[t]) == 0 && !slices.Contains(f.lengths, len(t)) {
			f.lengths = append(f.lengths, len(t))
		}
		f.byText[t] = append(f.byText[t], i)
	}
	order := make([]int, len(f.ordered))
	f.rank = make([]int, len(f.ordered))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := sha256.Sum256([]byte(f.ordered[a].ID)), sha256.Sum256([]byte(f.ordered[b].ID))
		return bytes.Compare(x[:], y[:])
	})
	for place, i := range order {
		f.rank[i] = place
	}
	slices.SortFunc(f.lengths, func(a, b int) int { return b - a })
	return f
}

// find gives the question whose text the user message ends with: the longest
// such text, and among questions of equal text the one with the message's
// images, or else the first by id; and its rank.
func (f *finder) find(user Message) (*corpus.Question, int) {
	text := strings.TrimSpace(user.Text)
	for _, n := range f.lengths {
		if n > len(text) || n == 0 {
			continue
		}
		places := f.byText[text[len(text)-n:]]
		if len(places) == 0 {
			continue
		}
		best := places[0]
		for _, p := range places {
			if slices.Equal(f.ordered[p].ImageIDs, user.Images) {
				best = p
				break
			}
		}
		return &f.ordered[best], f.rank[best]
	}
	return nil, 0
}

func lines(s string) []string {
	var out []string
	for l := range strings.Lines(s) {
		if l = strings.TrimSpace(l); l != "" {
			out = append(out, l)
		}
	}
	return out
}
