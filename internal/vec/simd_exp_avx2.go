//go:build goexperiment.simd && amd64

package vec

import "simd/archsimd"

// This file is written for AVX2; widen turns it into the same for AVX-512.

func constAVX2(k int) f8 { return archsimd.LoadFloat32x8(&table8[k]) }

// expCoreAVX2 is e^x for expMin <= x <= expMax and nonsense otherwise.
func expCoreAVX2(x f8) f8 {
	t := x.MulAdd(constAVX2(kLog2E), constAVX2(kRoundUp))
	n := t.Sub(constAVX2(kRoundUp))
	r := n.MulAdd(constAVX2(kNegLn2Hi), x)
	r = n.MulAdd(constAVX2(kNegLn2Lo), r)
	p := r.MulAdd(constAVX2(kExpP4), constAVX2(kExpP3))
	p = p.MulAdd(r, constAVX2(kExpP2))
	p = p.MulAdd(r, constAVX2(kExpP1))
	p = p.MulAdd(r, constAVX2(kExpP0))
	p = p.MulAdd(r.Mul(r), r.Add(constAVX2(kOne)))
	// The low bits of t are n; adding them to the exponent multiplies by 2^n.
	return p.AsInt32x8().Add(t.AsInt32x8().ShiftAllLeft(23)).AsFloat32x8()
}

// rangeAVX2 puts right what expCoreAVX2 gave outside its range. NaN is in neither
// comparison and stays.
func rangeAVX2(e, x f8) f8 {
	var zero f8
	e = zero.Merge(e, x.Less(constAVX2(kExpMin)))
	return constAVX2(kInf).Merge(e, x.Greater(constAVX2(kExpMax)))
}

func sigmoidCoreAVX2(x f8) f8 {
	var zero f8
	y := zero.Sub(x)
	one := constAVX2(kOne)
	return one.Div(rangeAVX2(expCoreAVX2(y), y).Add(one))
}

func expAVX2(dst, x []float32, shift float32) {
	d, p, n := data(dst), data(x), len(dst)
	s := splat(shift)
	i := 0
	for ; i+8 <= n; i += 8 {
		v := get(p, i).Sub(s)
		put(d, i, rangeAVX2(expCoreAVX2(v), v))
	}
	if i < n {
		v := part(x, i).Sub(s)
		putPart(dst, i, rangeAVX2(expCoreAVX2(v), v))
	}
	done()
}

func sigmoidAVX2(dst, x []float32) {
	d, p, n := data(dst), data(x), len(dst)
	i := 0
	for ; i+8 <= n; i += 8 {
		put(d, i, sigmoidCoreAVX2(get(p, i)))
	}
	if i < n {
		putPart(dst, i, sigmoidCoreAVX2(part(x, i)))
	}
	done()
}

func siluAVX2(dst, x []float32) {
	d, p, n := data(dst), data(x), len(dst)
	i := 0
	for ; i+8 <= n; i += 8 {
		v := get(p, i)
		put(d, i, sigmoidCoreAVX2(v).Mul(v))
	}
	if i < n {
		v := part(x, i)
		putPart(dst, i, sigmoidCoreAVX2(v).Mul(v))
	}
	done()
}

func swigluAVX2(dst, gate, up []float32) {
	d, p, q, n := data(dst), data(gate), data(up), len(dst)
	i := 0
	for ; i+8 <= n; i += 8 {
		v := get(p, i)
		put(d, i, sigmoidCoreAVX2(v).Mul(v).Mul(get(q, i)))
	}
	if i < n {
		v := part(gate, i)
		putPart(dst, i, sigmoidCoreAVX2(v).Mul(v).Mul(part(up, i)))
	}
	done()
}

// swigluSlopeAVX2 is the derivative of silu at g, where s is sigmoid(g).
func swigluSlopeAVX2(g, s f8) f8 {
	one := constAVX2(kOne)
	return g.MulAdd(one.Sub(s), one).Mul(s)
}

func swigluBackwardAVX2(dgate, dup, gate, up, dy []float32) {
	dg, du, p, q, o, n := data(dgate), data(dup), data(gate), data(up), data(dy), len(dgate)
	i := 0
	for ; i+8 <= n; i += 8 {
		g, u, y := get(p, i), get(q, i), get(o, i)
		s := sigmoidCoreAVX2(g)
		put(du, i, g.Mul(s).Mul(y))
		put(dg, i, y.Mul(u).Mul(swigluSlopeAVX2(g, s)))
	}
	if i < n {
		g, u, y := part(gate, i), part(up, i), part(dy, i)
		s := sigmoidCoreAVX2(g)
		putPart(dup, i, g.Mul(s).Mul(y))
		putPart(dgate, i, y.Mul(u).Mul(swigluSlopeAVX2(g, s)))
	}
	done()
}

// tailAVX2 is Φ(-|x|), given √(2π) times the density at x.
func tailAVX2(x, density f8) f8 {
	var zero f8
	one := constAVX2(kOne)
	t := one.Div(x.Max(zero.Sub(x)).MulAdd(constAVX2(kTailP), one))
	r := t.MulAdd(constAVX2(kTailR+8), constAVX2(kTailR+7))
	r = r.MulAdd(t, constAVX2(kTailR+6))
	r = r.MulAdd(t, constAVX2(kTailR+5))
	r = r.MulAdd(t, constAVX2(kTailR+4))
	r = r.MulAdd(t, constAVX2(kTailR+3))
	r = r.MulAdd(t, constAVX2(kTailR+2))
	r = r.MulAdd(t, constAVX2(kTailR+1))
	r = r.MulAdd(t, constAVX2(kTailR))
	return r.Mul(t).Mul(density)
}

func densityAVX2(x f8) f8 {
	y := x.Mul(constAVX2(kMinusHalf)).Mul(x)
	return rangeAVX2(expCoreAVX2(y), y)
}

func phiAVX2(x, density f8) f8 {
	var zero f8
	q := tailAVX2(x, density)
	return constAVX2(kOne).Sub(q).Merge(q, x.Greater(zero))
}

func geluAVX2(dst, x []float32) {
	d, p, n := data(dst), data(x), len(dst)
	i := 0
	for ; i+8 <= n; i += 8 {
		v := get(p, i)
		put(d, i, phiAVX2(v, densityAVX2(v)).Mul(v))
	}
	if i < n {
		v := part(x, i)
		putPart(dst, i, phiAVX2(v, densityAVX2(v)).Mul(v))
	}
	done()
}

func geluSlopeAVX2(x f8) f8 {
	e := densityAVX2(x)
	return x.Mul(constAVX2(kInvSqrt2Pi)).MulAdd(e, phiAVX2(x, e))
}

func geluBackwardAVX2(dx, x, dy []float32) {
	d, p, q, n := data(dx), data(x), data(dy), len(dx)
	i := 0
	for ; i+8 <= n; i += 8 {
		put(d, i, geluSlopeAVX2(get(p, i)).Mul(get(q, i)))
	}
	if i < n {
		putPart(dx, i, geluSlopeAVX2(part(x, i)).Mul(part(dy, i)))
	}
	done()
}

// geluTanhCoreAVX2 is sigmoid(2u) of the approximation.
func geluTanhCoreAVX2(x f8) f8 {
	return sigmoidCoreAVX2(x.Mul(x).MulAdd(constAVX2(kGeluB), constAVX2(kGeluA)).Mul(x))
}

func geluTanhAVX2(dst, x []float32) {
	d, p, n := data(dst), data(x), len(dst)
	i := 0
	for ; i+8 <= n; i += 8 {
		v := get(p, i)
		put(d, i, geluTanhCoreAVX2(v).Mul(v))
	}
	if i < n {
		v := part(x, i)
		putPart(dst, i, geluTanhCoreAVX2(v).Mul(v))
	}
	done()
}

func geluTanhSlopeAVX2(x f8) f8 {
	var zero f8
	one := constAVX2(kOne)
	y := zero.Sub(x.Mul(x).MulAdd(constAVX2(kGeluB), constAVX2(kGeluA)).Mul(x))
	e := constAVX2(kGeluBig).Min(rangeAVX2(expCoreAVX2(y), y)) // in this order NaN stays
	s := one.Div(e.Add(one))
	u := x.Mul(x).MulAdd(constAVX2(kGelu3B), constAVX2(kGeluA))
	return x.Mul(s).Mul(e.Mul(s)).MulAdd(u, s)
}

func geluTanhBackwardAVX2(dx, x, dy []float32) {
	d, p, q, n := data(dx), data(x), data(dy), len(dx)
	i := 0
	for ; i+8 <= n; i += 8 {
		put(d, i, geluTanhSlopeAVX2(get(p, i)).Mul(get(q, i)))
	}
	if i < n {
		putPart(dx, i, geluTanhSlopeAVX2(part(x, i)).Mul(part(dy, i)))
	}
	done()
}
