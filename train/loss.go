package train

import (
	"math"

	"searchloop/internal/fail"
	"searchloop/internal/recipe"
)

// Policy losses, as recipes write them; r = exp(new-old), A the advantage.
const (
	LossPPO   = "ppo"   // PPO's clipped surrogate with two bounds (DAPO, arXiv 2503.14476) and dual clip (arXiv 1912.09729)
	LossGSPO  = "gspo"  // the same of one ratio a row, exp(mean(new-old)): arXiv 2507.18071
	LossCISPO = "cispo" // -sg(clip(r))·A·log-prob, whose gradient never vanishes: MiniMax-M1, arXiv 2506.13585
	LossDPPO  = "dppo"  // -r·A of tokens whose probability has not moved too far already, by its difference and not by its ratio (prime-rl)
	LossSAPO  = "sapo"  // -(4/τ)·sigmoid(τ(r-1))·A, a soft gate in place of a clip: arXiv 2511.20347
)

// Loss is the token loss of GRPO, the only one in the package:
//
//	L = w·policy(r, A) + KL·kl(new-ref) - Entropy·H
//
// It sees trained tokens only. Positions whose mask is false never reach it, so
// nothing that stands there, not even a NaN, can touch a value or a gradient.
type Loss struct {
	Kind                     string  // empty is LossPPO
	ClipLow, ClipHigh        float64 // r is clipped to [1-ClipLow, 1+ClipHigh]; DPPO: bounds of the difference of probabilities
	OldKL                    float64 // DPPO: coefficient of (new-old)², which holds the dropped tokens too
	DualClip                 float64 // PPO: for A<0 the surrogate is at most -A·DualClip; 0 = off
	TauPositive, TauNegative float64 // SAPO: τ for A>0 and for the others
	KL                       float64 // coefficient; 0 = no reference is needed
	Estimator                string  // k1, k2, k3, or k3+
	KLImportance             bool    // the estimator is weighed with r, which makes its gradient that of the KL (DeepSeek-V3.2)
	Entropy                  float64 // coefficient
}

// logClamp bounds new-old and ref-new before exp, valueClamp bounds k3,
// meanClamp the mean of new-old in GSPO: verl's numbers. Outside them the
// gradient is 0.
const (
	logClamp   = 20
	valueClamp = 10
	meanClamp  = 10
)

// NewLoss reads the loss of a recipe and refuses what has no meaning.
func NewLoss(g recipe.GRPO) (*Loss, error) {
	l := &Loss{Kind: g.Loss, ClipLow: g.ClipLow, ClipHigh: g.ClipHigh, DualClip: g.DualClip, TauPositive: g.TauPositive, TauNegative: g.TauNegative, OldKL: g.OldKL,
		KL: g.KL, Estimator: g.KLEstimator, KLImportance: g.KLImportance, Entropy: g.Entropy}
	if l.Kind == "" {
		l.Kind = LossPPO
	}
	if l.TauPositive == 0 {
		l.TauPositive = 1
	}
	if l.TauNegative == 0 {
		l.TauNegative = 1.05
	}
	bad := func(key, format string, args ...any) (*Loss, error) {
		return nil, fail.New(fail.Usage, "grpo."+key, "", format, args...)
	}
	switch l.Kind {
	case LossPPO:
	case LossGSPO, LossCISPO, LossSAPO, LossDPPO:
		if l.DualClip != 0 {
			return bad("dual_clip", "%g: %s has none, set it to 0", l.DualClip, l.Kind)
		}
	default:
		return bad("loss", "%q: want %s, %s, %s, %s or %s", l.Kind, LossPPO, LossGSPO, LossCISPO, LossSAPO, LossDPPO)
	}
	switch {
	case !(l.ClipLow > 0 && l.ClipLow <= 1):
		return bad("clip_low", "%g: want more than 0 and at most 1", l.ClipLow)
	case !(l.ClipHigh > 0) || math.IsInf(l.ClipHigh, 0):
		return bad("clip_high", "%g: want more than 0", l.ClipHigh)
	case l.DualClip != 0 && !(l.DualClip > 1):
		return bad("dual_clip", "%g: want 0 (off) or more than 1", l.DualClip)
	case !(l.TauPositive > 0) || math.IsInf(l.TauPositive, 0):
		return bad("tau_positive", "%g: want more than 0", l.TauPositive)
	case !(l.TauNegative > 0) || math.IsInf(l.TauNegative, 0):
		return bad("tau_negative", "%g: want more than 0", l.TauNegative)
	case !(l.OldKL >= 0) || math.IsInf(l.OldKL, 0) || l.OldKL != 0 && l.Kind != LossDPPO:
		return bad("old_kl", "%g: want 0 or more, and 0 unless the loss is %s", l.OldKL, LossDPPO)
	case !(l.KL >= 0) || math.IsInf(l.KL, 0):
		return bad("kl", "%g: want 0 or more", l.KL)
	case math.IsNaN(l.Entropy) || math.IsInf(l.Entropy, 0):
		return bad("entropy", "%g is not a number", l.Entropy)
	}
	switch l.Estimator {
	case "k1", "k2", "k3", "k3+":
	case "":
		if l.KL != 0 {
			return bad("kl_estimator", "is missing: want k1, k2, k3 or k3+")
		}
	default:
		return bad("kl_estimator", "%q: want k1, k2, k3 or k3+", l.Estimator)
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

// weighted is CISPO: the clipped ratio is a constant before the log-prob.
func (l *Loss) weighted(logp, r, a float64) (value, slope float64, c clip) {
	w := min(max(r, 1-l.ClipLow), 1+l.ClipHigh)
	if r > w {
		c = clippedHigh
	} else if r < w {
		c = clippedLow
	}
	return -w * a * logp, -w * a, c
}

// kept is DPPO: a token is dropped once its probability has gone beyond a bound in
// the direction that its advantage pushes it.
func (l *Loss) kept(logp, old, r, a float64) (value, slope float64, c clip) {
	moved := math.Exp(logp) - math.Exp(old)
	switch {
	case a > 0 && moved > l.ClipHigh:
		return 0, 0, clippedHigh
	case a <= 0 && moved < -l.ClipLow:
		return 0, 0, clippedLow
	}
	return -a * r, -a * r, unclipped
}

// gated is SAPO.
func (l *Loss) gated(r, a float64) (value, slope float64) {
	tau := l.TauNegative
	if a > 0 {
		tau = l.TauPositive
	}
	s := 1 / (1 + math.Exp(-tau*(r-1)))
	return -4 / tau * s * a, -4 * s * (1 - s) * r * a
}

// divergence estimates KL(new‖ref) from one token and differentiates it by the
// new log-prob (Schulman's k1, k2, k3; k3+ has the value of k3 and the gradient
// of k2, which in expectation is that of the KL). k3 is clamped as verl clamps
// it: the difference to ±20, the value to ±10.
func divergence(estimator string, logp, ref float64) (value, slope float64) {
	x := logp - ref
	switch estimator {
	case "k1":
		return x, 1
	case "k2":
		return x * x / 2, x
	case "k3+":
		value, _ = divergence("k3", logp, ref)
		return value, x
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

// Columns are the trained tokens of one row, parallel. Ref is read only with a
// KL coefficient; it may be nil otherwise.
type Columns struct {
	New, Old, Ref []float32 // log-probs
	Entropy       []float32
	Weight        []float32 // of the policy term, from a Correction; nil: 1
	Skip          []bool    // tokens that a Correction took out of the loss; nil: none
}

// skipped tells whether token i was taken out.
func (c *Columns) skipped(i int) bool { return c.Skip != nil && c.Skip[i] }

// meanDiff is the mean of new-old over the row's tokens in the loss.
func (c *Columns) meanDiff() float64 {
	sum, n := 0.0, 0
	for i := range c.New {
		if !c.skipped(i) {
			sum += float64(c.New[i]) - float64(c.Old[i])
			n++
		}
	}
	return sum / float64(max(n, 1))
}

// Row adds one row's terms to the tally and writes d(loss)/d(log-prob) and
// d(loss)/d(entropy) of each token, scaled by weight. The weight comes from
// Denominator and holds the whole division: whoever adds up rows, packs or
// ranks only sums.
func (l *Loss) Row(c Columns, advantage, weight float64, dlogp, dentropy []float32, t *Tally) {
	var mean float64
	if l.Kind == LossGSPO {
		mean = c.meanDiff()
	}
	for i := range c.New {
		if c.skipped(i) {
			dlogp[i], dentropy[i] = 0, 0
			continue
		}
		logp := float64(c.New[i])
		d := logp - float64(c.Old[i])
		inside := d >= -logClamp && d <= logClamp
		r := math.Exp(min(max(d, -logClamp), logClamp))
		own := r // the token's own ratio, whatever the loss makes of it
		var value, slope float64
		var which clip
		switch l.Kind {
		case LossGSPO:
			// Every token has the row's loss; a token moves the mean by 1/n of itself
			// and stands n times in it.
			r = math.Exp(min(mean, meanClamp))
			inside = mean <= meanClamp
			value, slope, which = l.surrogate(r, advantage)
		case LossCISPO:
			value, slope, which = l.weighted(logp, r, advantage)
			inside = true
		case LossSAPO:
			value, slope = l.gated(r, advantage)
		case LossDPPO:
			value, slope, which = l.kept(logp, float64(c.Old[i]), r, advantage)
		default:
			value, slope, which = l.surrogate(r, advantage)
		}
		if !inside {
			slope = 0
		}
		if c.Weight != nil {
			w := float64(c.Weight[i])
			value, slope = value*w, slope*w
		}
		value += l.OldKL * d * d
		slope += 2 * l.OldKL * d
		var kl float64
		if l.KL != 0 {
			var dkl float64
			kl, dkl = divergence(l.Estimator, logp, float64(c.Ref[i]))
			if l.KLImportance {
				dkl *= own
				if d >= -logClamp && d <= logClamp {
					dkl += own * kl
				}
				kl *= own
			}
			slope += l.KL * dkl
		}
		dlogp[i] = float32(weight * slope)
		dentropy[i] = float32(-weight * l.Entropy)
		t.add(weight, value, l.KL*kl, kl, l.Entropy, float64(c.Entropy[i]), d, r, which)
	}
}
