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
	Idle  []int // trained tokens of rows (or rollouts) that only count in the divisor
}

// shuffled is a permutation of [0, n) that depends on the seed and the pass over
// the data alone.
func shuffled(n int, seed uint64, pass int) []int {
	return rand.New(rand.NewPCG(seed, uint64(pass))).Perm(n)
}

// pack distributes sequences over packs of at most budget tokens. Sequences of
// different temperatures do not share a pack, because a pack is scored with one. A
// sequence longer than the budget was refused at load. The result depends on the
// set alone, not on its order.
func pack(seqs []*Sequence, members []int, budget int) [][]int {
	order := slices.Clone(members)
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(seqs[a].Temperature, seqs[b].Temperature), cmp.Compare(a, b))
	})
	var packs [][]int
	for len(order) > 0 {
		n := 1
		for n < len(order) && seqs[order[n]].Temperature == seqs[order[0]].Temperature {
			n++
		}
		packs = append(packs, balance(seqs, order[:n], budget)...)
		order = order[n:]
	}
	return packs
}

// balance fills packs, the longest sequence first and each into the first pack
// with room, and then spreads the sequences over as many packs by what they cost:
// the dearest first, each into the cheapest pack with room. Attention makes a long
// row dearer than short ones of as many tokens, and the dearest pack decides how
// much memory a step takes and how long other devices wait for it. Where that does
// not fit, or is no better, the first filling stays.
func balance(seqs []*Sequence, members []int, budget int) [][]int {
	byLength := sorted(members, func(a, b int) int {
		return cmp.Or(cmp.Compare(len(seqs[b].Tokens), len(seqs[a].Tokens)), cmp.Compare(a, b))
	})
	var filled []bin
	for _, i := range byLength {
		n := len(seqs[i].Tokens)
		at := slices.IndexFunc(filled, func(b bin) bool { return b.room >= n })
		if at < 0 {
			at, filled = len(filled), append(filled, bin{room: budget})
		}
		filled[at].put(seqs, i)
	}
	byCost := sorted(members, func(a, b int) int { return cmp.Or(cmp.Compare(seqs[b].Cost, seqs[a].Cost), cmp.Compare(a, b)) })
	even := make([]bin, len(filled))
	for k := range even {
		even[k].room = budget
	}
	for _, i := range byCost {
		at := -1
		for k := range even {
			if even[k].room >= len(seqs[i].Tokens) && (at < 0 || even[k].cost < even[at].cost) {
				at = k
			}
		}
		if at < 0 {
			return packsOf(filled)
		}
		even[at].put(seqs, i)
	}
	if dearest(even) < dearest(filled) {
		return packsOf(even)
	}
	return packsOf(filled)
}

// bin is a pack being filled.
type bin struct {
	rows []int
	room int // tokens
	cost float64
}

func (b *bin) put(seqs []*Sequence, i int) {
	b.rows = append(b.rows, i)
	b.room -= len(seqs[i].Tokens)
	b.cost += seqs[i].Cost
}

func sorted(members []int, by func(a, b int) int) []int {
	order := slices.Clone(members)
	slices.SortFunc(order, by)
	return order
}

func dearest(bins []bin) (most float64) {
	for _, b := range bins {
		most = max(most, b.cost)
	}
	return most
}

func packsOf(bins []bin) [][]int {
	out := make([][]int, len(bins))
	for k := range bins {
		out[k] = bins[k].rows
	}
	return out
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
