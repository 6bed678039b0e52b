package vec

import "math"

// Unit brings v to length 1, as torch.nn.functional.normalize does: a zero vector
// stays zero.
func Unit(v []float32) {
	Scale(v, v, float32(1/max(math.Sqrt(float64(SumSq(v))), 1e-12)))
}

// RMSNorm sets dst[i] = x[i]·inv·w[i] with inv = 1/√(mean of x² + eps), which it
// returns for the way back. dst may be x.
func RMSNorm(dst, x, w []float32, eps float32) (inv float32) {
	same("RMSNorm", len(dst), len(x))
	same("RMSNorm", len(dst), len(w))
	if len(x) == 0 {
		return 0
	}
	inv = float32(1 / math.Sqrt(float64(dot(x, x))/float64(len(x))+float64(eps)))
	mulScaled(dst, x, w, inv)
	return inv
}

// RMSNormBackward adds to dx and dw the gradients of RMSNorm for one row: x and w
// its inputs, inv its result, dy the gradient of dst. A nil dw is skipped.
func RMSNormBackward(dx, dw, x, w, dy []float32, inv float32) {
	same("RMSNormBackward", len(dx), len(x))
	same("RMSNormBackward", len(dx), len(w))
	same("RMSNormBackward", len(dx), len(dy))
	if dw != nil {
		same("RMSNormBackward", len(dx), len(dw))
		mulScaledAdd(dw, x, dy, inv)
	}
	// dx += inv·(w·dy - x·inv²·mean(x·w·dy))
	t := dot3(x, w, dy) * inv * inv / float32(max(len(x), 1))
	mulScaledAdd(dx, w, dy, inv)
	axpy(dx, -t*inv, x)
}

// LayerNorm sets dst[i] = (x[i]-mean)·inv·w[i] + b[i] with inv = 1/√(variance +
// eps) and returns mean and inv for the way back. dst may be x.
func LayerNorm(dst, x, w, b []float32, eps float32) (mean, inv float32) {
	same("LayerNorm", len(dst), len(x))
	same("LayerNorm", len(dst), len(w))
	same("LayerNorm", len(dst), len(b))
	if len(x) == 0 {
		return 0, 0
	}
	mean = sum(x) / float32(len(x))
	inv = float32(1 / math.Sqrt(float64(sumSqDiff(x, mean))/float64(len(x))+float64(eps)))
	normalise(dst, x, w, b, mean, inv)
	return mean, inv
}

// LayerNormBackward adds to dx, dw and db the gradients of LayerNorm for one row.
// tmp holds len(x) elements and is overwritten.
func LayerNormBackward(dx, dw, db, x, w, dy, tmp []float32, mean, inv float32) {
	for _, s := range [][]float32{dw, db, x, w, dy, tmp} {
		same("LayerNormBackward", len(dx), len(s))
	}
	// tmp = the normalised row; g = w·dy; dx += inv·(g - mean(g) - tmp·mean(g·tmp))
	centre(tmp, x, mean, inv)
	mulAdd(dw, tmp, dy)
	add(db, db, dy)
	n := float32(max(len(x), 1))
	g, gx := dot(w, dy)/n, dot3(tmp, w, dy)/n
	mulScaledAdd(dx, w, dy, inv)
	axpyShift(dx, -inv*gx, tmp, -inv*g)
}

func mulScaledGeneric(dst, a, b []float32, s float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] * s * b[i]
	}
}

func mulScaledAddGeneric(dst, a, b []float32, s float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] += a[i] * s * b[i]
	}
}

func dot3Generic(a, b, c []float32) float32 {
	var s [8]float32
	b, c = b[:len(a)], c[:len(a)]
	for i := range a {
		s[i&7] += a[i] * b[i] * c[i]
	}
	return tree8(&s)
}

func sumSqDiffGeneric(x []float32, m float32) float32 {
	var s [8]float32
	for i, v := range x {
		s[i&7] += (v - m) * (v - m)
	}
	return tree8(&s)
}

func normaliseGeneric(dst, x, w, b []float32, mean, inv float32) {
	x, w, b = x[:len(dst)], w[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = (x[i]-mean)*inv*w[i] + b[i]
	}
}

func centreGeneric(dst, x []float32, mean, inv float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = (x[i] - mean) * inv
	}
}

func axpyShiftGeneric(y []float32, s float32, x []float32, c float32) {
	x = x[:len(y)]
	for i := range y {
		y[i] += s*x[i] + c
	}
}
