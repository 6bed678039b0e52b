package train

import (
	"math"
	"math/rand/v2"
	"testing"

	"searchloop/internal/recipe"
)

var goldenLoss = Loss{ClipLow: .2, ClipHigh: .28, DualClip: 3}

func TestSurrogate(t *testing.T) {
	for _, c := range []struct {
		r, a, value, slope float64
		which              clip
	}{
		{1.1, 1, -1.1, -1.1, unclipped},
		{1.28, 1, -1.28, -1.28, unclipped}, // on the bound the gradient still flows
		{1.5, 1, -1.28, 0, clippedHigh},
		{.5, 1, -.5, -.5, unclipped},
		{1.5, -1, 1.5, 1.5, unclipped},
		{.8, -1, .8, .8, unclipped},
		{.5, -1, .8, 0, clippedLow},
		{2.9, -1, 2.9, 2.9, unclipped},
		{4, -1, 3, 0, clippedDual},
		{4, 1, -1.28, 0, clippedHigh},
		{7, 0, 0, 0, unclipped},
	} {
		v, s, w := goldenLoss.surrogate(c.r, c.a)
		if math.Abs(v-c.value) > 1e-12 || math.Abs(s-c.slope) > 1e-12 || w != c.which {
			t.Errorf("r %g, A %g: %g, %g, %d; want %g, %g, %d", c.r, c.a, v, s, w, c.value, c.slope, c.which)
		}
	}
}

// one runs the kernel on one token with weight 1.
func one(l Loss, c Columns, a float64) (loss, dlogp float64) {
	var d, h [1]float32
	var t Tally
	if c.Entropy == nil {
		c.Entropy = []float32{0}
	}
	l.Row(c, a, 1, d[:], h[:], &t)
	return t.Loss, float64(d[0])
}

func f(x ...float32) []float32 { return x }

func TestRatioIsClamped(t *testing.T) {
	c := Columns{New: f(-1), Old: f(-26)}
	v, d := one(goldenLoss, c, 1)
	near(t, "A=1", v, -1.28, 1e-12)
	near(t, "A=1 slope", d, 0, 0)
	v, d = one(goldenLoss, c, -1)
	near(t, "A=-1", v, 3, 1e-12)
	near(t, "A=-1 slope", d, 0, 0)
	open := goldenLoss
	open.DualClip = 0
	v, d = one(open, c, -1)
	near(t, "without dual clip", v, 4.85165e8, 1e3)
	near(t, "without dual clip, slope", d, 0, 0)
	v, d = one(goldenLoss, c, 0)
	near(t, "A=0", v, 0, 0)
	near(t, "A=0 slope", d, 0, 0)
}

func TestDivergence(t *testing.T) {
	for _, c := range []struct {
		logp, ref, k1, k2, k3, slope float64
	}{
		{-1, -1.5, .5, .125, .1065307, .3934693},
		{-1.5, -1, -.5, .125, .1487213, -.6487213},
		{-1, -1, 0, 0, 0, 0},
		{-1, -.9, -.1, .005, .005171, 1 - math.Exp(.1)},
		{-1, -1.1, .1, .005, .004837, 1 - math.Exp(-.1)},
		{-5, -1, -4, 8, 10, 0}, // 49.6 before the clamp of values
	} {
		v, s := divergence("k1", c.logp, c.ref)
		near(t, "k1", v, c.k1, 1e-12)
		near(t, "k1 slope", s, 1, 0)
		v, s = divergence("k2", c.logp, c.ref)
		near(t, "k2", v, c.k2, 1e-12)
		near(t, "k2 slope", s, c.logp-c.ref, 1e-12)
		v, s = divergence("k3", c.logp, c.ref)
		near(t, "k3", v, c.k3, 5e-7)
		near(t, "k3 slope", s, c.slope, 1e-7)
	}
	v, s := divergence("k3", 0, -30) // x=30: e^-20+20-1, clamped on both sides
	near(t, "far k3", v, 10, 0)
	near(t, "far k3 slope", s, 0, 0)
}

// The two policies of a recomputed and a bypassed row are not interchangeable.
func TestDecoupledAndBypass(t *testing.T) {
	tis := func(old, sampled float32) []float32 {
		w, _, _, _ := mustCorrect(t, recipe.Correction{Weights: "token", High: 2}).Row(f(old), f(sampled))
		return w
	}
	v, d := one(goldenLoss, Columns{New: f(-.9), Old: f(-1), Weight: tis(-1, -1.2)}, 1)
	near(t, "decoupled", v, -1.3498588, 2e-7)
	near(t, "decoupled slope", d, -1.3498588, 2e-7)
	v, d = one(goldenLoss, Columns{New: f(-.9), Old: f(-1.2)}, 1)
	near(t, "bypass", v, -1.28, 1e-12)
	near(t, "bypass slope", d, 0, 0)
	for i, w := range []float64{1.1051709, 2, .6065307, 2} {
		d := f(.1, .9, -.5, 1.5)[i]
		v, _ := one(goldenLoss, Columns{New: f(0), Old: f(0), Weight: tis(0, -d)}, 1)
		near(t, "truncated weight", -v, w, 1e-6)
	}
}

func TestMismatchSet(t *testing.T) {
	var m Mismatch
	m.Add(f(.1, .9, -.5, 1.5), f(0, 0, 0, 0))
	near(t, "abs", m.AbsMean, .75, 1e-6)
	near(t, "max", m.AbsMax, 1.5, 1e-6)
	near(t, "k1", m.K1, -.5, 1e-6)
	near(t, "k3", m.K3, .6632484, 1e-6)
	near(t, "chi2", m.Chi2, 5.9311166, 2e-6)
	near(t, "ess", m.ESS, .8505208, 1e-6)
	var same Mismatch
	same.Add(f(-1, -2), f(-1, -2))
	if same.AbsMean != 0 || same.ESS != 1 || same.Tokens != 2 {
		t.Errorf("equal log-probs: %+v", same)
	}
}

// The kernel's derivatives are those of its value, for every estimator, on
// either side of every bound.
func TestKernelSlopes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, kl := range []string{"k1", "k2", "k3"} {
		l := Loss{ClipLow: .2, ClipHigh: .28, DualClip: 3, KL: .3, Estimator: kl, Entropy: .07}
		for range 2000 {
			old, ref, lq := -2*rng.Float64(), -2*rng.Float64(), -2*rng.Float64()
			lp, a, h, w := old+rng.NormFloat64(), rng.NormFloat64(), rng.Float64(), rng.Float64()
			value := func(lp, h float64) float64 {
				s, _, _ := l.surrogate(math.Exp(lp-float64(float32(old))), a)
				k, _ := divergence(kl, lp, float64(float32(ref)))
				return w * (float64(float32(lq+3))*s + l.KL*k - l.Entropy*h)
			}
			const e = 1e-5
			lp = float64(float32(lp))
			c := Columns{f(float32(lp)), f(float32(old)), f(float32(ref)), f(float32(h)), f(float32(lq + 3)), nil}
			var d, dh [1]float32
			var tally Tally
			l.Row(c, a, w, d[:], dh[:], &tally)
			near(t, "loss", tally.Loss, value(lp, float64(float32(h))), 1e-9)
			want := (value(lp+e, h) - value(lp-e, h)) / (2 * e)
			if r := math.Exp(lp - float64(float32(old))); math.Abs(r-.8) < .001 || math.Abs(r-1.28) < .001 || math.Abs(r-3) < .001 {
				continue // a corner
			}
			near(t, kl, float64(d[0]), want, 1e-5+1e-4*math.Abs(want))
			near(t, "entropy", float64(dh[0]), -w*.07, 1e-7)
		}
	}
}

func TestTallyCountsBranches(t *testing.T) {
	l := goldenLoss
	ln := func(r float64) float32 { return float32(math.Log(r)) }
	var tally Tally
	d, h := make([]float32, 4), make([]float32, 4)
	l.Row(Columns{New: f(ln(1.5), 0, ln(.5), ln(4)), Old: make([]float32, 4), Entropy: f(1, 2, 3, 4)}, -1, .25, d, h, &tally)
	if tally.Low != 1 || tally.Dual != 1 || tally.High != 0 || tally.Tokens != 4 {
		t.Errorf("%+v", tally)
	}
	near(t, "ratio mean", tally.per(tally.Ratio), (1.5+1+.5+4)/4, 1e-6)
	near(t, "ratio max", tally.RatioMax, 4, 1e-6)
	near(t, "ratio min", tally.RatioMin, .5, 1e-6)
	near(t, "entropy", tally.per(tally.Entropy), 2.5, 1e-6)
	near(t, "loss", tally.Loss, (1.5+1+.8+3)/4, 1e-6)
	tally = Tally{}
	l.Row(Columns{New: f(ln(1.5), 0), Old: make([]float32, 2), Entropy: f(0, 0)}, 1, 1, d, h, &tally)
	if tally.High != 1 {
		t.Errorf("%+v", tally)
	}
}

func TestNewLossRefuses(t *testing.T) {
	good := recipe.GRPO{ClipLow: .2, ClipHigh: .28, DualClip: 3, KL: .001, KLEstimator: "k3"}
	if _, err := NewLoss(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*recipe.GRPO){
		"clip_low 0":   func(g *recipe.GRPO) { g.ClipLow = 0 },
		"clip_high":    func(g *recipe.GRPO) { g.ClipHigh = math.NaN() },
		"dual_clip 1":  func(g *recipe.GRPO) { g.DualClip = 1 },
		"kl negative":  func(g *recipe.GRPO) { g.KL = -1 },
		"estimator":    func(g *recipe.GRPO) { g.KLEstimator = "k4" },
		"no estimator": func(g *recipe.GRPO) { g.KLEstimator = "" },
		"entropy":      func(g *recipe.GRPO) { g.Entropy = math.Inf(1) },
	} {
		g := good
		change(&g)
		if _, err := NewLoss(g); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func mustCorrect(t *testing.T, o recipe.Correction) *Correction {
	t.Helper()
	c, err := NewCorrection(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
