package gemm

import (
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
)

func randoms(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// fma is a fused multiply-add in float32: the sum is rounded to odd in float64, so
// that the second rounding cannot err.
func fma(x, y, z float32) float32 {
	p, c := float64(x)*float64(y), float64(z) // the product is exact
	s := p + c
	t := s - p
	if rest := (p - (s - t)) + (c - t); rest != 0 && math.Float64bits(s)&1 == 0 {
		if (rest > 0) == (s > 0) {
			s = math.Float64frombits(math.Float64bits(s) + 1)
		} else {
			s = math.Float64frombits(math.Float64bits(s) - 1)
		}
	}
	return float32(s)
}

// reference is the order that the package promises.
func reference(c, a, b matrix, m, n, k int, acc, fused bool) {
	for i := range m {
		for j := range n {
			var total float32
			for q := 0; q < k; q += BlockK {
				var s float32
				for p := q; p < min(k, q+BlockK); p++ {
					x, y := a.data[i*a.row+p*a.col], b.data[p*b.row+j*b.col]
					if fused {
						s = fma(x, y, s)
					} else {
						s += float32(x * y)
					}
				}
				if q == 0 && !acc {
					total = s
				} else if q == 0 {
					total = c.data[i*c.row+j] + s
				} else {
					total += s
				}
			}
			c.data[i*c.row+j] = total
		}
	}
}

func withKernel(t testing.TB, kn kernel) {
	old := active
	active = &kn
	t.Cleanup(func() { active = old })
}

type form struct {
	name string
	f    func(c, a, b View, m, n, k int, acc bool)
}

var forms = []form{{"NT", NTView}, {"NN", NNView}, {"TN", TNView}}

func (f form) shapes(m, n, k int) (aRows, aCols, bRows, bCols int) {
	switch f.name {
	case "NT":
		return m, k, n, k
	case "NN":
		return m, k, k, n
	}
	return k, m, k, n
}

func (f form) operands(a, b View) (matrix, matrix) {
	switch f.name {
	case "NT":
		return matrix{a.Data, a.Stride, 1}, matrix{b.Data, 1, b.Stride}
	case "NN":
		return matrix{a.Data, a.Stride, 1}, matrix{b.Data, b.Stride, 1}
	}
	return matrix{a.Data, 1, a.Stride}, matrix{b.Data, b.Stride, 1}
}

// TestEveryBit compares every kernel, form and kind of edge with the promised
// order of summation, with slices that end right behind the last element.
func TestEveryBit(t *testing.T) {
	sizes := [][3]int{{1, 1, 1}, {8, 32, 8}, {7, 33, 9}, {64, 192, 64}, {1, 257, 300}, {100, 1, 513}, {65, 640, 96}, {3, 1100, 70}}
	r := rand.New(rand.NewPCG(3, 4))
	for range 25 {
		sizes = append(sizes, [3]int{1 + r.IntN(40), 1 + r.IntN(70), 1 + r.IntN(90)})
	}
	for _, kn := range kernels {
		withKernel(t, kn)
		for _, f := range forms {
			for at, s := range sizes {
				m, n, k := s[0], s[1], s[2]
				aRows, aCols, bRows, bCols := f.shapes(m, n, k)
				pad := at % 3 * 5
				view := func(rows, cols int) View {
					stride := cols + pad
					return View{randoms(r, (rows-1)*stride+cols), stride}
				}
				a, b, c := view(aRows, aCols), view(bRows, bCols), view(m, n)
				acc := at%2 == 1
				want := append([]float32(nil), c.Data...)
				am, bm := f.operands(a, b)
				reference(matrix{want, c.Stride, 1}, am, bm, m, n, k, acc, kn.name != "portable")
				f.f(c, a, b, m, n, k, acc)
				for i := range want {
					if math.Float32bits(want[i]) != math.Float32bits(c.Data[i]) && (kn.name != "portable" || math.Abs(float64(want[i]-c.Data[i])) > 1e-4) {
						t.Fatalf("%s %s m %d n %d k %d acc %v: element %d of C is %g, want %g", kn.name, f.name, m, n, k, acc, i, c.Data[i], want[i])
					}
				}
			}
		}
	}
}

// TestRowAloneOrInABatch holds the promise that serving and training rely on.
func TestRowAloneOrInABatch(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, kn := range kernels {
		withKernel(t, kn)
		for range 12 {
			m, n, k := 1+r.IntN(200), 1+r.IntN(150), 1+r.IntN(600)
			a, b := randoms(r, m*k), randoms(r, n*k)
			one := make([]float32, m*n)
			for _, cores := range []int{1, 2, 5} {
				old := runtime.GOMAXPROCS(cores)
				c := make([]float32, m*n)
				NT(c, a, b, m, n, k, false)
				runtime.GOMAXPROCS(old)
				if cores == 1 {
					one = c
				} else if !equal(one, c) {
					t.Fatalf("%s m %d n %d k %d: %d cores differ from one", kn.name, m, n, k, cores)
				}
			}
			i, j := r.IntN(m), r.IntN(n)
			row := make([]float32, n)
			NT(row, a[i*k:(i+1)*k], b, 1, n, k, false)
			if !equal(row, one[i*n:(i+1)*n]) {
				t.Fatalf("%s m %d n %d k %d: row %d alone differs", kn.name, m, n, k, i)
			}
			var el [1]float32
			NT(el[:], a[i*k:(i+1)*k], b[j*k:(j+1)*k], 1, 1, k, false)
			if el[0] != one[i*n+j] {
				t.Fatalf("%s m %d n %d k %d: element (%d, %d) alone differs", kn.name, m, n, k, i, j)
			}
		}
	}
}

func TestPackedIsTheSame(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for _, kn := range kernels {
		withKernel(t, kn)
		for range 15 {
			m, n, k := 1+r.IntN(100), 1+r.IntN(150), 1+r.IntN(600)
			a, b, c := randoms(r, m*k), randoms(r, n*k), randoms(r, m*n)
			p := Pack(randoms(r, n*k), n, k)
			p.Repack(b)
			for _, acc := range []bool{true, false} {
				want := append([]float32(nil), c...)
				NT(want, a, b, m, n, k, acc)
				p.NT(c, a, m, acc)
				if !equal(c, want) {
					t.Fatalf("%s m %d n %d k %d acc %v: packed differs", kn.name, m, n, k, acc)
				}
			}
		}
	}
}

func TestDirect(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for _, kn := range kernels {
		withKernel(t, kn)
		for range 60 {
			m, n, k := 1+r.IntN(40), 8*(1+r.IntN(10)), 1+r.IntN(60)
			a, b, c := randoms(r, m*k), randoms(r, n*k), randoms(r, m*n)
			row, col := k, 1
			if r.IntN(2) == 0 {
				row, col = 1, m
			}
			for _, acc := range []bool{true, false} {
				want, pieces := append([]float32(nil), c...), append([]float32(nil), c...)
				for i := range m {
					for j := range n {
						s := want[i*n+j]
						if !acc {
							s = 0
						}
						for p := range k {
							if kn.name == "portable" {
								s += a[i*row+p*col] * b[p*n+j]
							} else {
								s = fma(a[i*row+p*col], b[p*n+j], s)
							}
						}
						want[i*n+j] = s
					}
				}
				cut := r.IntN(k + 1)
				Direct(View{pieces, n}, a, row, col, View{b, n}, m, n, cut, acc)
				if cut < k {
					Direct(View{pieces, n}, a[cut*col:], row, col, View{b[cut*n:], n}, m, n, k-cut, true)
				}
				if !equal(pieces, want) {
					t.Fatalf("%s m %d n %d k %d cut %d acc %v: differs", kn.name, m, n, k, cut, acc)
				}
			}
		}
	}
}

func equal(a, b []float32) bool {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return len(a) == len(b)
}

func TestNothingAndNothingMore(t *testing.T) {
	c := []float32{1, 2, 3, 4}
	NT(c, nil, nil, 2, 2, 0, true)
	if c[3] != 4 {
		t.Error("k 0 with acc changed C")
	}
	NT(c, nil, nil, 2, 2, 0, false)
	if c[0] != 0 || c[3] != 0 {
		t.Error("k 0 did not clear C")
	}
	NN(nil, nil, make([]float32, 6), 0, 3, 2, false)
	TN(nil, make([]float32, 6), nil, 3, 0, 2, false)
}

func TestNaNAndInfinityPass(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, kn := range kernels {
		withKernel(t, kn)
		c := make([]float32, 3)
		NT(c, []float32{inf, 1}, []float32{1, 1, 0, 1, -1, 1}, 1, 3, 2, false)
		if !math.IsInf(float64(c[0]), 1) || c[1] == c[1] || !math.IsInf(float64(c[2]), -1) {
			t.Errorf("%s: %v", kn.name, c)
		}
	}
}

func TestShapesThatDoNotFit(t *testing.T) {
	for name, f := range map[string]func(){
		"a":        func() { NT(make([]float32, 4), make([]float32, 3), make([]float32, 4), 2, 2, 2, false) },
		"b":        func() { NN(make([]float32, 4), make([]float32, 4), make([]float32, 3), 2, 2, 2, false) },
		"c":        func() { TN(make([]float32, 3), make([]float32, 4), make([]float32, 4), 2, 2, 2, false) },
		"negative": func() { TN(nil, nil, nil, -1, 2, 2, false) },
		"stride": func() {
			NTView(View{make([]float32, 9), 1}, View{make([]float32, 9), 2}, View{make([]float32, 9), 2}, 2, 2, 2, false)
		},
	} {
		func() {
			defer func() {
				if v, ok := recover().(string); !ok || !strings.Contains(v, "do not fit") {
					t.Errorf("%s: %v", name, v)
				}
			}()
			f()
		}()
	}
}

func TestCallsDoNotAllocate(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	a, b, c := randoms(r, 128*96), randoms(r, 384*96), make([]float32, 128*384)
	f := func() { NT(c, a, b, 128, 384, 96, false) }
	f()
	if n := testing.AllocsPerRun(50, f); n >= 1 {
		t.Errorf("%v allocations a call", n)
	}
}
