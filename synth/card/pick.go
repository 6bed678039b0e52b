package card

import (
	"cmp"
	"slices"

	"searchloop/internal/lot"
)

// pick keeps the n things with the smallest hash of seed and id.
type pick[T any] struct {
	n    int
	seed uint64
	list []picked[T]
}

type picked[T any] struct {
	key uint64
	id  string
	it  T
}

func newPick[T any](n int, seed uint64) *pick[T] { return &pick[T]{n: n, seed: seed} }

func (p *pick[T]) add(id string, it T) {
	p.list = append(p.list, picked[T]{lot.Draw("card", id, p.seed), id, it})
	if len(p.list) >= 2*p.n+64 {
		p.cut()
	}
}

func (p *pick[T]) cut() {
	slices.SortFunc(p.list, func(a, b picked[T]) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.id, b.id)) })
	p.list = p.list[:min(len(p.list), p.n)]
}

// sorted gives them in the order of their hashes.
func (p *pick[T]) sorted() []T {
	p.cut()
	out := make([]T, len(p.list))
	for i, x := range p.list {
		out[i] = x.it
	}
	return out
}
