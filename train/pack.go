package train

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// Step is the plan of one optimizer batch: its packs, each a forward pass. Packs
// hold indices of sequences.
type Step struct {
	Pass  int // how often every sequence has been used before
	Packs [][]int
	Idle  []int // trained tokens of rows that only count in the divisor
}

// shuffled is a permutation of [0, n) that depends on the seed and the pass over
// the data alone.
func shuffled(n int, seed uint64, pass int) []int {
	return rand.New(rand.NewPCG(seed, uint64(pass))).Perm(n)
}

// pack distributes sequences over packs of at most budget tokens: the longest
// first, each into the first pack with room. Sequences of different temperatures
// do not share a pack, because a pack is scored with one. A sequence longer than
// the budget was refused at load. The result depends on the set alone, not on
// its order.
func pack(seqs []*Sequence, members []int, budget int) [][]int {
	order := slices.Clone(members)
	slices.SortFunc(order, func(a, b int) int {
		x, y := seqs[a], seqs[b]
		return cmp.Or(cmp.Compare(x.Temperature, y.Temperature), cmp.Compare(len(y.Tokens), len(x.Tokens)), cmp.Compare(a, b))
	})
	var packs [][]int
	var room []int
	first := 0 // pack of the present temperature
	for k, i := range order {
		s := seqs[i]
		if k > 0 && s.Temperature != seqs[order[k-1]].Temperature {
			first = len(packs)
		}
		at := first
		for at < len(packs) && room[at] < len(s.Tokens) {
			at++
		}
		if at == len(packs) {
			packs, room = append(packs, nil), append(room, budget)
		}
		packs[at] = append(packs[at], i)
		room[at] -= len(s.Tokens)
	}
	return packs
}

// batches cuts an order into runs of at most budget tokens, at least one
// sequence each.
func batches(seqs []*Sequence, order []int, budget int) [][]int {
	var out [][]int
	from, tokens := 0, 0
	for k, i := range order {
		if n := len(seqs[i].Tokens); k > from && tokens+n > budget {
			out = append(out, order[from:k])
			from, tokens = k, 0
		}
		tokens += len(seqs[i].Tokens)
	}
	if from < len(order) {
		out = append(out, order[from:])
	}
	return out
}
