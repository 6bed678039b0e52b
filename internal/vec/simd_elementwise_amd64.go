//go:build goexperiment.simd && amd64

package vec

func add(dst, a, b []float32) {
	if !hasAVX2 {
		addGeneric(dst, a, b)
		return
	}
	d, p, q, n := data(dst), data(a), data(b), len(dst)
	i := 0
	for ; i+8 <= n; i += 8 {
		put(d, i, get(p, i).Add(get(q, i)))
	}
	if i < n {
		putPart(dst, i, part(a, i).Add(part(b, i)))
	}
	done()
}

func sub(dst, a, b []float32) {
	if !hasAVX2 {
		subGeneric(dst, a, b)
		return
	}
	d, p, q, n := data(dst), data(a), data(b), len(dst)
	i := 0
	for ; i+8 <= n; i += 8 {
		put(d, i, get(p, i).Sub(get(q, i)))
	}
	if i < n {
		putPart(dst, i, part(a, i).Sub(part(b, i)))
	}
	done()
}

func mul(dst, a, b []float32) {
	if !hasAVX2 {
		mulGeneric(dst, a, b)
		return
	}
	d, p, q, n := data(dst), data(a), data(b), len(dst)
	i := 0
	for ; i+8 <= n; i += 8 {
		put(d, i, get(p, i).Mul(get(q, i)))
	}
	if i < n {
		putPart(dst, i, part(a, i).Mul(part(b, i)))
	}
	done()
}

func mulAdd(dst, a, b []float32) {
	if !hasAVX2 {
		mulAddGeneric(dst, a, b)
		return
	}
	d, p, q, n := data(dst), data(a), data(b), len(dst)
	i := 0
	for ; i+8 <= n; i += 8 {
		put(d, i, get(p, i).MulAdd(get(q, i), get(d, i)))
	}
	if i < n {
		putPart(dst, i, part(a, i).MulAdd(part(b, i), part(dst, i)))
	}
	done()
}

func scale(dst, x []float32, s float32) {
	if !hasAVX2 {
		scaleGeneric(dst, x, s)
		return
	}
	v := splat(s)
	d, p, n := data(dst), data(x), len(dst)
	i := 0
	for ; i+8 <= n; i += 8 {
		put(d, i, get(p, i).Mul(v))
	}
	if i < n {
		putPart(dst, i, part(x, i).Mul(v))
	}
	done()
}

func axpy(y []float32, s float32, x []float32) {
	if !hasAVX2 {
		axpyGeneric(y, s, x)
		return
	}
	v := splat(s)
	d, p, n := data(y), data(x), len(y)
	i := 0
	for ; i+8 <= n; i += 8 {
		put(d, i, get(p, i).MulAdd(v, get(d, i)))
	}
	if i < n {
		putPart(y, i, part(x, i).MulAdd(v, part(y, i)))
	}
	done()
}

func mulScaled(dst, a, b []float32, s float32) {
	if !hasAVX2 {
		mulScaledGeneric(dst, a, b, s)
		return
	}
	v := splat(s)
	d, p, q, n := data(dst), data(a), data(b), len(dst)
	i := 0
	for ; i+8 <= n; i += 8 {
		put(d, i, get(p, i).Mul(v).Mul(get(q, i)))
	}
	if i < n {
		putPart(dst, i, part(a, i).Mul(v).Mul(part(b, i)))
	}
	done()
}

func mulScaledAdd(dst, a, b []float32, s float32) {
	if !hasAVX2 {
		mulScaledAddGeneric(dst, a, b, s)
		return
	}
	v := splat(s)
	d, p, q, n := data(dst), data(a), data(b), len(dst)
	i := 0
	for ; i+8 <= n; i += 8 {
		put(d, i, get(p, i).Mul(v).MulAdd(get(q, i), get(d, i)))
	}
	if i < n {
		putPart(dst, i, part(a, i).Mul(v).MulAdd(part(b, i), part(dst, i)))
	}
	done()
}

func normalise(dst, x, w, b []float32, mean, inv float32) {
	if !hasAVX2 {
		normaliseGeneric(dst, x, w, b, mean, inv)
		return
	}
	m, v := splat(mean), splat(inv)
	d, p, q, o, n := data(dst), data(x), data(w), data(b), len(dst)
	i := 0
	for ; i+8 <= n; i += 8 {
		put(d, i, get(p, i).Sub(m).Mul(v).MulAdd(get(q, i), get(o, i)))
	}
	if i < n {
		putPart(dst, i, part(x, i).Sub(m).Mul(v).MulAdd(part(w, i), part(b, i)))
	}
	done()
}

func centre(dst, x []float32, mean, inv float32) {
	if !hasAVX2 {
		centreGeneric(dst, x, mean, inv)
		return
	}
	m, v := splat(mean), splat(inv)
	d, p, n := data(dst), data(x), len(dst)
	i := 0
	for ; i+8 <= n; i += 8 {
		put(d, i, get(p, i).Sub(m).Mul(v))
	}
	if i < n {
		putPart(dst, i, part(x, i).Sub(m).Mul(v))
	}
	done()
}

func axpyShift(y []float32, s float32, x []float32, c float32) {
	if !hasAVX2 {
		axpyShiftGeneric(y, s, x, c)
		return
	}
	v, o := splat(s), splat(c)
	d, p, n := data(y), data(x), len(y)
	i := 0
	for ; i+8 <= n; i += 8 {
		put(d, i, get(p, i).MulAdd(v, o).Add(get(d, i)))
	}
	if i < n {
		putPart(y, i, part(x, i).MulAdd(v, o).Add(part(y, i)))
	}
	done()
}

func softmaxBackward(dx, p, dp []float32, d, s float32) {
	if !hasAVX2 {
		softmaxBackwardGeneric(dx, p, dp, d, s)
		return
	}
	m, v := splat(d), splat(s)
	to, a, b, n := data(dx), data(p), data(dp), len(dx)
	i := 0
	for ; i+8 <= n; i += 8 {
		put(to, i, get(b, i).Sub(m).Mul(get(a, i).Mul(v)))
	}
	if i < n {
		putPart(dx, i, part(dp, i).Sub(m).Mul(part(p, i).Mul(v)))
	}
	done()
}

func rope(a, b, cos, sin []float32, inverse bool) {
	if !hasAVX2 {
		ropeGeneric(a, b, cos, sin, inverse)
		return
	}
	one := float32(1)
	if inverse {
		one = -1
	}
	sign := splat(one)
	p, q, pc, ps, n := data(a), data(b), data(cos), data(sin), len(a)
	i := 0
	for ; i+8 <= n; i += 8 {
		x, y, c, s := get(p, i), get(q, i), get(pc, i), get(ps, i).Mul(sign)
		put(p, i, x.Mul(c).Sub(y.Mul(s)))
		put(q, i, y.Mul(c).Add(x.Mul(s)))
	}
	done()
	ropeGeneric(a[i:], b[i:], cos[i:], sin[i:], inverse)
}
