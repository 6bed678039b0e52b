package train

import (
	"context"
	"math"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/recipe"
	"searchloop/rollout/trajectory"
)

func mustLoss(t *testing.T, g recipe.GRPO) Loss {
	t.Helper()
	if g.ClipLow == 0 {
		g.ClipLow, g.ClipHigh = .2, .28
	}
	l, err := NewLoss(g)
	if err != nil {
		t.Fatal(err)
	}
	return *l
}

// rowOf runs the kernel on one row with seq-mean-token-mean of one row.
func rowOf(l Loss, diffs []float32, a float64) (loss float64, slopes []float32) {
	n := len(diffs)
	slopes = make([]float32, n)
	var tally Tally
	l.Row(Columns{New: diffs, Old: make([]float32, n), Entropy: make([]float32, n)}, a, 1/float64(n), slopes, make([]float32, n), &tally)
	return tally.Loss, slopes
}

func TestGSPO(t *testing.T) {
	l := mustLoss(t, recipe.GRPO{Loss: LossGSPO, ClipLow: 3e-4, ClipHigh: 4e-4})
	// The observation between the tokens never reaches the kernel; with it, the ratio would be 1.2122765.
	row := f(.10, -.05, .02)
	v, d := rowOf(l, row, -1)
	near(t, "A=-1", v, 1.0236077, 1e-7)
	near(t, "A=-1 slope", float64(d[1]), .3412026, 1e-7)
	v, d = rowOf(l, row, 1)
	near(t, "A=1", v, -1.0004, 1e-7)
	near(t, "A=1 slope", float64(d[0]), 0, 0)
	v, d = rowOf(l, f(4e-4, -2e-4, 1e-4), 1)
	near(t, "inside", v, -1.000100005, 1e-7)
	near(t, "inside slope", float64(d[2]), -.333366668, 1e-7)
	// A mean beyond 10 is clamped, and then no gradient is left.
	if v, d = rowOf(mustLoss(t, recipe.GRPO{Loss: LossGSPO}), f(12, 12), -1); math.Abs(v-math.Exp(10)) > 1e-6 || d[0] != 0 {
		t.Errorf("far: %g, %v", v, d)
	}
	// Rejected tokens are no part of the mean.
	var tally Tally
	out, ent := make([]float32, 3), make([]float32, 3)
	l.Row(Columns{New: f(4e-4, 9, 0), Old: f(0, 0, 0), Entropy: f(0, 0, 0), Skip: []bool{false, true, false}}, 1, .5, out, ent, &tally)
	near(t, "without the rejected", tally.Loss, -math.Exp(2e-4), 1e-7)
	if out[1] != 0 || tally.Tokens != 2 {
		t.Errorf("slopes %v, %+v", out, tally)
	}
}

func TestCISPO(t *testing.T) {
	ln := func(r float64) float32 { return float32(math.Log(r)) }
	verl := mustLoss(t, recipe.GRPO{Loss: LossCISPO})
	trl := mustLoss(t, recipe.GRPO{Loss: LossCISPO, ClipLow: 1, ClipHigh: 4})
	for _, c := range []struct {
		l        Loss
		r, v, dv float64
	}{{verl, 6, 2.56, -1.28}, {trl, 6, 10, -5}, {verl, .5, 1.6, -.8}, {trl, .5, 1, -.5}} {
		v, d := one(c.l, Columns{New: f(-2), Old: f(-2 - ln(c.r))}, 1)
		near(t, "value", v, c.v, 1e-6)
		near(t, "slope", d, c.dv, 1e-6)
	}
}

func TestSAPO(t *testing.T) {
	l := mustLoss(t, recipe.GRPO{Loss: LossSAPO})
	for _, c := range []struct{ r, a, v, dv float64 }{{1.5, 1, -2.4898373, -1.4100223}, {.5, 1, -1.5101627, -.4700074}, {1.5, -1, 2.3935855, 1.4012097}} {
		v, d := one(l, Columns{New: f(float32(math.Log(c.r))), Old: f(0)}, c.a)
		near(t, "value", v, c.v, 5e-7)
		near(t, "slope", d, c.dv, 5e-7)
	}
}

func TestDPPO(t *testing.T) {
	l := mustLoss(t, recipe.GRPO{Loss: LossDPPO, ClipLow: .2, ClipHigh: .2, OldKL: 1e-3})
	ln := func(p float64) float32 { return float32(math.Log(p)) }
	for _, c := range []struct{ p, old, a, v float64 }{{.5, .2, 1, .0008396}, {.5, .2, -1, 2.5008396}, {.3, .25, 1, -1.1999668}} {
		v, d := one(l, Columns{New: f(ln(c.p)), Old: f(ln(c.old))}, c.a)
		near(t, "value", v, c.v, 5e-7)
		slope := 2e-3 * math.Log(c.p/c.old)
		if c.v != .0008396 {
			slope -= c.a * c.p / c.old
		}
		near(t, "slope", d, slope, 1e-6)
	}
	// The other bound, with either sign.
	if v, d := one(l, Columns{New: f(ln(.2)), Old: f(ln(.5))}, -1); math.Abs(v-.0008396) > 5e-7 || d >= 0 {
		t.Errorf("pushed down too far: %g, slope %g", v, d)
	}
	if _, err := NewLoss(recipe.GRPO{ClipLow: .2, ClipHigh: .2, OldKL: 1}); kindOf(err) != fail.Usage {
		t.Errorf("%v", err)
	}
}

func TestDivergenceVariants(t *testing.T) {
	v, s := divergence("k3+", -1, -1.5)
	near(t, "k3+", v, .1065307, 1e-7)
	near(t, "k3+ slope", s, .5, 1e-12)
	if v, _ = divergence("k3", -5, -1); v != 10 { // 49.598150 before the clamp
		t.Errorf("k3 is %g", v)
	}
	near(t, "k3 open", math.Exp(4)-4-1, 49.598150, 1e-6)
	l := mustLoss(t, recipe.GRPO{KL: 1, KLEstimator: "k3", KLImportance: true})
	var tally Tally
	d := make([]float32, 1)
	l.Row(Columns{New: f(-1), Old: f(-1 - float32(math.Log(1.2))), Ref: f(-1.5), Entropy: f(0)}, 0, 1, d, make([]float32, 1), &tally)
	near(t, "weighed k3", tally.KLTerm, .1278368, 1e-7)
	near(t, "weighed k3 slope", float64(d[0]), 1.2*(.3934693+.1065307), 1e-6)
}

// Derivatives of every loss by finite differences, with a weight and a KL.
func TestModeSlopes(t *testing.T) {
	for _, g := range []recipe.GRPO{
		{Loss: LossGSPO, KL: .1, KLEstimator: "k2"}, {Loss: LossCISPO}, {Loss: LossSAPO, KL: .2, KLEstimator: "k3", KLImportance: true}, {KL: .2, KLEstimator: "k1", KLImportance: true},
	} {
		l := mustLoss(t, g)
		for _, a := range []float64{1.3, -.7} {
			old, ref, w := f(-1.1, -.4, -2), f(-1, -.9, -1.5), f(.5, 1, 2)
			loss := func(lp []float32, anchor []float32) (float64, []float32) {
				c := Columns{New: lp, Old: old, Ref: ref, Entropy: f(0, 0, 0), Weight: w}
				var tally Tally
				d := make([]float32, 3)
				l.Row(c, a, .25, d, make([]float32, 3), &tally)
				if l.Kind == LossCISPO { // the ratio is a constant: put the anchor's back
					v := 0.0
					for i := range lp {
						r := math.Exp(float64(anchor[i]) - float64(old[i]))
						x, _, _ := l.weighted(float64(lp[i]), r, a)
						v += .25 * float64(w[i]) * x
					}
					return v, d
				}
				return tally.Loss, d
			}
			lp := f(-1.05, -.45, -1.9)
			_, d := loss(lp, lp)
			for i := range lp {
				const e = 1. / 512
				up, down := append(f(), lp...), append(f(), lp...)
				up[i] += e
				down[i] -= e
				hi, _ := loss(up, lp)
				lo, _ := loss(down, lp)
				want := (hi - lo) / (float64(up[i]) - float64(down[i]))
				if l.Kind == LossGSPO { // the weights differ by token: the row's loss moves with all of them
					sum := float64(w[0]+w[1]+w[2]) / 3
					_, k := divergence("k2", float64(lp[i]), float64(ref[i]))
					want = .25*.1*k + (want-.25*.1*k)*float64(w[i])/sum
				}
				near(t, l.Kind, float64(d[i]), want, 2e-5)
			}
		}
	}
}

// The weights of four tokens that differ by hand-picked amounts.
func TestCorrectionWeights(t *testing.T) {
	d := f(.1, .9, -.5, 1.5)
	zero := make([]float32, 4)
	for name, c := range map[string]struct {
		o    recipe.Correction
		want []float64
	}{
		"token":          {recipe.Correction{Weights: "token", High: 2}, []float64{1.1051709, 2, .6065307, 2}},
		"open":           {recipe.Correction{Weights: "token", High: 9}, []float64{1.1051709, 2.4596031, .6065307, 4.4816891}},
		"icepop":         {recipe.Correction{Weights: "token", Outside: "zero", Low: .5, High: 2}, []float64{1.1051709, 0, .6065307, 0}},
		"product":        {recipe.Correction{Weights: "sequence", High: 9}, []float64{7.3890561, 7.3890561, 7.3890561, 7.3890561}},
		"product capped": {recipe.Correction{Weights: "sequence", High: 2}, []float64{2, 2, 2, 2}},
		"product masked": {recipe.Correction{Weights: "sequence", Outside: "zero", High: 3}, []float64{0, 0, 0, 0}},
		"geometric":      {recipe.Correction{Weights: "geometric", High: 9}, []float64{1.6487213, 1.6487213, 1.6487213, 1.6487213}},
	} {
		w, skip, kept, _ := mustCorrect(t, c.o).Row(d, zero)
		for i := range w {
			near(t, name, float64(w[i]), c.want[i], 1e-6)
		}
		if skip != nil || kept != 4 {
			t.Errorf("%s rejects %v", name, skip)
		}
	}
	// Normalized over the batch.
	c := mustCorrect(t, recipe.Correction{Weights: "token", High: 2, Normalize: true})
	s := &Sequence{Trained: 4}
	s.Weight, s.Skip, s.Kept, s.Outside = c.Row(d, zero)
	goal := &improvement{loss: &goldenLoss, divisor: Denominator{Mode: TokenMean}, correction: c}
	goal.begin([]*Sequence{s}, nil)
	for i, want := range []float64{.7739697, 1.4006334, .4247636, 1.4006334} {
		near(t, "normalized", float64(goal.weight(s)[i]), want, 1e-6)
	}
	if u := c.describe([]*Sequence{s}); u.WeightOut != .5 || u.RejectRows != 0 {
		t.Errorf("%+v", u)
	}
	// A weight multiplies the policy term only.
	l := mustLoss(t, recipe.GRPO{KL: .5, KLEstimator: "k1", Entropy: .1})
	var tally Tally
	slope, ent := make([]float32, 1), make([]float32, 1)
	l.Row(Columns{New: f(-1), Old: f(-1), Ref: f(-2), Entropy: f(.3), Weight: f(0)}, 3, 1, slope, ent, &tally)
	near(t, "KL and entropy stay", tally.Loss, .5-.03, 1e-7)
	near(t, "their slopes stay", float64(slope[0]), .5, 1e-7)
	near(t, "their slopes stay", float64(ent[0]), -.1, 1e-7)
}

// Rejected tokens leave the divisor, unless it is asked to count them.
func TestRejectionAndDivisor(t *testing.T) {
	for _, in := range []bool{false, true} {
		c := mustCorrect(t, recipe.Correction{Reject: []recipe.Rejection{{By: "token-k1", Low: .5, High: 2}}, RejectInDenominator: in})
		s := &Sequence{Trained: 4, Advantage: 1, Old: f(.1, .9, -.5, 1.5), Sampled: f(0, 0, 0, 0)}
		s.Weight, s.Skip, s.Kept, s.Outside = c.Row(s.Old, s.Sampled)
		gone := &Sequence{Trained: 2, Advantage: 1, Old: f(3, 3), Sampled: f(0, 0)}
		gone.Weight, gone.Skip, gone.Kept, gone.Outside = c.Row(gone.Old, gone.Sampled)
		if s.Kept != 2 || gone.Kept != 0 {
			t.Fatalf("kept %d and %d", s.Kept, gone.Kept)
		}
		goal := &improvement{loss: &goldenLoss, divisor: Denominator{Mode: TokenMean}, correction: c}
		goal.begin([]*Sequence{s, gone}, nil)
		d, h := make([]float32, 6), make([]float32, 6)
		goal.slopes([]*Sequence{s, gone}, append(append(f(), s.Old...), gone.Old...), make([]float32, 6), d, h)
		tokens, rows := int64(2), int64(1)
		if in {
			tokens, rows = 6, 2
		}
		if goal.over.Tokens != tokens || goal.over.Rows != rows || d[1] != 0 || d[4] != 0 || math.Abs(float64(d[0])+1/float64(tokens)) > 1e-6 {
			t.Errorf("in divisor %v: %+v, slopes %v", in, goal.over, d)
		}
	}
}

func TestCorrectionRefuses(t *testing.T) {
	for _, o := range []recipe.Correction{
		{Weights: "tokens", High: 2}, {Weights: "token"}, {Weights: "token", Low: 3, High: 2}, {High: 2}, {Weights: "token", High: 2, Outside: "drop"},
		{Reject: []recipe.Rejection{{By: "row-k1", Low: .5, High: 2}}}, {Reject: []recipe.Rejection{{By: "token-k4", High: 2}}},
		{Reject: []recipe.Rejection{{By: "token-k1", High: 2}}}, {Reject: []recipe.Rejection{{By: "token-k2", Low: .1, High: 2}}},
		{Reject: []recipe.Rejection{{By: "seq-max-k1", Low: .1, High: 2}}}, {RejectInDenominator: true},
	} {
		if _, err := NewCorrection(o); kindOf(err) != fail.Usage {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if c, err := NewCorrection(recipe.Correction{}); c != nil || err != nil {
		t.Errorf("%v, %v", c, err)
	}
	w := newToyWorld(t, t.TempDir(), 2, nil)
	for _, set := range []string{"grpo.correction={weights: token, high: 2}", "grpo.norm_tokens=4", "grpo.aggregation=seq-mean-token-sum-norm", "grpo.loss=gspo",
		"grpo.overlong={max_tokens: 4, buffer_tokens: 5}", "grpo.tau_positive=-1"} {
		if err := grpo(context.Background(), toyRun(t, set), w.options("out"), toyKit); kindOf(err) != fail.Usage {
			t.Errorf("%s: %v", set, err)
		}
	}
}

func TestAdvantageVariants(t *testing.T) {
	var rows []Outcome
	for _, r := range []float64{1, 0, 0, 1, .5, 0, 0, 0} {
		rows = append(rows, Outcome{Group: "a", Reward: r})
	}
	for _, r := range []float64{1, 1, 1, 0} {
		rows = append(rows, Outcome{Group: "b", Reward: r})
	}
	for method, want := range map[string][3]float64{
		AdvantageBatch: {-.6272550, .3763530, 1.3799611}, AdvantageNone: {-.3125, .1875, .6875}, AdvantageMaxRL: {-1, .6, 2.2},
	} {
		eps := 1e-4
		a, err := Estimate(rows, method, eps)
		if err != nil {
			t.Fatal(err)
		}
		for i, at := range []int{1, 4, 0} {
			near(t, method, a.Values[at], want[i], 2e-7)
		}
	}
	a, _ := Estimate([]Outcome{{"a", -1, Keep, ""}, {"a", 1, Keep, ""}, {"b", -2, Keep, ""}, {"b", 1, Keep, ""}}, AdvantageMaxRL, 0)
	if a.Values[0] != 0 || a.Values[2] != 0 {
		t.Errorf("a mean of 0 or less: %v", a.Values)
	}
}

func TestNormByConstant(t *testing.T) {
	d, err := NewDenominator(SeqMeanTokenSumNorm, 8)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, r := range goldenRows {
		d.Count(r.tokens)
	}
	for _, r := range goldenRows {
		sum += d.Weight(r.tokens) * r.loss * float64(r.tokens)
	}
	near(t, "five rows of constant 8", sum, 9.5/(5*8), 1e-12)
}

func TestOverlongPenalty(t *testing.T) {
	o := recipe.Overlong{MaxTokens: 20480, Buffer: 4096}
	for n, want := range map[int]float64{1: 0, 16384: 0, 18432: -.5, 20480: -1, 30000: -1} {
		near(t, "penalty", overlongPenalty(n, o), want, 1e-12)
	}
	o.Penalty = .5
	near(t, "half", overlongPenalty(20480, o), -.5, 1e-12)
	near(t, "off", overlongPenalty(1<<20, recipe.Overlong{}), 0, 0)
}

// Groups without variance: dropped, kept, or only counted.
func TestZeroVariance(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 6, func(rows []trajectory.Row, judged []trajectory.Judged) ([]trajectory.Row, []trajectory.Judged) {
		for i := range judged {
			judged[i].Reward = float64(i % 2)
			if i < 8 {
				judged[i].Reward = 1
			}
		}
		return rows, judged
	})
	base := []string{"grpo.updates=1", "grpo.passes=1"}
	first := func(out string, set ...string) map[string]any {
		return lines(t, mustGRPO(t, w, out, append(set, base...)...))[0]
	}
	drop, count := first("drop", "grpo.kl=0"), first("count", "grpo.kl=0", "grpo.zero_adv_in_denominator=true")
	keep := first("keep", "grpo.kl=0", "grpo.zero_variance=keep")
	if num(t, drop, "rows") != 16 || num(t, count, "rows") != 16 || num(t, keep, "rows") != 24 {
		t.Errorf("rows %v %v %v", drop["rows"], count["rows"], keep["rows"])
	}
	near(t, "counting is keeping, without the work", num(t, count, "grad_norm"), num(t, keep, "grad_norm"), 1e-7)
	near(t, "dropping weighs the others more", num(t, drop, "grad_norm")*num(t, drop, "trained_tokens"), num(t, keep, "grad_norm")*num(t, keep, "trained_tokens"), 1e-5)
	if n := num(t, first("kl"), "rows"); n != 24 {
		t.Errorf("with KL %g rows", n)
	}
	if n := num(t, first("kl-drop", "grpo.zero_variance=drop"), "rows"); n != 16 {
		t.Errorf("dropped with KL: %g rows", n)
	}
}

// Failed, truncated and overlong rows by policy.
func TestRowPolicies(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 4, func(rows []trajectory.Row, judged []trajectory.Judged) ([]trajectory.Row, []trajectory.Judged) {
		for i := range judged {
			judged[i].Reward = float64(i % 2)
		}
		rows[1].Status, judged[1].Scored = trajectory.Failed, false
		rows[2].Status, rows[2].TokenIDs, judged[2].Scored = trajectory.Failed, nil, false
		rows[5].Status = trajectory.Truncated
		return rows, judged
	})
	read := func(name string, set ...string) *epoch {
		t.Helper()
		r := toyRun(t, set...)
		rec, err := r.Recipe()
		if err != nil {
			t.Fatal(err)
		}
		images, _ := toyKit.pictures("")
		e := epochReader{rollouts: w.at("rollouts"), judged: w.at("judged"), settings: rec.GRPO, log: r.Log, images: OpenPictures(images),
			check: Checker{Traits: (&toy{vocab: 9}).Traits(), Budget: 40}}
		out, err := e.read()
		if err != nil {
			t.Fatal(name, err)
		}
		return out
	}
	if n := len(read("exclude").rows); n != 14 {
		t.Errorf("exclude: %d rows", n)
	}
	e := read("zero", "grpo.failed=zero")
	if len(e.rows) != 15 || e.rows[0].Advantage != e.rows[1].Advantage {
		t.Errorf("zero: %d rows, %g %g", len(e.rows), e.rows[0].Advantage, e.rows[1].Advantage)
	}
	near(t, "three zeros and a one", e.rows[0].Advantage, -.4999990, 1e-6)
	if n := len(read("drop_group", "grpo.failed=drop_group").rows); n != 12 {
		t.Errorf("drop_group: %d rows", n)
	}
	e = read("mask", "grpo.truncated=mask")
	if len(e.rows) != 13 || e.stats.TruncatedMasked != 1 {
		t.Errorf("mask: %d rows, %+v", len(e.rows), e.stats)
	}
	near(t, "the masked row is in the statistics", e.rows[2].Advantage, -.8660239, 1e-6)
	e = read("overlong", "grpo.overlong={max_tokens: 6, buffer_tokens: 2}")
	penalised := int64(0)
	for _, s := range e.rows {
		if math.Mod(s.Reward, 1) == -.5 || math.Mod(s.Reward, 1) == .5 { // five tokens of six, two of them in the buffer
			penalised++
		}
	}
	if penalised == 0 || e.stats.Overlong != penalised {
		t.Errorf("overlong: %d rows, %d with half a point less", e.stats.Overlong, penalised)
	}
}

// With the ratio's denominator at the policy itself every update is on-policy.
func TestCurrentLogprobs(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 6, nil)
	for _, l := range lines(t, mustGRPO(t, w, "out", "grpo.old_logprobs=current")) {
		if num(t, l, "ratio_min") != 1 || num(t, l, "ratio_max") != 1 || num(t, l, "ppo_kl") != 0 {
			t.Errorf("%v", l)
		}
	}
}
