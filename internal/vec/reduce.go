package vec

import "math"

// Dot returns the sum of a[i]*b[i].
func Dot(a, b []float32) float32 {
	same("Dot", len(a), len(b))
	return dot(a, b)
}

// Sum returns the sum of the elements.
func Sum(x []float32) float32 { return sum(x) }

// SumSq returns the sum of the squares of the elements.
func SumSq(x []float32) float32 { return dot(x, x) }

// NotFinite is the index of the first NaN or infinity in x, or -1.
func NotFinite(x []float32) int {
	const block = 4096
	for at := 0; at < len(x); at += block {
		part := x[at:min(at+block, len(x))]
		// A sum with a NaN or an infinity in it is one itself. So may be a sum of large
		// numbers: only then each is looked at.
		if s := sum(part); s-s == 0 {
			continue
		}
		for i, v := range part {
			if v-v != 0 {
				return at + i
			}
		}
	}
	return -1
}

// Max returns the greatest element; -Inf for an empty slice. With a NaN in x the
// result is either NaN or the greatest of the others.
func Max(x []float32) float32 { return maximum(x) }

// ArgMax returns the index of the greatest element, the first one among equals;
// -1 for an empty slice. NaNs are skipped.
func ArgMax(x []float32) int {
	best, at := float32(math.Inf(-1)), -1
	for i, v := range x {
		if v > best || (at < 0 && v == best) {
			best, at = v, i
		}
	}
	return at
}

func dotGeneric(a, b []float32) float32 {
	var s [8]float32
	b = b[:len(a)]
	i := 0
	for ; i+8 <= len(a); i += 8 {
		x, y := a[i:i+8:i+8], b[i:i+8:i+8]
		s[0] += x[0] * y[0]
		s[1] += x[1] * y[1]
		s[2] += x[2] * y[2]
		s[3] += x[3] * y[3]
		s[4] += x[4] * y[4]
		s[5] += x[5] * y[5]
		s[6] += x[6] * y[6]
		s[7] += x[7] * y[7]
	}
	for j := 0; i < len(a); i, j = i+1, j+1 {
		s[j] += a[i] * b[i]
	}
	return tree8(&s)
}

func sumGeneric(x []float32) float32 {
	var s [8]float32
	i := 0
	for ; i+8 <= len(x); i += 8 {
		v := x[i : i+8 : i+8]
		s[0] += v[0]
		s[1] += v[1]
		s[2] += v[2]
		s[3] += v[3]
		s[4] += v[4]
		s[5] += v[5]
		s[6] += v[6]
		s[7] += v[7]
	}
	for j := 0; i < len(x); i, j = i+1, j+1 {
		s[j] += x[i]
	}
	return tree8(&s)
}

func tree8(s *[8]float32) float32 {
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

func maximumGeneric(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m
}
