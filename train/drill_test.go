package train

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"searchloop/internal/recipe"
)

// drill is a policy and rows in memory.
type drill struct {
	policy Policy
	rows   []*Sequence
	images *Pictures
}

func newDrill(rows int) *drill {
	d := &drill{policy: newToy(9, 4, 1)}
	rng := rand.New(rand.NewPCG(8, 8))
	for i := range rows {
		s := &Sequence{ID: fmt.Sprint(i), Tokens: []int32{4}, Temperature: 1, Advantage: rng.NormFloat64(), Rollout: fmt.Sprint(i / 3)}
		n := 2 + rng.IntN(6)
		mask := []bool{false}
		for k := range n {
			s.Tokens = append(s.Tokens, int32(4+rng.IntN(5)))
			mask = append(mask, k != 1)
		}
		s.Spans, s.Trained = spansOf(mask)
		for range s.Trained {
			x := float32(-1 - rng.Float64())
			s.Old, s.Sampled, s.Ref = append(s.Old, x), append(s.Sampled, x+.1), append(s.Ref, x-.2)
		}
		d.rows = append(d.rows, s)
	}
	return d
}

// gradient of one optimizer batch, packed as given.
func (d *drill) gradient(t *testing.T, goal objective, packs ...[]int) (float64, []float32) {
	t.Helper()
	r := &run{policy: d.policy, images: d.images, goal: goal}
	var batch []*Sequence
	for _, p := range packs {
		for _, i := range p {
			batch = append(batch, d.rows[i])
		}
	}
	d.policy.ZeroGrad()
	goal.begin(batch, nil)
	for _, p := range packs {
		if err := r.backward(batch[:len(p)]); err != nil {
			t.Fatal(err)
		}
		batch = batch[len(p):]
	}
	line := new(Line)
	if err := goal.finish(1, line); err != nil {
		t.Fatal(err)
	}
	var g []float32
	for _, p := range d.policy.Params() {
		g = append(g, p.G...)
	}
	return float64(line.Loss), g
}

func (d *drill) goal(t *testing.T, g recipe.GRPO) *improvement {
	t.Helper()
	if g.Aggregation == "" {
		g.Aggregation = TokenMean
	}
	l := mustLoss(t, g)
	divisor, err := NewDenominator(g.Aggregation, g.NormTokens)
	if err != nil {
		t.Fatal(err)
	}
	goal := &improvement{loss: &l, divisor: divisor, correction: mustCorrect(t, g.Correction)}
	for _, s := range d.rows {
		s.Weight, s.Skip, s.Kept = nil, nil, s.Trained
		if goal.correction != nil {
			s.Weight, s.Skip, s.Kept, s.Outside = goal.correction.Row(s.Old, s.Sampled)
		}
	}
	return goal
}

// everyMode is a recipe for each loss, with what can go wrong beside it.
var everyMode = map[string]recipe.GRPO{
	"ppo":         {DualClip: 3},
	"ppo entropy": {DualClip: 3, Entropy: .01, KL: .05, KLEstimator: "k2"},
	"gspo":        {Loss: LossGSPO, ClipLow: .05, ClipHigh: .05, Aggregation: SeqMeanTokenMean},
	"luspo":       {Loss: LossGSPO, Aggregation: SeqMeanTokenSum},
	"cispo":       {Loss: LossCISPO},
	"sapo":        {Loss: LossSAPO, Aggregation: SeqMeanTokenMean},
	"dppo":        {Loss: LossDPPO, OldKL: 1e-3},
	"rollouts":    {Aggregation: RolloutMeanTokenMean},
	"dr_grpo":     {Aggregation: SeqMeanTokenSumNorm, NormTokens: 8},
	"tis":         {Correction: recipe.Correction{Weights: "token", High: 1.05, Normalize: true}},
	"icepop":      {Correction: recipe.Correction{Weights: "token", Outside: "zero", Low: .5, High: 1.5}},
	"sequence":    {Correction: recipe.Correction{Weights: "sequence", High: 2}},
	"geometric":   {Correction: recipe.Correction{Weights: "geometric", High: 2}},
	"rejection":   {Correction: recipe.Correction{Reject: []recipe.Rejection{{By: "seq-mean-k1", Low: .5, High: 2}}}},
	"kl weighed":  {KL: .05, KLEstimator: "k3", KLImportance: true},
	"kl k3+":      {KL: .05, KLEstimator: "k3+"},
}

func sameGradient(t *testing.T, what string, a, b []float32, tol float64) {
	t.Helper()
	var diff, norm float64
	for i := range a {
		diff += float64(a[i]-b[i]) * float64(a[i]-b[i])
		norm += float64(a[i]) * float64(a[i])
	}
	if !(math.Sqrt(diff) <= tol*math.Sqrt(norm)) {
		t.Errorf("%s: gradients differ by %g of %g", what, math.Sqrt(diff), math.Sqrt(norm))
	}
}

// plainLoss is the objective with nothing shared: one row after the other.
func plainLoss(t *testing.T, policy Policy, rows []*Sequence, g recipe.GRPO) float64 {
	t.Helper()
	if g.ClipLow == 0 {
		g.ClipLow, g.ClipHigh = .2, .28
	}
	clip := func(r float64) float64 { return math.Min(math.Max(r, 1-g.ClipLow), 1+g.ClipHigh) }
	var total, tokens, count, weights, weighed float64
	rollouts := map[string]float64{}
	for _, s := range rows {
		for i := range s.Old {
			if s.Skip == nil || !s.Skip[i] {
				rollouts[s.Rollout]++
			}
			if s.Weight != nil {
				weights += float64(s.Weight[i])
				weighed++
			}
		}
	}
	for _, s := range rows {
		var p packed
		if err := p.assemble(policy, nil, []*Sequence{s}); err != nil {
			t.Fatal(err)
		}
		pass, err := policy.Forward(&p.batch)
		if err != nil {
			t.Fatal(err)
		}
		logp, entropy := pass.Score(p.rows, p.targets, 1)
		mean, n := 0.0, 0.0
		for i := range logp {
			if s.Skip == nil || !s.Skip[i] {
				mean, n = mean+float64(logp[i]-s.Old[i]), n+1
			}
		}
		if n == 0 {
			continue
		}
		count, tokens = count+1, tokens+n
		row := 0.0
		for i := range logp {
			if s.Skip != nil && s.Skip[i] {
				continue
			}
			r, a := math.Exp(float64(logp[i])-float64(s.Old[i])), s.Advantage
			l := -math.Min(r*a, clip(r)*a)
			switch g.Loss {
			case LossGSPO:
				q := math.Exp(mean / n)
				l = -math.Min(q*a, clip(q)*a)
			case LossCISPO:
				l = -clip(r) * a * float64(logp[i])
			case LossDPPO:
				moved := math.Exp(float64(logp[i])) - math.Exp(float64(s.Old[i]))
				l = -r * a
				if a > 0 && moved > g.ClipHigh || a <= 0 && moved < -g.ClipLow {
					l = 0
				}
				d := float64(logp[i]) - float64(s.Old[i])
				l += g.OldKL * d * d
			case LossSAPO:
				tau := 1.05
				if a > 0 {
					tau = 1
				}
				l = -a * 4 / tau / (1 + math.Exp(-tau*(r-1)))
			}
			if g.DualClip > 0 && a < 0 {
				l = math.Min(l, -a*g.DualClip)
			}
			if s.Weight != nil {
				w := float64(s.Weight[i])
				if g.Correction.Normalize {
					w /= weights / weighed
				}
				l *= w
			}
			x := float64(logp[i]) - float64(s.Ref[i])
			k := map[string]float64{"": 0, "k1": x, "k2": x * x / 2, "k3": math.Exp(-x) + x - 1, "k3+": math.Exp(-x) + x - 1}[g.KLEstimator]
			if g.KLImportance {
				k *= r
			}
			row += l + g.KL*k - g.Entropy*float64(entropy[i])
		}
		if g.Aggregation == SeqMeanTokenMean {
			row /= n
		}
		if g.Aggregation == RolloutMeanTokenMean {
			row /= rollouts[s.Rollout]
		}
		total += row
	}
	switch g.Aggregation {
	case RolloutMeanTokenMean:
		return total / float64(len(rollouts))
	case SeqMeanTokenMean, SeqMeanTokenSum:
		return total / count
	case SeqMeanTokenSumNorm:
		return total / count / float64(g.NormTokens)
	}
	return total / tokens
}

// Two tokens can be said, one is rewarded: its probability passes .95 with every
// loss, within 40 updates of 16 samples.
func TestBanditOfEveryLoss(t *testing.T) {
	for name, g := range everyMode {
		if g.ClipHigh != 0 {
			g.ClipLow, g.ClipHigh = .2, .28
		}
		policy := newToy(6, 4, 1)
		rng := rand.New(rand.NewPCG(4, 4))
		opt, err := NewAdamW(recipe.Optimizer{Beta1: .9, Beta2: .99, Eps: 1e-8, ClipNorm: 1}, policy.Params())
		if err != nil {
			t.Fatal(err)
		}
		pair := func(word int32) *Sequence {
			return &Sequence{Tokens: []int32{4, word}, Spans: []Span{{1, 2}}, Trained: 1, Temperature: 1}
		}
		say := func() float64 { // of token 4, among 4 and 5
			x, y := exp(scoreOf(t, policy, pair(4))[0]), exp(scoreOf(t, policy, pair(5))[0])
			return x / (x + y)
		}
		for range 40 {
			d := &drill{policy: policy}
			var outcomes []Outcome
			p := say()
			var members []int
			for i := range 16 {
				s, reward := pair(5), 0.0
				if rng.Float64() < p {
					s, reward = pair(4), 1
				}
				s.Old = scoreOf(t, policy, s)
				s.Sampled, s.Ref = []float32{s.Old[0] + .01}, s.Old
				d.rows, members = append(d.rows, s), append(members, i)
				outcomes = append(outcomes, Outcome{Group: "q", Reward: reward})
			}
			a, _ := Estimate(outcomes, AdvantageGRPO, 1e-6)
			for i, s := range d.rows {
				s.Advantage = a.Values[i]
			}
			goal := d.goal(t, g)
			for range 2 {
				d.gradient(t, goal, members)
				opt.Step(.1)
			}
		}
		if p := say(); p < .95 {
			t.Errorf("%s: probability %.3f", name, p)
		}
	}
}
