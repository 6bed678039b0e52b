package train

import (
	"math"

	"searchloop/internal/fail"
	"searchloop/internal/recipe"
)

// Loss is the token loss of GRPO, the only one in the package: PPO's clipped
// surrogate with two bounds (DAPO, arXiv 2503.14476) and dual clip
// (arXiv 1912.09729), plus KL to a reference, minus entropy:
//
//	L = w·surrogate(r, A) + KL·kl(new-ref) - Entropy·H,   r = exp(new-old)
//
// It sees trained tokens only. Positions whose mask is false never reach it, so
// nothing that stands there, not even a NaN, can touch a value or a gradient.
type Loss struct {
	ClipLow, ClipHigh float64 // r is clipped to [1-ClipLow, 1+ClipHigh]
	DualClip          float64 // for A<0 the surrogate is at most -A·DualClip; 0 = off
	KL                float64 // coefficient; 0 = no reference is needed
	Estimator         string  // k1, k2 or k3
	Entropy           float64 // coefficient
	TIS               float64 // cap of w = exp(old-sampled), truncated importance sampling; 0 = w is 1
}

// logClamp bounds new-old and ref-new before exp, valueClamp bounds k3: verl's
// numbers. Outside them the gradient is 0.
const (
	logClamp   = 20
	valueClamp = 10
)

// NewLoss reads the loss of a recipe and refuses what has no meaning.
func NewLoss(g recipe.GRPO) (*Loss, error) {
	l := &Loss{ClipLow: g.ClipLow, ClipHigh: g.ClipHigh, DualClip: g.DualClip, KL: g.KL, Estimator: g.KLEstimator, Entropy: g.Entropy}
	bad := func(key, format string, args ...any) (*Loss, error) {
		return nil, fail.New(fail.Usage, "grpo."+key, "", format, args...)
	}
	switch {
	case !(l.ClipLow > 0 && l.ClipLow <= 1):
		return bad("clip_low", "%g: want more than 0 and at most 1", l.ClipLow)
	case !(l.ClipHigh > 0) || math.IsInf(l.ClipHigh, 0):
		return bad("clip_high", "%g: want more than 0", l.ClipHigh)
	case l.DualClip != 0 && !(l.DualClip > 1):
		return bad("dual_clip", "%g: want 0 (off) or more than 1", l.DualClip)
	case !(l.KL >= 0) || math.IsInf(l.KL, 0):
		return bad("kl", "%g: want 0 or more", l.KL)
	case math.IsNaN(l.Entropy) || math.IsInf(l.Entropy, 0):
		return bad("entropy", "%g is not a number", l.Entropy)
	}
	switch l.Estimator {
	case "k1", "k2", "k3":
	case "":
		if l.KL != 0 {
			return bad("kl_estimator", "is missing: want k1, k2 or k3")
		}
	default:
		return bad("kl_estimator", "%q: want k1, k2 or k3", l.Estimator)
	}
	return l, nil
}

// clip says which branch of the surrogate a token took.
type clip uint8

const (
	unclipped clip = iota
	clippedLow
	clippedHigh
	clippedDual
)

// surrogate returns the clipped loss of one token at ratio r and its derivative
// by the new log-prob. On a bound the unclipped branch is taken.
func (l *Loss) surrogate(r, a float64) (value, slope float64, c clip) {
	value, slope = -a*r, -a*r
	if b := -a * min(max(r, 1-l.ClipLow), 1+l.ClipHigh); b > value {
		value, slope, c = b, 0, clippedHigh
		if a < 0 {
			c = clippedLow
		}
	}
	if bound := -a * l.DualClip; l.DualClip > 0 && a < 0 && value > bound {
		value, slope, c = bound, 0, clippedDual
	}
	return value, slope, c
}

// divergence estimates KL(new‖ref) from one token and differentiates it by the
// new log-prob (Schulman's k1, k2, k3). k3 is clamped as verl clamps it: the
// difference to ±20, the value to ±10.
func divergence(estimator string, logp, ref float64) (value, slope float64) {
	x := logp - ref
	switch estimator {
	case "k1":
		return x, 1
	case "k2":
		return x * x / 2, x
	}
	y := min(max(-x, -logClamp), logClamp)
	e := math.Exp(y)
	value = e - y - 1
	if value > valueClamp {
		return valueClamp, 0
	}
	if y != -x {
		return value, 0
	}
	return value, 1 - e
}

// Columns are the trained tokens of one row, parallel. Sampled is read only
// with TIS, Ref only with a KL coefficient; they may be nil otherwise.
type Columns struct {
	New, Old, Sampled, Ref []float32 // log-probs
	Entropy                []float32
}

// Row adds one row's terms to the tally and writes d(loss)/d(log-prob) and
// d(loss)/d(entropy) of each token, scaled by weight. The weight comes from
// Denominator and holds the whole division: whoever adds up rows, packs or
// ranks only sums.
func (l *Loss) Row(c Columns, advantage, weight float64, dlogp, dentropy []float32, t *Tally) {
	for i := range c.New {
		logp := float64(c.New[i])
		d := logp - float64(c.Old[i])
		inside := d >= -logClamp && d <= logClamp
		r := math.Exp(min(max(d, -logClamp), logClamp))
		value, slope, which := l.surrogate(r, advantage)
		if !inside {
			slope = 0
		}
		if l.TIS > 0 {
			w := min(math.Exp(min(float64(c.Old[i])-float64(c.Sampled[i]), logClamp)), l.TIS)
			value, slope = value*w, slope*w
		}
		var kl float64
		if l.KL != 0 {
			var dkl float64
			kl, dkl = divergence(l.Estimator, logp, float64(c.Ref[i]))
			slope += l.KL * dkl
		}
		dlogp[i] = float32(weight * slope)
		dentropy[i] = float32(-weight * l.Entropy)
		t.add(weight, value, l.KL*kl, kl, l.Entropy, float64(c.Entropy[i]), d, r, which)
	}
}
