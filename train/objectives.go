package train

import (
	"math"

	"searchloop/internal/fail"
	"searchloop/internal/ranks"
)

// imitation is SFT: the mean of -log-prob over all trained tokens of the batch.
type imitation struct {
	tokens        int64
	loss, entropy float64
}

func (g *imitation) begin(rows []*Sequence, _ []int) {
	*g = imitation{}
	for _, s := range rows {
		g.tokens += int64(s.Trained)
	}
}

func (g *imitation) slopes(_ []*Sequence, logp, entropy, dlogp, dentropy []float32) {
	w := 1 / float64(g.tokens)
	for i := range logp {
		g.loss -= w * float64(logp[i])
		g.entropy += w * float64(entropy[i])
		dlogp[i], dentropy[i] = float32(-w), 0
	}
}

func (g *imitation) merge(group ranks.Group) {
	x := []float64{g.loss, g.entropy}
	ranks.Sum(group, x)
	g.loss, g.entropy = x[0], x[1]
}

func (g *imitation) finish(_ int64, line *Line) error {
	line.Loss, line.Entropy = Number(g.loss), Number(g.entropy)
	return nil
}

// improvement is GRPO's objective.
type improvement struct {
	loss        *Loss
	divisor     Denominator // mode and constant, without counts
	correction  *Correction // nil: none
	maxMismatch float64     // 0 = no bound
	// measure compares with the sampled log-probs during the first step, for rows
	// whose old log-probs are the sampled ones; otherwise mismatch is given.
	measure  bool
	mismatch Mismatch

	over    Denominator
	units   map[string]int // trained tokens by rollout, when rollouts are averaged
	tally   Tally
	rows    []*Sequence
	scale   float64 // of the correction's weights
	weights []float32
}

func (g *improvement) begin(rows []*Sequence, idle []int) {
	g.over, g.tally, g.rows, g.scale = g.divisor, Tally{}, rows, 1
	g.units = map[string]int{}
	for _, s := range rows {
		if g.divisor.Mode == RolloutMeanTokenMean {
			g.units[s.Rollout] += g.counted(s)
		} else {
			g.over.Count(g.counted(s))
		}
	}
	for _, n := range g.units {
		g.over.Count(n) // sums of integers: the map's order does not show
	}
	for _, n := range idle {
		g.over.Count(n)
	}
	if g.correction != nil && g.correction.Normalize {
		g.scale = 1 / g.correction.normalizer(rows)
	}
}

// counted is how many tokens of a row the divisor counts.
func (g *improvement) counted(s *Sequence) int {
	if g.correction != nil && !g.correction.RejectInDenominator {
		return s.Kept
	}
	return s.Trained
}

// share is what each token of a row weighs in the loss.
func (g *improvement) share(s *Sequence) float64 {
	if g.divisor.Mode == RolloutMeanTokenMean {
		return g.over.Weight(g.units[s.Rollout])
	}
	return g.over.Weight(g.counted(s))
}

// weight of the row's tokens, normalized.
func (g *improvement) weight(s *Sequence) []float32 {
	if g.scale == 1 || s.Weight == nil {
		return s.Weight
	}
	g.weights = g.weights[:0]
	for _, w := range s.Weight {
		g.weights = append(g.weights, float32(float64(w)*g.scale))
	}
	return g.weights
}

func (g *improvement) slopes(rows []*Sequence, logp, entropy, dlogp, dentropy []float32) {
	at := 0
	for _, s := range rows {
		to := at + s.Trained
		c := Columns{New: logp[at:to], Old: s.Old, Ref: s.Ref, Entropy: entropy[at:to], Weight: g.weight(s), Skip: s.Skip}
		if c.Old == nil {
			c.Old = c.New
		}
		g.loss.Row(c, s.Advantage, g.share(s), dlogp[at:to], dentropy[at:to], &g.tally)
		if g.measure && s.Sampled != nil {
			g.mismatch.Add(c.New, s.Sampled)
		}
		at = to
	}
}

func (g *improvement) merge(group ranks.Group) {
	g.tally.merge(group)
	if g.measure {
		g.mismatch.merge(group)
	}
}

func (g *improvement) finish(step int64, line *Line) error {
	t, n := &g.tally, float64(g.tally.Tokens)
	line.Loss, line.Entropy = Number(t.Loss), Number(t.per(t.Entropy))
	u := &Update{
		PolicyLoss: Number(t.Policy), KLLoss: Number(t.KLTerm), KL: Number(t.per(t.KL)),
		RatioMean: Number(t.per(t.Ratio)), RatioMin: Number(t.RatioMin), RatioMax: Number(t.RatioMax),
		Clipped:  Number(t.per(float64(t.High + t.Low + t.Dual))),
		ClipHigh: Number(t.per(float64(t.High))), ClipLow: Number(t.per(float64(t.Low))), ClipDual: Number(t.per(float64(t.Dual))),
		PPOKL: Number(t.per(t.PPOKL)), TrainedMean: Number(n / float64(max(g.over.Rows, 1))),
	}
	var a, r moments
	for _, s := range g.rows {
		a.add(s.Advantage)
		r.add(s.Reward)
	}
	u.AdvantageMean, u.AdvantageMin, u.AdvantageMax = Number(a.mean()), Number(a.min), Number(a.max)
	u.RewardMean, u.RewardStd = Number(r.mean()), Number(r.std())
	line.Update = u
	if g.correction != nil {
		u.Correction = g.correction.describe(g.rows)
	}
	if step > 0 {
		return nil
	}
	g.measure = false
	m := g.mismatch
	u.Mismatch = &m
	return g.mismatch.check(g.maxMismatch)
}

// check is the hard stop. Log-probs that differ before anything was trained mean
// that policy, tokens, masks, temperature or images are not those that were
// sampled from; training on them goes astray in silence.
func (m *Mismatch) check(bound float64) error {
	if bound <= 0 || m.Tokens == 0 || m.AbsMean <= bound {
		return nil
	}
	return fail.WithHint(fail.New(fail.Bound, "compare log-probs", "", "before the first update they differ from the sampled ones by %.4g on average and %.4g at most, over %d tokens; grpo.max_mismatch is %g",
		m.AbsMean, m.AbsMax, m.Tokens, bound), "were these rollouts made by this policy? About 0 is normal for this server, 0.01 for engines in bfloat16")
}

// moments are the usual statistics of a column. The zero value is ready.
type moments struct {
	n                      float64
	sum, squares, min, max float64
}

func (m *moments) add(x float64) {
	if m.n == 0 {
		m.min, m.max = x, x
	}
	m.n++
	m.sum += x
	m.squares += x * x
	m.min, m.max = min(m.min, x), max(m.max, x)
}

func (m *moments) mean() float64 {
	if m.n == 0 {
		return 0
	}
	return m.sum / m.n
}

// std is unbiased, 0 for fewer than two values.
func (m *moments) std() float64 {
	if m.n < 2 {
		return 0
	}
	return math.Sqrt(max(0, (m.squares-m.sum*m.sum/m.n)/(m.n-1)))
}
