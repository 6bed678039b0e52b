package train

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"searchloop/internal/model/qwenvl"
)

// longTailed are rows as rollouts have them: most short, some near the budget.
func longTailed(n, budget int) []*Sequence {
	rng := rand.New(rand.NewPCG(5, 5))
	cost := qwenvl.Config{Vocab: 1000, Hidden: 256, Intermediate: 512, Layers: 8, Heads: 8, KVHeads: 2, HeadDim: 32}.Cost()
	var out []*Sequence
	for i := range n {
		tokens := 1 + rng.IntN(budget/16)
		if i%5 == 0 {
			tokens = budget/4 + rng.IntN(budget*3/4)
		}
		out = append(out, &Sequence{Tokens: make([]int32, tokens), Temperature: 1, Cost: cost.Row(tokens, nil, 2)})
	}
	return out
}

// The dearest pack costs less than when only tokens are counted, no pack is over
// its budget, and nothing depends on the order the rows come in.
func TestPacksAreBalanced(t *testing.T) {
	const budget = 8192
	seqs := longTailed(60, budget)
	costs := func(packs [][]int) (mean, most float64) {
		for _, p := range packs {
			tokens, sum := 0, 0.0
			for _, i := range p {
				tokens += len(seqs[i].Tokens)
				sum += seqs[i].Cost
			}
			if tokens > budget {
				t.Errorf("a pack of %d tokens", tokens)
			}
			mean, most = mean+sum/float64(len(packs)), max(most, sum)
		}
		return mean, most
	}
	packs := pack(seqs, shuffled(60, 1, 0), budget)
	if again := pack(seqs, shuffled(60, 2, 0), budget); fmt.Sprint(packs) != fmt.Sprint(again) {
		t.Error("packs depend on the order of the rows")
	}
	mean, most := costs(packs)
	kept := make([]float64, len(seqs))
	for i, s := range seqs {
		kept[i], s.Cost = s.Cost, 0 // without costs: by tokens alone
	}
	byTokens := pack(seqs, shuffled(60, 1, 0), budget)
	for i, s := range seqs {
		s.Cost = kept[i]
	}
	if _, worst := costs(byTokens); len(byTokens) != len(packs) || most >= worst {
		t.Errorf("%d packs, the dearest %g; by tokens %d packs, the dearest %g", len(packs), most, len(byTokens), worst)
	}
	t.Logf("%d packs, mean cost %.3f of the dearest", len(packs), mean/most)
}
