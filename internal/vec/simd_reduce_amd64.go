//go:build goexperiment.simd && amd64

package vec

func dot(a, b []float32) float32 {
	if !hasAVX2 {
		return dotGeneric(a, b)
	}
	return dotAVX2(a, b)
}

func sum(x []float32) float32 {
	if !hasAVX2 {
		return sumGeneric(x)
	}
	return sumAVX2(x)
}

func maximum(x []float32) float32 {
	if !hasAVX2 {
		return maximumGeneric(x)
	}
	return maximumAVX2(x)
}

func dot3(a, b, c []float32) float32 {
	if !hasAVX2 {
		return dot3Generic(a, b, c)
	}
	return dot3AVX2(a, b, c)
}

func sumSqDiff(x []float32, m float32) float32 {
	if !hasAVX2 {
		return sumSqDiffGeneric(x, m)
	}
	return sumSqDiffAVX2(x, m)
}

// The loops below take 32 elements a turn into four sums. What is left goes into
// the first sums in turn, so that lane i of 32 still holds elements i, i+32, ….

func dotAVX2(a, b []float32) float32 {
	var s0, s1, s2, s3 f8
	p, q, n := data(a), data(b), len(a)
	i := 0
	for ; i+32 <= n; i += 32 {
		s0 = get(p, i).MulAdd(get(q, i), s0)
		s1 = get(p, i+8).MulAdd(get(q, i+8), s1)
		s2 = get(p, i+16).MulAdd(get(q, i+16), s2)
		s3 = get(p, i+24).MulAdd(get(q, i+24), s3)
	}
	for ; i+8 <= n; i += 8 {
		s0, s1, s2, s3 = s1, s2, s3, get(p, i).MulAdd(get(q, i), s0)
	}
	if i < n {
		s0 = part(a, i).MulAdd(part(b, i), s0)
	}
	r := fold(s0, s1, s2, s3)
	done()
	return r
}

func sumAVX2(x []float32) float32 {
	var s0, s1, s2, s3 f8
	p, n := data(x), len(x)
	i := 0
	for ; i+32 <= n; i += 32 {
		s0 = get(p, i).Add(s0)
		s1 = get(p, i+8).Add(s1)
		s2 = get(p, i+16).Add(s2)
		s3 = get(p, i+24).Add(s3)
	}
	for ; i+8 <= n; i += 8 {
		s0, s1, s2, s3 = s1, s2, s3, get(p, i).Add(s0)
	}
	if i < n {
		s0 = part(x, i).Add(s0)
	}
	r := fold(s0, s1, s2, s3)
	done()
	return r
}

func dot3AVX2(a, b, c []float32) float32 {
	var s0, s1 f8
	p, q, o, n := data(a), data(b), data(c), len(a)
	i := 0
	for ; i+8 <= n; i += 8 {
		s0, s1 = s1, get(p, i).Mul(get(q, i)).MulAdd(get(o, i), s0)
	}
	if i < n {
		s0 = part(a, i).Mul(part(b, i)).MulAdd(part(c, i), s0)
	}
	r := lanes(s0.Add(s1))
	done()
	return r
}

func sumSqDiffAVX2(x []float32, m float32) float32 {
	var s0, s1 f8
	mean := splat(m)
	p, n := data(x), len(x)
	i := 0
	for ; i+8 <= n; i += 8 {
		d := get(p, i).Sub(mean)
		s0, s1 = s1, d.MulAdd(d, s0)
	}
	r := lanes(s0.Add(s1))
	done()
	for ; i < n; i++ {
		r += (x[i] - m) * (x[i] - m)
	}
	return r
}

func maximumAVX2(x []float32) float32 {
	p, n := data(x), len(x)
	if n < 8 {
		return maximumGeneric(x)
	}
	s0, s1 := get(p, 0), get(p, n-8) // the end may be seen twice
	i := 0
	for ; i+16 <= n; i += 16 {
		s0, s1 = s0.Max(get(p, i)), s1.Max(get(p, i+8))
	}
	if i+8 <= n {
		s0 = s0.Max(get(p, i))
	}
	s0 = s0.Max(s1)
	h := s0.GetLo().Max(s0.GetHi())
	h = h.Max(h.SelectFromPair(2, 3, 0, 1, h))
	m := h.Max(h.SelectFromPair(1, 0, 3, 2, h)).GetElem(0)
	done()
	return m
}
