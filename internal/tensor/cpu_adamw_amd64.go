//go:build goexperiment.simd && amd64

package tensor

import (
	"simd/archsimd"
)

// update is updateScalar eight weights at a time. Products are not fused, and
// square roots and quotients are correctly rounded, so both give the same bits.
func (k *adamStep) update(w, g, m, v []float32) {
	done := 0
	if archsimd.X86.AVX2() {
		done = k.update8(w, g, m, v)
	}
	k.updateScalar(w[done:], g[done:], m[done:], v[done:])
}

func (k *adamStep) update8(w, g, m, v []float32) int {
	b1, c1 := archsimd.BroadcastFloat32x8(k.b1), archsimd.BroadcastFloat32x8(k.c1)
	b2, c2 := archsimd.BroadcastFloat32x8(k.b2), archsimd.BroadcastFloat32x8(k.c2)
	fix1, fix2 := archsimd.BroadcastFloat32x8(k.fix1), archsimd.BroadcastFloat32x8(k.fix2)
	scale, eps := archsimd.BroadcastFloat32x8(k.scale), archsimd.BroadcastFloat32x8(k.eps)
	lr, decay := archsimd.BroadcastFloat32x8(k.lr), archsimd.BroadcastFloat32x8(k.decay)
	n := len(w) &^ 7
	for i := 0; i < n; i += 8 {
		wp, mp, vp := (*[8]float32)(w[i:]), (*[8]float32)(m[i:]), (*[8]float32)(v[i:])
		wi := archsimd.LoadFloat32x8(wp)
		x := archsimd.LoadFloat32x8((*[8]float32)(g[i:])).Mul(scale)
		mi := b1.Mul(archsimd.LoadFloat32x8(mp)).Add(c1.Mul(x))
		vi := b2.Mul(archsimd.LoadFloat32x8(vp)).Add(c2.Mul(x).Mul(x))
		mi.Store(mp)
		vi.Store(vp)
		step := mi.Mul(fix1).Div(vi.Sqrt().Mul(fix2).Add(eps))
		wi.Sub(lr.Mul(step.Add(decay.Mul(wi)))).Store(wp)
	}
	archsimd.ClearAVXUpperBits()
	return n
}
