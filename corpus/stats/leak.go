package stats

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"slices"
	"strings"
	"unicode"
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

// Settings of the search for near texts: a test question is found if it shares
// one of bands groups of rows minimal hashes with a training question, and
// counts if their word pairs are Jaccard-similar by near at least (Broder 1997;
// at 0.8 the chance to miss one is 0.02 %).
const (
	bands = 16
	rows  = 4
	near  = 0.8
	// maxPairs bounds the pairs that are listed; all are counted.
	maxPairs = 200
)

// asked is one question as the leak check sees it.
type asked struct {
	id, text, norm, image, answer string
	train                         bool
}

// plain is a text without case, punctuation and repeated space.
func plain(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) }), " ")
}

// shingles are the hashes of the pairs of neighbouring words, sorted.
func shingles(norm string) []uint64 {
	words := strings.Fields(norm)
	if len(words) == 1 {
		words = append(words, "")
	}
	var out []uint64
	for i := 1; i < len(words); i++ {
		out = append(out, hashText(words[i-1]+" "+words[i]))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// hashText is FNV-1a with a final mix: the same in every process.
func hashText(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return mix(h)
}

func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// jaccard compares two sorted sets.
func jaccard(a, b []uint64) float64 {
	both := 0
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			both++
			i++
			j++
		case a[i] < b[j]:
			i++
		default:
			j++
		}
	}
	if len(a)+len(b) == both {
		return 1
	}
	return float64(both) / float64(len(a)+len(b)-both)
}

// signature gives the keys of the bands of a set.
func signature(set []uint64) [bands]uint64 {
	var out [bands]uint64
	var buf [8 * rows]byte
	for b := range bands {
		for r := range rows {
			least := ^uint64(0)
			seed := mix(uint64(b*rows+r) + 1)
			for _, x := range set {
				least = min(least, mix(x^seed))
			}
			binary.LittleEndian.PutUint64(buf[8*r:], least)
		}
		out[b] = hashText(string(buf[:]))
	}
	return out
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
	sets := make([][]uint64, len(train.order))
	table := map[[2]uint64][]int{}
	for i, norm := range train.order {
		sets[i] = shingles(norm)
		for b, key := range signature(sets[i]) {
			table[[2]uint64{uint64(b), key}] = append(table[[2]uint64{uint64(b), key}], i)
		}
	}
	for _, norm := range test.order {
		set := shingles(norm)
		found := map[int]float64{}
		for b, key := range signature(set) {
			for _, i := range table[[2]uint64{uint64(b), key}] {
				if _, done := found[i]; !done {
					found[i] = jaccard(set, sets[i])
				}
			}
		}
		var nearest []int
		for i, s := range found {
			if s >= near {
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
