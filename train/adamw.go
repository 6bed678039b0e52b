package train

import (
	"math"

	"searchloop/internal/fail"
	"searchloop/internal/par"
	"searchloop/internal/recipe"
	"searchloop/internal/vec"
)

// Param is one weight tensor of a policy and its gradient, both float32 in host
// memory. The float32 weight is the master copy: nothing is rounded between
// steps, so that an update of a thousandth of a bfloat16 step is kept.
type Param struct {
	Name    string
	Shape   []int
	W, G    []float32
	NoDecay bool // norms, biases: no weight decay
	Vision  bool // part of the vision tower
}

// AdamW is Adam with decoupled weight decay (arXiv 1711.05101) and clipping by
// the global norm of the whole accumulated gradient. It is not safe for
// concurrent use; it uses all cores.
type AdamW struct {
	Updates int64 // updates applied, t of the bias correction
	Skipped int64 // steps whose gradient was not finite

	o      recipe.Optimizer
	params []Param
	m, v   [][]float32
	sums   []float64 // of squares, by chunk
	alive  []bool    // tensors with a gradient in this step
}

// NewAdamW starts with zero moments.
func NewAdamW(o recipe.Optimizer, params []Param) (*AdamW, error) {
	bad := func(key, format string, args ...any) (*AdamW, error) {
		return nil, fail.New(fail.Usage, "optimizer."+key, "", format, args...)
	}
	switch {
	case !(o.Beta1 >= 0 && o.Beta1 < 1):
		return bad("beta1", "%g: want at least 0 and below 1", o.Beta1)
	case !(o.Beta2 >= 0 && o.Beta2 < 1):
		return bad("beta2", "%g: want at least 0 and below 1", o.Beta2)
	case !(o.Eps > 0):
		return bad("eps", "%g: want more than 0", o.Eps)
	case !(o.WeightDecay >= 0):
		return bad("weight_decay", "%g: want 0 or more", o.WeightDecay)
	case !(o.ClipNorm >= 0):
		return bad("clip_norm", "%g: want 0 (off) or more", o.ClipNorm)
	}
	a := &AdamW{o: o, params: params, alive: make([]bool, len(params))}
	for _, p := range params {
		a.m = append(a.m, make([]float32, len(p.W)))
		a.v = append(a.v, make([]float32, len(p.W)))
	}
	return a, nil
}

const (
	normChunk = 4096  // squares summed in float32; further sums are in float64
	stepGrain = 16384 // elements worth a hand-over to another core
)

// Norm is the global L2 norm of the gradients. The order of the sum is fixed by
// the shapes, whatever the number of cores.
func (a *AdamW) Norm() float64 {
	total := 0.0
	for i, p := range a.params {
		n := (len(p.G) + normChunk - 1) / normChunk
		if cap(a.sums) < n {
			a.sums = make([]float64, n)
		}
		sums := a.sums[:n]
		par.For(n, stepGrain/normChunk, func(lo, hi int) {
			for c := lo; c < hi; c++ {
				sums[c] = float64(vec.SumSq(p.G[c*normChunk : min((c+1)*normChunk, len(p.G))]))
			}
		})
		part := 0.0
		for _, s := range sums {
			part += s
		}
		a.alive[i] = part != 0
		total += part
	}
	return math.Sqrt(total)
}

// Step applies one update and returns the norm before clipping. When the norm is
// not finite nothing changes, the step is counted as skipped and ok is false. A
// tensor whose gradient is zero everywhere was reached by no token of the batch
// (a vision tower among texts): it neither moves nor decays.
func (a *AdamW) Step(lr float64) (norm float64, ok bool) {
	norm = a.Norm()
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		a.Skipped++
		return norm, false
	}
	a.Updates++
	scale := 1.0
	if a.o.ClipNorm > 0 {
		scale = min(1, a.o.ClipNorm/(norm+1e-6))
	}
	t := float64(a.Updates)
	k := kernel{
		b1: float32(a.o.Beta1), c1: float32(1 - a.o.Beta1), b2: float32(a.o.Beta2), c2: float32(1 - a.o.Beta2),
		scale: float32(scale), eps: float32(a.o.Eps), lr: float32(lr),
		fix1: float32(1 / (1 - math.Pow(a.o.Beta1, t))), fix2: float32(1 / math.Sqrt(1-math.Pow(a.o.Beta2, t))),
	}
	for i, p := range a.params {
		if !a.alive[i] {
			continue
		}
		k := k
		if !p.NoDecay {
			k.decay = float32(a.o.WeightDecay)
		}
		m, v := a.m[i], a.v[i]
		par.For(len(p.W), stepGrain, func(lo, hi int) { k.update(p.W[lo:hi], p.G[lo:hi], m[lo:hi], v[lo:hi]) })
	}
	return norm, true
}

type kernel struct {
	b1, c1, b2, c2, scale, eps, lr, fix1, fix2, decay float32
}

// updateScalar adds decay and step before it subtracts both from the weight at
// once: one by one, lr·decay·w would vanish in the weight's last bit. The
// conversions forbid fused products, which other builds would round otherwise.
func (k *kernel) updateScalar(w, g, m, v []float32) {
	g, m, v = g[:len(w)], m[:len(w)], v[:len(w)]
	for i := range w {
		x := g[i] * k.scale
		mi := float32(k.b1*m[i]) + float32(k.c1*x)
		vi := float32(k.b2*v[i]) + float32(k.c2*x*x)
		m[i], v[i] = mi, vi
		root := float32(float32(math.Sqrt(float64(vi))) * k.fix2)
		step := mi * k.fix1 / (root + k.eps)
		w[i] -= float32(k.lr * (step + float32(k.decay*w[i])))
	}
}
