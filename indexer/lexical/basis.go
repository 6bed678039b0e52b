package lexical

import (
	"math"
	"math/rand/v2"
	"slices"

	"searchloop/internal/par"
)

// matrix holds the passages as sparse rows of unit length: tf-idf by word.
type matrix struct {
	cols  int
	start []int
	col   []int32
	val   []float64
}

func newMatrix(counts []map[int32]int, weight []float64) *matrix {
	m := &matrix{cols: len(weight), start: make([]int, 1, len(counts)+1)}
	for _, c := range counts {
		ids := make([]int32, 0, len(c))
		for id := range c {
			if weight[id] > 0 {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		var sum float64
		for _, id := range ids {
			v := float64(c[id]) * weight[id]
			sum += float64(v * v)
			m.col, m.val = append(m.col, id), append(m.val, v)
		}
		from := m.start[len(m.start)-1]
		for i := from; i < len(m.val); i++ {
			m.val[i] /= math.Sqrt(sum)
		}
		m.start = append(m.start, len(m.val))
	}
	return m
}

const powerSteps = 2

// basis gives rank orthonormal directions (rows of length cols) that span nearly
// the leading right singular space of m. Directions beyond the rank of m are zero.
func (m *matrix) basis(rank int, seed uint64) [][]float64 {
	rng := rand.New(rand.NewPCG(seed, 0x6c6578))
	y := make([][]float64, rank)
	for k := range y {
		y[k] = make([]float64, m.cols)
		for i := range y[k] {
			y[k][i] = rng.NormFloat64()
		}
	}
	for range 1 + powerSteps {
		par.For(rank, 1, func(lo, hi int) {
			for k := lo; k < hi; k++ {
				y[k] = m.gram(y[k])
			}
		})
		orthonormalise(y)
	}
	return y
}

// gram is mᵀ(m x).
func (m *matrix) gram(x []float64) []float64 {
	out := make([]float64, m.cols)
	for r := range len(m.start) - 1 {
		lo, hi := m.start[r], m.start[r+1]
		var sum float64
		for i := lo; i < hi; i++ {
			sum += float64(m.val[i] * x[m.col[i]])
		}
		for i := lo; i < hi; i++ {
			out[m.col[i]] += float64(m.val[i] * sum)
		}
	}
	return out
}

// orthonormalise is modified Gram-Schmidt, done twice because once loses digits.
// A row that the earlier ones span becomes zero. Rows are worked on in parallel;
// each sees the same operations in the same order however many cores there are.
func orthonormalise(y [][]float64) {
	before := make([]float64, len(y))
	for k := range y {
		before[k] = math.Sqrt(dot(y[k], y[k]))
	}
	for range 2 {
		for k, u := range y {
			n := math.Sqrt(dot(u, u))
			if n <= 1e-9*before[k] || n == 0 {
				clear(u)
				continue
			}
			for i := range u {
				u[i] /= n
			}
			before[k] = 1
			rest := y[k+1:]
			par.For(len(rest), max(1, 1<<15/len(u)), func(lo, hi int) {
				for _, v := range rest[lo:hi] {
					d := dot(u, v)
					for i, x := range u {
						v[i] -= float64(d * x) // rounded, so that no machine fuses it
					}
				}
			})
		}
	}
}

// dot is an inner product in four sums, in an order that depends on the length
// only. The conversions keep compilers from fusing multiply and add.
func dot(a, b []float64) float64 {
	var s [4]float64
	b = b[:len(a)]
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s[0] += float64(a[i] * b[i])
		s[1] += float64(a[i+1] * b[i+1])
		s[2] += float64(a[i+2] * b[i+2])
		s[3] += float64(a[i+3] * b[i+3])
	}
	for ; i < len(a); i++ {
		s[0] += float64(a[i] * b[i])
	}
	return s[0] + s[1] + (s[2] + s[3])
}
