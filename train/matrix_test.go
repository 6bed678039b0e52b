package train

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"searchloop/internal/model/qwenvl"
)

// chunked is a policy whose head is asked for a few rows at a time.
type chunked struct {
	Policy
	rows int
}

type chunkedPass struct {
	Pass
	rows int
}

func (c chunked) Forward(b *qwenvl.Batch) (Pass, error) {
	p, err := c.Policy.Forward(b)
	return chunkedPass{p, c.rows}, err
}

func (p chunkedPass) Score(rows, targets []int32, temperature float32) (logp, entropy []float32) {
	for from := 0; from < len(rows); from += p.rows {
		to := min(from+p.rows, len(rows))
		l, e := p.Pass.Score(rows[from:to], targets[from:to], temperature)
		logp, entropy = append(logp, l...), append(entropy, e...)
	}
	return logp, entropy
}

func (p chunkedPass) Backward(rows, targets []int32, temperature float32, dlogp, dentropy []float32) {
	for from := 0; from < len(rows); from += p.rows {
		to := min(from+p.rows, len(rows))
		p.Pass.Backward(rows[from:to], targets[from:to], temperature, dlogp[from:to], dentropy[from:to])
	}
}

// Accumulation over 1 and 4 passes, three packings, three sizes of the head's
// chunks: one loss and one gradient of a real model.
func TestInvarianceMatrix(t *testing.T) {
	policy, rows := qwenRows(t, 8)
	rng := rand.New(rand.NewPCG(9, 9))
	for i, s := range rows {
		s.ID, s.Advantage, s.Rollout = fmt.Sprint(i), rng.NormFloat64(), fmt.Sprint(i/3)
		for _, l := range scoreOf(t, policy, s) {
			noise := func() float32 { return l + float32(.2*rng.NormFloat64()) }
			s.Old, s.Sampled, s.Ref = append(s.Old, noise()), append(s.Sampled, noise()), append(s.Ref, noise())
		}
	}
	for _, name := range []string{"ppo entropy", "gspo", "tis", "rollouts"} {
		g := everyMode[name]
		var want float64
		var grad []float32
		for _, order := range [][]int{{0, 1, 2, 3, 4, 5, 6, 7}, {7, 6, 5, 4, 3, 2, 1, 0}, {3, 0, 6, 1, 7, 2, 5, 4}} {
			for _, accumulate := range []int{1, 4} {
				for _, chunk := range []int{1 << 20, 16, 5} {
					var packs [][]int
					for k := range accumulate {
						packs = append(packs, order[k*8/accumulate:(k+1)*8/accumulate])
					}
					d := &drill{policy: chunked{policy, chunk}, rows: rows}
					loss, other := d.gradient(t, d.goal(t, g), packs...)
					if grad == nil {
						want, grad = loss, other
					}
					what := fmt.Sprintf("%s, order %v in %d, chunks of %d", name, order, accumulate, chunk)
					near(t, what, loss, want, 1e-6)
					sameGradient(t, what, grad, other, 1e-6)
				}
			}
		}
	}
}
