package flat

import (
	"math"
	"slices"
)

// Hit is one result: a row and its inner product with the query, or its squared
// distance from it.
type Hit struct {
	Row   int64
	Score float32
}

// compare orders hits best first: larger score, then smaller row.
func compare(a, b Hit) int {
	switch {
	case a.Score > b.Score:
		return -1
	case a.Score < b.Score:
		return 1
	case a.Row < b.Row:
		return -1
	case a.Row > b.Row:
		return 1
	}
	return 0
}

// top keeps the k best hits offered to it, as a heap with the worst at its root.
type top struct {
	k    int
	heap []Hit
}

// scores offers consecutive rows from first on. It returns the index of the
// first score that is not a number, or -1.
func (t *top) scores(scores []float32, first int64) int {
	i := 0
	for ; len(t.heap) < t.k && i < len(scores); i++ {
		if s := scores[i]; s == s {
			t.offer(Hit{Row: first + int64(i), Score: s})
		} else {
			return i
		}
	}
	if len(t.heap) < t.k {
		return -1
	}
	worst := t.heap[0].Score
	for ; i < len(scores); i++ {
		// One comparison decides nearly always. NaN passes it and is caught after it.
		if s := scores[i]; s < worst {
			continue
		} else if s != s {
			return i
		} else {
			t.offer(Hit{Row: first + int64(i), Score: s})
			worst = t.heap[0].Score
		}
	}
	return -1
}

// floor is a score below which no hit is taken any more.
func (t *top) floor() float32 {
	if len(t.heap) < t.k {
		return float32(math.Inf(-1))
	}
	return t.heap[0].Score
}

func (t *top) offer(h Hit) {
	if len(t.heap) < t.k {
		t.heap = append(t.heap, h)
		t.up(len(t.heap) - 1)
		return
	}
	if t.k > 0 && compare(h, t.heap[0]) < 0 {
		t.heap[0] = h
		t.down(0)
	}
}

func (t *top) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if compare(t.heap[i], t.heap[parent]) <= 0 {
			return
		}
		t.heap[i], t.heap[parent] = t.heap[parent], t.heap[i]
		i = parent
	}
}

func (t *top) down(i int) {
	for {
		worst := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(t.heap); c++ {
			if compare(t.heap[c], t.heap[worst]) > 0 {
				worst = c
			}
		}
		if worst == i {
			return
		}
		t.heap[i], t.heap[worst] = t.heap[worst], t.heap[i]
		i = worst
	}
}

// merge joins the parts' hits of one query, best first, at most k.
func merge(parts []top, k int) []Hit {
	var n int
	for i := range parts {
		n += len(parts[i].heap)
	}
	all := make([]Hit, 0, n)
	for i := range parts {
		all = append(all, parts[i].heap...)
	}
	return Best(all, k)
}

// Best sorts hits, best first, equal scores by row, and keeps at most k.
func Best(hits []Hit, k int) []Hit {
	slices.SortFunc(hits, compare)
	return slices.Clip(hits[:min(k, len(hits))])
}
