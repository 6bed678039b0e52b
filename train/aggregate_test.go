package train

import (
	"math/rand/v2"
	"testing"
)

// rows of one loss value a token: at ratio 1 the surrogate's value is -A.
var goldenRows = []struct {
	loss   float64
	tokens int
}{{1, 2}, {2, 4}, {-1, 6}, {4, 1}, {.5, 3}, {7, 0}} // the last is fully masked

func TestAggregation(t *testing.T) {
	for mode, want := range map[string]float64{TokenMean: .59375, SeqMeanTokenSum: 1.9, SeqMeanTokenMean: 1.3} {
		d, err := NewDenominator(mode, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range goldenRows {
			d.Count(r.tokens)
		}
		if d.Tokens != 16 || d.Rows != 5 {
			t.Fatalf("%+v", d)
		}
		// Whatever rows stand together, in whatever order: the sums are the batch's.
		rng := rand.New(rand.NewPCG(3, 4))
		for range 5 {
			var total float64
			order := rng.Perm(len(goldenRows))
			for len(order) > 0 {
				n := 1 + rng.IntN(len(order))
				var part Tally
				for _, i := range order[:n] {
					r := goldenRows[i]
					z := make([]float32, r.tokens)
					dlogp, dent := make([]float32, r.tokens), make([]float32, r.tokens)
					goldenLoss.Row(Columns{New: z, Old: z, Entropy: z}, -r.loss, d.Weight(r.tokens), dlogp, dent, &part)
					for _, g := range dlogp {
						near(t, "slope", float64(g), r.loss*d.Weight(r.tokens), 1e-6)
					}
				}
				total += part.Loss
				order = order[n:]
			}
			near(t, mode, total, want, 1e-12)
		}
	}
	d := Denominator{Mode: TokenMean}
	if d.Weight(0) != 0 || d.Weight(3) != 0 {
		t.Error("an empty batch divides by zero")
	}
	if _, err := NewDenominator("mean", 0); err == nil {
		t.Error("unknown mode accepted")
	}
}

// Two of the rows are of one rollout: they share their tokens and weigh 1 together.
// The value with five rollouts, one of them fully masked, is .642857; here a row
// without a trained token counts nowhere, so that it is that times 5/4.
func TestAggregationByRollout(t *testing.T) {
	divisor, err := NewDenominator(RolloutMeanTokenMean, 0)
	if err != nil {
		t.Fatal(err)
	}
	goal := &improvement{loss: &goldenLoss, divisor: divisor}
	var batch []*Sequence
	for i, r := range goldenRows {
		s := &Sequence{Trained: r.tokens, Advantage: -r.loss, Rollout: string("ABCCEF"[i])}
		batch = append(batch, s)
	}
	goal.begin(batch, nil)
	for _, s := range batch {
		z := make([]float32, s.Trained)
		goal.slopes([]*Sequence{s}, z, z, make([]float32, s.Trained), make([]float32, s.Trained))
	}
	near(t, "by rollout", goal.tally.Loss*4/5, .642857, 1e-6)

	a, err := Estimate([]Outcome{{"g", 1, Keep, "x"}, {"g", 1, Keep, "x"}, {"g", 0, Keep, "y"}}, AdvantageDrGRPO, 0)
	if err != nil {
		t.Fatal(err)
	}
	if a.Values[0] != .5 || a.Values[1] != .5 || a.Values[2] != -.5 || !a.Trained[1] || a.Groups[0].Rows != 2 {
		t.Errorf("%+v", a)
	}
}

// At ratio 1 the loss is -mean A; it is no measure of progress.
func TestLossOnPolicy(t *testing.T) {
	for mode, want := range map[string]float64{TokenMean: .1364439, SeqMeanTokenMean: -.4093318} {
		d := Denominator{Mode: mode}
		d.Count(2)
		d.Count(6)
		var tally Tally
		for _, r := range []struct {
			a float64
			n int
		}{{1.5008830, 2}, {-.6822195, 6}} {
			z := make([]float32, r.n)
			goldenLoss.Row(Columns{New: z, Old: z, Entropy: z}, r.a, d.Weight(r.n), make([]float32, r.n), make([]float32, r.n), &tally)
		}
		near(t, mode, tally.Loss, want, 1e-7)
	}
}
