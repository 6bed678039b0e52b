package token

import "container/heap"

// merge appends the ids of word: starting from bytes, the neighbours whose merge
// has the lowest rank become one, the leftmost first, until nothing merges.
func (t *BPE) merge(dst []int32, word string) []int32 {
	if t.ignoreMerges {
		if id, ok := t.words[word]; ok {
			return append(dst, id)
		}
	}
	if len(word) > 48 {
		return t.mergeLong(dst, word)
	}
	// Short words: the best neighbours are found by looking at all of them.
	var idBuf [48]int32
	var nextBuf [48]merge
	ids, next := idBuf[:0], nextBuf[:0] // next[i]: what ids[i] and ids[i+1] become
	for i := range len(word) {
		ids = append(ids, t.single[word[i]])
	}
	for i := range ids[1:] {
		next = append(next, t.pair(ids[i], ids[i+1]))
	}
	for {
		best := -1
		for i, m := range next {
			if m.id >= 0 && (best < 0 || m.rank < next[best].rank) {
				best = i
			}
		}
		if best < 0 {
			return append(dst, ids...)
		}
		ids[best] = next[best].id
		ids = append(ids[:best+1], ids[best+2:]...)
		next = append(next[:best], next[best+1:]...)
		if best > 0 {
			next[best-1] = t.pair(ids[best-1], ids[best])
		}
		if best < len(next) {
			next[best] = t.pair(ids[best], ids[best+1])
		}
	}
}

func (t *BPE) pair(a, b int32) merge {
	if m, ok := t.table[pair{a, b}.key()]; ok {
		return m
	}
	return merge{id: -1}
}

// mergeLong is merge in O(n log n): symbols in a linked list, candidates in a heap.
func (t *BPE) mergeLong(dst []int32, word string) []int32 {
	n := len(word)
	ids, prev, next := make([]int32, n), make([]int32, n), make([]int32, n)
	for i := range n {
		ids[i], prev[i], next[i] = t.single[word[i]], int32(i-1), int32(i+1)
	}
	h := make(candidates, 0, n)
	for i := range n - 1 {
		if m := t.pair(ids[i], ids[i+1]); m.id >= 0 {
			h = append(h, candidate{m.rank, int32(i), m.id})
		}
	}
	heap.Init(&h)
	for len(h) > 0 {
		c := heap.Pop(&h).(candidate)
		i := c.at
		// Stale when the symbol is gone or its neighbour has changed.
		if ids[i] < 0 || next[i] >= int32(n) || t.pair(ids[i], ids[next[i]]).id != c.id {
			continue
		}
		j := next[i]
		ids[i], ids[j] = c.id, -1
		next[i] = next[j]
		if next[j] < int32(n) {
			prev[next[j]] = i
			if m := t.pair(c.id, ids[next[j]]); m.id >= 0 {
				heap.Push(&h, candidate{m.rank, i, m.id})
			}
		}
		if p := prev[i]; p >= 0 {
			if m := t.pair(ids[p], c.id); m.id >= 0 {
				heap.Push(&h, candidate{m.rank, p, m.id})
			}
		}
	}
	for _, id := range ids {
		if id >= 0 {
			dst = append(dst, id)
		}
	}
	return dst
}

type candidate struct{ rank, at, id int32 }

type candidates []candidate

func (h candidates) Len() int { return len(h) }
func (h candidates) Less(i, j int) bool {
	return h[i].rank < h[j].rank || h[i].rank == h[j].rank && h[i].at < h[j].at
}
func (h candidates) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *candidates) Push(x any)   { *h = append(*h, x.(candidate)) }
func (h *candidates) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
