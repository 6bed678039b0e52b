package train

import (
	"math"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/recipe"
)

// Correction makes up for a sampler whose log-probs are not those that the
// trainer finds for the same policy (other kernels, other precision, an older
// checkpoint): importance weights for the policy term, and rejection of tokens
// or rows. With d = old-sampled of a token, old being recomputed here before the
// first update,
//
//	token      w = exp(d)            truncated importance sampling; with Zero, IcePop
//	sequence   w = exp(Σ d)          of the row; with Zero, sequence masking
//	geometric  w = exp(mean d)
//
// are brought into [Low, High], by clamping or, with Zero, by a weight of 0 (the
// tokens stay in the denominator). Rejected tokens leave the loss; unless
// RejectInDenominator is set they leave the denominator too. Weights and
// rejections are fixed before the first update.
type Correction struct {
	weights             string
	low, high           float64
	zero                bool
	Normalize           bool // weights are divided by their mean over the optimizer batch
	reject              []rejection
	RejectInDenominator bool
}

type rejection struct {
	level     string // token, seq-sum, seq-mean, seq-max
	estimator byte   // 1, 2, 3
	low, high float64
}

// NewCorrection returns nil for a recipe without one.
func NewCorrection(o recipe.Correction) (*Correction, error) {
	bad := func(key, format string, args ...any) (*Correction, error) {
		return nil, fail.New(fail.Usage, "grpo.correction."+key, "", format, args...)
	}
	c := &Correction{weights: o.Weights, low: o.Low, high: o.High, Normalize: o.Normalize, RejectInDenominator: o.RejectInDenominator}
	switch o.Weights {
	case "", "none":
		c.weights = ""
		if o.Low != 0 || o.High != 0 || o.Normalize || o.Outside != "" {
			return bad("weights", "is empty, but low, high, outside or normalize is set")
		}
		if len(o.Reject) == 0 {
			if o.RejectInDenominator {
				return bad("reject", "is empty, but reject_in_denominator is set")
			}
			return nil, nil
		}
	case "token", "sequence", "geometric":
		if !(o.High > 0) || math.IsInf(o.High, 0) || !(o.Low >= 0 && o.Low < o.High) {
			return bad("high", "low %g and high %g: want 0 ≤ low < high", o.Low, o.High)
		}
	default:
		return bad("weights", "%q: want token, sequence or geometric", o.Weights)
	}
	switch o.Outside {
	case "", "clamp":
	case "zero":
		c.zero = true
	default:
		return bad("outside", "%q: want clamp or zero", o.Outside)
	}
	for _, r := range o.Reject {
		at := strings.LastIndexByte(r.By, '-')
		if at < 0 || len(r.By) != at+3 || r.By[at+1] != 'k' || r.By[at+2] < '1' || r.By[at+2] > '3' {
			return bad("reject", "%q: want token, seq-sum, seq-mean or seq-max, with -k1, -k2 or -k3", r.By)
		}
		p := rejection{level: r.By[:at], estimator: r.By[at+2] - '0', low: r.Low, high: r.High}
		switch {
		case p.level != "token" && p.level != "seq-sum" && p.level != "seq-mean" && p.level != "seq-max":
			return bad("reject", "%q: want token, seq-sum, seq-mean or seq-max before -k%d", r.By, p.estimator)
		case p.level == "seq-max" && p.estimator == 1:
			return bad("reject", "%q: the greatest of signed values bounds nothing, take k2 or k3", r.By)
		case !(r.High > 0) || math.IsInf(r.High, 0):
			return bad("reject", "%s: high is %g, want more than 0", r.By, r.High)
		case p.estimator == 1 && !(r.Low > 0 && r.Low < r.High):
			return bad("reject", "%s: low is %g, want between 0 and high: both bound the ratio sampled/old", r.By, r.Low)
		case p.estimator != 1 && r.Low != 0:
			return bad("reject", "%s: low is %g, but only k1 has a lower bound", r.By, r.Low)
		}
		c.reject = append(c.reject, p)
	}
	return c, nil
}

// Row gives the weights of a row's tokens (nil: all 1), which tokens are
// rejected (nil: none), and how many are not. It is one of each row's own.
func (c *Correction) Row(old, sampled []float32) (weight []float32, skip []bool, kept int, clipped int) {
	d := make([]float64, len(old))
	sum := 0.0
	for i := range d {
		d[i] = float64(old[i]) - float64(sampled[i])
		sum += d[i]
	}
	if c.weights != "" {
		weight = make([]float32, len(d))
		for i := range d {
			x := d[i]
			switch c.weights {
			case "sequence":
				x = sum
			case "geometric":
				x = sum / float64(len(d))
			}
			w := math.Exp(clampLog(x))
			if w < c.low || w > c.high {
				clipped++
				if w = min(max(w, c.low), c.high); c.zero {
					w = 0
				}
			}
			weight[i] = float32(w)
		}
	}
	kept = len(d)
	for _, r := range c.reject {
		r.apply(d, &skip)
	}
	for _, s := range skip {
		if s {
			kept--
		}
	}
	return weight, skip, kept, clipped
}

func clampLog(x float64) float64 { return min(max(x, -logClamp), logClamp) }

// apply marks what the rule rejects.
func (r *rejection) apply(d []float64, skip *[]bool) {
	mark := func(i int) {
		if *skip == nil {
			*skip = make([]bool, len(d))
		}
		(*skip)[i] = true
	}
	total, most := 0.0, 0.0
	for i, x := range d {
		v := r.divergence(clampLog(x))
		if r.level == "token" && r.outside(v) {
			mark(i)
		}
		total += v
		most = max(most, v)
	}
	switch r.level {
	case "token":
		return
	case "seq-mean":
		total /= float64(len(d))
	case "seq-max":
		total = most
	}
	if r.outside(total) {
		for i := range d {
			mark(i)
		}
	}
}

// divergence of sampler and trainer at one token.
func (r *rejection) divergence(d float64) float64 {
	switch r.estimator {
	case 1:
		return -d
	case 2:
		return d * d / 2
	}
	return math.Exp(d) - 1 - d
}

func (r *rejection) outside(v float64) bool {
	if r.estimator == 1 {
		return v < math.Log(r.low) || v > math.Log(r.high)
	}
	return v > r.high
}

// Corrected is what a Correction did to an optimizer batch.
type Corrected struct {
	WeightMean   Number `json:"weight_mean"` // over tokens, as the next two; before normalizing
	WeightMin    Number `json:"weight_min"`
	WeightMax    Number `json:"weight_max"`
	WeightOut    Number `json:"weight_outside"`  // share of tokens whose weight lay outside the bounds
	RejectTokens Number `json:"rejected_tokens"` // share
	RejectRows   Number `json:"rejected_rows"`   // share of rows without a token left
}

// normalizer is what weights are divided by: their mean over tokens, or over
// rows when a row has one weight.
func (c *Correction) normalizer(rows []*Sequence) float64 {
	var sum, n float64
	for _, s := range rows {
		if c.weights == "token" {
			for _, w := range s.Weight {
				sum += float64(w)
			}
			n += float64(len(s.Weight))
		} else if len(s.Weight) > 0 {
			sum += float64(s.Weight[0])
			n++
		}
	}
	if n == 0 || sum/n <= 1e-8 {
		return 1
	}
	return sum / n
}

// describe counts over a batch.
func (c *Correction) describe(rows []*Sequence) *Corrected {
	var w moments
	var tokens, out, rejected, gone float64
	for _, s := range rows {
		for _, x := range s.Weight {
			w.add(float64(x))
		}
		tokens += float64(s.Trained)
		out += float64(s.Outside)
		rejected += float64(s.Trained - s.Kept)
		if s.Kept == 0 {
			gone++
		}
	}
	if w.n == 0 {
		w.add(1)
	}
	tokens = max(tokens, 1)
	return &Corrected{WeightMean: Number(w.mean()), WeightMin: Number(w.min), WeightMax: Number(w.max), WeightOut: Number(out / tokens),
		RejectTokens: Number(rejected / tokens), RejectRows: Number(gone / float64(max(len(rows), 1)))}
}
