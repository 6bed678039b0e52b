package balance

import (
	"cmp"
	"slices"

	"searchloop/corpus"
	"searchloop/internal/lot"
	"searchloop/internal/recipe"
)

// stratum is what questions have in common that are drawn in proportion: what they
// need, what they are about, and how hard they are.
type stratum struct {
	need, category string
	bin            int
}

// binOf is the stratum of a pass rate among n of equal width; 1 is in the last.
func binOf(rate float64, n int) int { return min(int(rate*float64(n)), n-1) }

// targets is how many questions of either side are drawn: those asked for, or, when
// one side has too few, as many as there can be in the same proportion. Without
// targets all are.
func targets(c recipe.Curate, free, required int) (f, r int) {
	if c.Free == 0 && c.Required == 0 {
		return free, required
	}
	share := 1.0
	if c.Free > 0 {
		share = min(share, float64(free)/float64(c.Free))
	}
	if c.Required > 0 {
		share = min(share, float64(required)/float64(c.Required))
	}
	return int(share*float64(c.Free) + 0.5), int(share*float64(c.Required) + 0.5)
}

// draw picks n of the questions, from each stratum its share (largest remainders),
// within a stratum those with the smallest hash of seed and id. The result is the
// set of their ids.
func draw(list []*corpus.Tried, n int, bins int, seed uint64) map[string]bool {
	strata := map[stratum][]*corpus.Tried{}
	for _, q := range list {
		s := stratum{q.Trial.Need, q.Category, binOf(q.Trial.PassRate, bins)}
		strata[s] = append(strata[s], q)
	}
	type part struct {
		stratum
		n    int
		rest float64
	}
	var parts []part
	left := n
	for s, qs := range strata {
		exact := float64(n) * float64(len(qs)) / float64(len(list))
		k := int(exact)
		left -= k
		parts = append(parts, part{s, k, exact - float64(k)})
	}
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(b.rest, a.rest), cmp.Compare(a.need, b.need), cmp.Compare(a.category, b.category), cmp.Compare(a.bin, b.bin))
	})
	out := map[string]bool{}
	for _, p := range parts {
		qs := strata[p.stratum]
		if left > 0 && p.n < len(qs) {
			p.n++
			left--
		}
		slices.SortFunc(qs, func(a, b *corpus.Tried) int {
			return cmp.Or(cmp.Compare(lot.Draw("balance", a.ID, seed), lot.Draw("balance", b.ID, seed)), cmp.Compare(a.ID, b.ID))
		})
		for _, q := range qs[:p.n] {
			out[q.ID] = true
		}
	}
	return out
}
