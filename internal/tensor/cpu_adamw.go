package tensor

import (
	"math"

	"searchloop/internal/par"
	"searchloop/internal/vec"
)

const (
	squareChunk = 4096  // squares summed in float32; further sums are in float64
	adamGrain   = 16384 // values worth a hand-over to another core
)

func (b *cpu) SquaredSums(all []*Tensor) []float64 {
	out := make([]float64, len(all))
	var sums []float64
	for i, t := range all {
		g := t.host
		n := (len(g) + squareChunk - 1) / squareChunk
		if cap(sums) < n {
			sums = make([]float64, n)
		}
		sums = sums[:n]
		par.For(n, adamGrain/squareChunk, func(lo, hi int) {
			for c := lo; c < hi; c++ {
				sums[c] = float64(vec.SumSq(g[c*squareChunk : min((c+1)*squareChunk, len(g))]))
			}
		})
		for _, s := range sums {
			out[i] += s
		}
	}
	return out
}

// moments is the state of one weight in the process's memory.
type moments struct {
	w, g  []float32
	m, v  []float32
	whole []float32 // of MasterWhole
	low   []int16   // of MasterSplit
}

func (b *cpu) NewMoments(w, g *Tensor, k Keeping) Moments {
	mustLen(g, w.n)
	s := &moments{w: w.host, g: g.host, m: make([]float32, w.n), v: make([]float32, w.n)}
	switch k.Master {
	case MasterWhole:
		s.whole = make([]float32, w.n)
	case MasterSplit:
		s.low = make([]int16, w.n)
	}
	s.put(0, s.w)
	return s
}

func (s *moments) Free() { *s = moments{} }

// put makes x the masters from index at on, get copies them.
func (s *moments) put(at int, x []float32) {
	if s.whole == nil && s.low == nil {
		copy(s.w[at:], x)
		return
	}
	for k, v := range x {
		high, low := Halves(v)
		if s.whole != nil {
			s.whole[at+k] = v
		} else {
			s.low[at+k] = low
		}
		s.w[at+k] = high
	}
}

func (s *moments) get(at int, to []float32) {
	switch {
	case s.whole != nil:
		copy(to, s.whole[at:])
	case s.low != nil:
		for k := range to {
			to[k] = Whole(s.w[at+k], s.low[at+k])
		}
	default:
		copy(to, s.w[at:])
	}
}

func (s *moments) Read(w, m, v []float32) {
	if w != nil {
		s.get(0, w)
	}
	copy(m, s.m)
	copy(v, s.v)
}

func (s *moments) Write(w, m, v []float32) {
	if w != nil {
		s.put(0, w)
	}
	copy(s.m, m)
	copy(s.v, v)
}

func (s *moments) Step(u Update) {
	k := adamStep{
		b1: float32(u.Beta1), c1: float32(1 - u.Beta1), b2: float32(u.Beta2), c2: float32(1 - u.Beta2),
		scale: float32(u.Scale), eps: float32(u.Eps), lr: float32(u.LR), decay: float32(u.Decay),
	}
	k.fix1, k.fix2 = u.Fixes()
	par.For(len(s.w), adamGrain, func(lo, hi int) {
		if s.whole == nil && s.low == nil {
			k.update(s.w[lo:hi], s.g[lo:hi], s.m[lo:hi], s.v[lo:hi])
			return
		}
		var block [1024]float32
		for ; lo < hi; lo += len(block) {
			to := min(hi, lo+len(block))
			w := block[:to-lo]
			s.get(lo, w)
			k.update(w, s.g[lo:to], s.m[lo:to], s.v[lo:to])
			s.put(lo, w)
		}
	})
}

// adamStep is an update in the precision it is computed in.
type adamStep struct {
	b1, c1, b2, c2, scale, eps, lr, fix1, fix2, decay float32
}

// updateScalar adds decay and step before it subtracts both from the weight at
// once: one by one, lr·decay·w would vanish in the weight's last bit. The
// conversions forbid fused products, which other builds would round otherwise.
func (k *adamStep) updateScalar(w, g, m, v []float32) {
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
