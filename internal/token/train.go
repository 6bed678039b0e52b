package token

import (
	"cmp"
	"container/heap"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"searchloop/internal/fail"
)

// minPairs is how often two neighbours must occur to become a token.
const minPairs = 2

// TrainBPE learns a byte-level BPE with Qwen2's normaliser and pattern from
// texts. Ids are laid out as Qwen's: the 256 bytes, then the merges, then the
// specials in the order given. A special of the form <|…|> is a special token;
// any other (<think>, <tool_call>) is an added token that is text all the same.
// Texts are split at specials before they are counted.
//
// vocab is the size to reach, specials included; a small corpus in which no
// neighbours repeat gives fewer tokens (see Size). Equal texts in any order give
// equal tokenizers.
func TrainBPE(texts iter.Seq[string], vocab int, specials []string) (*BPE, error) {
	const op = "train tokenizer"
	target := vocab - len(specials)
	if target < 256 {
		return nil, fail.New(fail.Usage, op, "", "a vocabulary of %d has no room for 256 bytes and %d specials", vocab, len(specials))
	}
	t := &BPE{pattern: patterns[qwenRegex], nfc: true, vocab: map[string]int32{}}
	seen := map[string]bool{}
	for i, s := range specials {
		if s == "" || seen[s] || !utf8.ValidString(s) {
			return nil, fail.New(fail.Usage, op, "", "special token %q is empty, twice there or not UTF-8", s)
		}
		seen[s] = true
		t.added = append(t.added, added{ID: int32(i), Content: s, Special: strings.HasPrefix(s, "<|") && strings.HasSuffix(s, "|>")})
	}
	// Bytes in the order of their runes, as the reference's trainer has them.
	bytes := slices.Clone(byteRune[:])
	slices.Sort(bytes)
	for id, r := range bytes {
		t.vocab[string(r)] = int32(id)
		t.single[runeByte[r]] = int32(id)
	}
	c := newCounts(t.count(texts), &t.single)
	names := make([]string, 0, target)
	for _, r := range bytes {
		names = append(names, string(r))
	}
	for len(names) < target {
		p, ok := c.best()
		if !ok {
			break
		}
		name := names[p.a] + names[p.b]
		id, ok := t.vocab[name]
		if !ok {
			id = int32(len(names))
			t.vocab[name] = id
			names = append(names, name)
		}
		t.merges = append(t.merges, p)
		c.merge(p, id)
	}
	for i := range t.added {
		t.added[i].ID += int32(len(names))
	}
	if err := t.build(); err != nil {
		return nil, fail.Wrap(fail.Bug, op, "", err)
	}
	return t, nil
}

// count returns how often each pre-token occurs.
func (t *BPE) count(texts iter.Seq[string]) map[string]int {
	words := map[string]int{}
	f := newFinder(t.added)
	for text := range texts {
		if !utf8.ValidString(text) {
			text = Text([]byte(text))
		}
		f.split(text, false, func(part string, id int32) {
			if id >= 0 {
				return
			}
			for part = nfc(part); len(part) > 0; {
				n := t.pattern.next(part)
				words[part[:n]]++
				part = part[n:]
			}
		})
	}
	return words
}

// counts holds the words as ids and, for each pair of neighbours, how often and
// in which words it occurs.
type counts struct {
	words [][]int32
	times []int
	pairs map[pair]int
	in    map[pair][]int32 // words that hold or once held the pair
	queue pairQueue
}

func newCounts(words map[string]int, single *[256]int32) *counts {
	c := &counts{pairs: map[pair]int{}, in: map[pair][]int32{}}
	list := make([]string, 0, len(words))
	for w := range words {
		list = append(list, w)
	}
	slices.Sort(list)
	for i, w := range list {
		ids := make([]int32, len(w))
		for j := range len(w) {
			ids[j] = single[w[j]]
		}
		c.words = append(c.words, ids)
		c.times = append(c.times, words[w])
		for j := range ids[1:] {
			c.add(pair{ids[j], ids[j+1]}, int32(i), words[w])
		}
	}
	for p, n := range c.pairs {
		c.queue = append(c.queue, counted{p, n})
	}
	heap.Init(&c.queue)
	return c
}

func (c *counts) add(p pair, word int32, n int) {
	c.pairs[p] += n
	if l := c.in[p]; n > 0 && (len(l) == 0 || l[len(l)-1] != word) {
		c.in[p] = append(l, word)
	}
}

// best takes the most frequent pair off the queue; the smaller ids win a tie.
func (c *counts) best() (pair, bool) {
	for len(c.queue) > 0 {
		top := c.queue[0]
		if now := c.pairs[top.pair]; now != top.n {
			c.queue[0].n = now // counts only fall; put it where it belongs now
			heap.Fix(&c.queue, 0)
			continue
		}
		heap.Pop(&c.queue)
		return top.pair, top.n >= minPairs
	}
	return pair{}, false
}

// merge replaces the pair by id in every word and recounts its neighbours.
func (c *counts) merge(p pair, id int32) {
	fresh := map[pair]bool{}
	change := func(q pair, word int32, n int) {
		c.add(q, word, n)
		if n > 0 {
			fresh[q] = true
		}
	}
	for _, w := range c.in[p] {
		ids, n := c.words[w], c.times[w]
		out := ids[:0]
		for i := 0; i < len(ids); i++ {
			if i+1 == len(ids) || ids[i] != p.a || ids[i+1] != p.b {
				out = append(out, ids[i])
				continue
			}
			if len(out) > 0 {
				change(pair{out[len(out)-1], p.a}, w, -n)
				change(pair{out[len(out)-1], id}, w, n)
			}
			if i+2 < len(ids) {
				change(pair{p.b, ids[i+2]}, w, -n)
				change(pair{id, ids[i+2]}, w, n)
			}
			out = append(out, id)
			i++
		}
		c.words[w] = out
	}
	delete(c.pairs, p)
	delete(c.in, p)
	for q := range fresh {
		if n := c.pairs[q]; n > 0 {
			heap.Push(&c.queue, counted{q, n})
		}
	}
}

type counted struct {
	pair
	n int
}

type pairQueue []counted

func (h pairQueue) Len() int { return len(h) }
func (h pairQueue) Less(i, j int) bool {
	a, b := h[i], h[j]
	return cmp.Or(b.n-a.n, int(a.a-b.a), int(a.b-b.b)) < 0
}
func (h pairQueue) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *pairQueue) Push(x any)   { *h = append(*h, x.(counted)) }
func (h *pairQueue) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
