package tensor

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Every bit pattern comes back, ties and the ends of the range included.
func TestHalvesAreExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	var bits []uint32
	for top := range uint32(1 << 16) {
		for _, low := range []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, rng.Uint32N(1 << 16)} {
			bits = append(bits, top<<16|low)
		}
	}
	for _, b := range bits {
		w := math.Float32frombits(b)
		high, low := Halves(w)
		if math.Float32bits(high)&0xffff != 0 || math.Float32bits(Whole(high, low)) != b {
			t.Fatalf("%08x: %08x and %d join to %08x", b, math.Float32bits(high), low, math.Float32bits(Whole(high, low)))
		}
		if d := math.Abs(float64(w - high)); w-w == 0 && high-high == 0 && d > math.Abs(float64(w))/256 && d > 1e-40 {
			t.Fatalf("%g is rounded to %g", w, high)
		}
	}
	if high, low := Halves(math.Float32frombits(0x3caedd22)); math.Float32bits(high) != 0x3caf0000 || low != -8926 {
		t.Errorf("%g, %d", high, low)
	}
}

// The vector loop gives the bits of the plain one.
func TestUpdateLoopsAgree(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	column := func(n int, scale float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(scale * rng.NormFloat64())
		}
		return x
	}
	k := adamStep{b1: .9, c1: .1, b2: .98, c2: .02, scale: .7, eps: 1e-8, lr: 3e-3, fix1: 1.7, fix2: 2.1, decay: .01}
	for _, n := range []int{0, 1, 7, 8, 9, 1000} {
		w, g, m, v := column(n, 1), column(n, .01), column(n, .01), column(n, .01)
		for i := range v {
			v[i] *= v[i]
			if i%5 == 0 {
				g[i], v[i] = 0, 0
			}
		}
		w2, m2, v2 := slices.Clone(w), slices.Clone(m), slices.Clone(v)
		k.update(w, g, m, v)
		k.updateScalar(w2, g, m2, v2)
		if !slices.Equal(w, w2) || !slices.Equal(m, m2) || !slices.Equal(v, v2) {
			t.Fatalf("n %d: results differ", n)
		}
	}
}
