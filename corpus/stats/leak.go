package stats

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"

	"searchloop/corpus/near"
)

// A Pair is a question of the training side and one of the other side that are
// too near.
type Pair struct {
	Train, Test         string // ids
	TrainText, TestText string
	Similar             float64 // Jaccard index of the word pairs
	SameImage           bool
	SameAnswer          bool
}

// Leaks says what the sides share.
type Leaks struct {
	TrainQuestions, TestQuestions int64
	SameImage                     int64 // test questions whose image is in a training question, too
	SameText                      int64 // test questions whose text, but for case and punctuation, is a training question's
	NearText                      int64 // ... or nearly
	Leaked                        int64 // test questions whose text is near and whose image or, without images, whose answer is the same
	Pairs                         []Pair
}

// Settings of the search for near texts (package near): a test question counts if
// its word pairs and a training question's are Jaccard-similar by alike at least.
const (
	alike = 0.8
	// maxPairs bounds the pairs that are listed; all are counted.
	maxPairs = 200
)

// asked is one question as the leak check sees it.
type asked struct {
	id, text, norm, image, answer string
	train                         bool
}

// texts are the questions of one side by plain text, so that a text that a
// thousand questions share is compared once.
type texts struct {
	order []string
	of    map[string][]int
}

func (t *texts) add(norm string, i int) {
	if t.of == nil {
		t.of = map[string][]int{}
	}
	if _, known := t.of[norm]; !known {
		t.order = append(t.order, norm)
	}
	t.of[norm] = append(t.of[norm], i)
}

// leaks compares the training questions with all others.
func leaks(all []asked) Leaks {
	var l Leaks
	var train, test texts
	images := map[string]bool{}
	for i, q := range all {
		if q.train {
			l.TrainQuestions++
			train.add(q.norm, i)
			if q.image != "" {
				images[q.image] = true
			}
		} else {
			l.TestQuestions++
			test.add(q.norm, i)
		}
	}
	if l.TrainQuestions == 0 || l.TestQuestions == 0 {
		return l
	}
	sets := make([]near.Set, len(train.order))
	table := map[[2]uint64][]int{}
	for i, norm := range train.order {
		sets[i] = near.Words(norm)
		for b, key := range near.Signature(sets[i]) {
			table[[2]uint64{uint64(b), key}] = append(table[[2]uint64{uint64(b), key}], i)
		}
	}
	for _, norm := range test.order {
		set := near.Words(norm)
		found := map[int]float64{}
		for b, key := range near.Signature(set) {
			for _, i := range table[[2]uint64{uint64(b), key}] {
				if _, done := found[i]; !done {
					found[i] = near.Jaccard(set, sets[i])
				}
			}
		}
		var nearest []int
		for i, s := range found {
			if s >= alike {
				nearest = append(nearest, i)
			}
		}
		slices.SortFunc(nearest, func(a, b int) int { return cmp.Or(cmp.Compare(found[b], found[a]), a-b) })
		for _, j := range test.of[norm] {
			l.judge(all, all[j], nearest, found, &train)
		}
	}
	for _, j := range all {
		if !j.train && images[j.image] {
			l.SameImage++
		}
	}
	// Those that are leaks for sure come first, then by similarity.
	slices.SortStableFunc(l.Pairs, func(a, b Pair) int {
		return cmp.Or(firstTrue(a.SameImage, b.SameImage), cmp.Compare(b.Similar, a.Similar), cmp.Compare(a.Test, b.Test))
	})
	l.Pairs = l.Pairs[:min(len(l.Pairs), maxPairs)]
	return l
}

// judge counts one test question and notes the training question next to it,
// preferring one with its image.
func (l *Leaks) judge(all []asked, q asked, nearest []int, found map[int]float64, train *texts) {
	if len(nearest) == 0 {
		return
	}
	var best *Pair
	for _, i := range nearest {
		for _, k := range train.of[train.order[i]] {
			t := all[k]
			p := Pair{t.id, q.id, t.text, q.text, found[i], q.image != "" && q.image == t.image, strings.EqualFold(q.answer, t.answer)}
			if best == nil || p.SameImage && !best.SameImage || p.SameImage == best.SameImage && p.SameAnswer && !best.SameAnswer {
				best = &p
			}
			if best.SameImage && best.SameAnswer {
				break
			}
		}
	}
	if train.of[q.norm] != nil {
		l.SameText++
	} else {
		l.NearText++
	}
	if best.SameImage || q.image == "" && best.SameAnswer {
		l.Leaked++
		l.Pairs = append(l.Pairs, *best)
	} else if len(l.Pairs) < 50*maxPairs {
		l.Pairs = append(l.Pairs, *best)
	}
}

// firstTrue orders true before false.
func firstTrue(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// contents counts texts that are equal to an earlier one, by 8 bytes each.
type contents struct {
	seed maphash.Seed
	seen map[uint64]struct{}
	same int64
}

func newContents() *contents {
	return &contents{seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}}
}

func (c *contents) add(s string) {
	h := maphash.String(c.seed, s)
	if _, again := c.seen[h]; again {
		c.same++
	}
	c.seen[h] = struct{}{}
}
