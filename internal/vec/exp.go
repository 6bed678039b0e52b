package vec

import "math"

// Exp sets dst[i] = e^x[i] with a relative error below 2e-7. Above 88.72 it
// gives +Inf, below -87.33 (where the result would be subnormal) 0, for NaN NaN.
func Exp(dst, x []float32) {
	same("Exp", len(dst), len(x))
	exp(dst, x)
}

// ExpSum sets dst[i] = e^(x[i]-shift) and returns the sum of dst.
func ExpSum(dst, x []float32, shift float32) float32 {
	same("ExpSum", len(dst), len(x))
	return expSum(dst, x, shift)
}

// Softmax sets dst = softmax(s*x). An empty slice stays empty. All of x being
// -Inf gives NaN, as everywhere.
func Softmax(dst, x []float32, s float32) {
	same("Softmax", len(dst), len(x))
	if len(x) == 0 {
		return
	}
	if s != 1 {
		scale(dst, x, s)
		x = dst
	}
	total := expSum(dst, x, maximum(x))
	scale(dst, dst, 1/total)
}

// SoftmaxBackward sets dx[i] = s * p[i] * (dp[i] - Σ p[j]*dp[j]): the gradient of
// x in p = softmax(s*x).
func SoftmaxBackward(dx, p, dp []float32, s float32) {
	same("SoftmaxBackward", len(dx), len(p))
	same("SoftmaxBackward", len(dx), len(dp))
	softmaxBackward(dx, p, dp, dot(p, dp), s)
}

// LogSumExp returns ln Σ e^(s*x[i]); tmp holds len(x) elements and is overwritten.
func LogSumExp(x []float32, s float32, tmp []float32) float32 {
	tmp = tmp[:len(x)]
	scale(tmp, x, s)
	m := maximum(tmp)
	if math.IsInf(float64(m), 0) {
		return m
	}
	return m + float32(math.Log(float64(expSum(tmp, tmp, m))))
}

// The constants of e^x = 2^n · e^r, n = round(x/ln 2), |r| <= ln 2 / 2. ln 2 is
// split so that n*ln2Hi is exact. e^r = 1 + r + r²·P(r), P fitted to the least
// greatest relative error, 3.1e-9 (testdata/fit.py).
const (
	expMax  = 88.72283172607422 // the greatest float32 whose exponential is one
	expMin  = -87.33654
	log2E   = 1.44269504088896341
	ln2Hi   = 0.693359375
	ln2Lo   = -2.12194440e-4
	expP0   = 0.4999999403953552
	expP1   = 0.1666652113199234
	expP2   = 0.04166838899254799
	expP3   = 0.008368715643882751
	expP4   = 0.0013814602280035615
	roundUp = 12582912.0 // 1.5·2²³: adding it leaves the rounded number in the low bits
)

func exp1(x float32) float32 {
	switch {
	case x > expMax:
		return float32(math.Inf(1))
	case x < expMin:
		return 0
	case x != x:
		return x
	}
	n := float32(x*log2E+roundUp) - roundUp
	r := x - n*ln2Hi
	r -= n * ln2Lo
	p := float32(expP4)
	p = p*r + expP3
	p = p*r + expP2
	p = p*r + expP1
	p = p*r + expP0
	p = p*(r*r) + r + 1
	// Two halves: 2^128 itself is not a float32.
	k := int32(n)
	h := k >> 1
	return p * math.Float32frombits(uint32(h+127)<<23) * math.Float32frombits(uint32(k-h+127)<<23)
}

func expGeneric(dst, x []float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = exp1(x[i])
	}
}

func expSumGeneric(dst, x []float32, shift float32) float32 {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = exp1(x[i] - shift)
	}
	return sumGeneric(dst)
}

func softmaxBackwardGeneric(dx, p, dp []float32, d, s float32) {
	p, dp = p[:len(dx)], dp[:len(dx)]
	for i := range dx {
		dx[i] = s * p[i] * (dp[i] - d)
	}
}
