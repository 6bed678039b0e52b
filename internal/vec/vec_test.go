package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func randoms(r *rand.Rand, n int, scale float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * scale)
	}
	return x
}

var inf = float32(math.Inf(1))
var nan = float32(math.NaN())

func TestExpIsAccurate(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, 1<<18)
	for i := range x {
		x[i] = float32(r.Float64()*176 - 87.3)
		if i%2 == 0 {
			x[i] = float32(r.NormFloat64())
		}
	}
	dst := make([]float32, len(x))
	eachLevel(func(level string) {
		Exp(dst, x)
		worst := 0.0
		for i := range x {
			if want := math.Exp(float64(x[i])); want <= math.MaxFloat32 {
				worst = max(worst, math.Abs(float64(dst[i])-want)/want)
			}
		}
		t.Logf("%s: relative error %.3g", level, worst)
		if !(worst < 2e-7) {
			t.Errorf("%s: relative error %g", level, worst)
		}
	})
}

func TestExpAtTheEdges(t *testing.T) {
	x := []float32{0, float32(math.Copysign(0, -1)), expMax, math.Nextafter32(expMax, 100), 89, 1e30, inf, expMin, math.Nextafter32(expMin, -100), -88, -1e30, -inf, nan, 1, 1e-20}
	want := []float32{1, 1, 3.402798e38, inf, inf, inf, inf, 1.1754948e-38, 0, 0, 0, 0, nan, math.E, 1}
	eachLevel(func(level string) {
		got := make([]float32, len(x))
		Exp(got, x)
		for i := range x {
			if d := math.Abs(float64(got[i]-want[i])) / float64(want[i]); got[i] != want[i] && !(d < 1e-5) && !(got[i] != got[i] && want[i] != want[i]) {
				t.Errorf("%s: e^%g = %g, want %g", level, x[i], got[i], want[i])
			}
		}
	})
}

// op is a function of the package in a form that one test can run: it reads in
// and changes out; ref gives the exact result for out's element i.
type op struct {
	name    string
	in, out int
	run     func(out, in [][]float32)
	ref     func(o, i int, out, in func(k, i int) float64) float64
	scale   float64
}

func sigma(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
func phi(x float64) float64   { return 0.5 * math.Erfc(-x/math.Sqrt2) }

var ops = []op{
	{"Add", 2, 1, func(o, x [][]float32) { Add(o[0], x[0], x[1]) }, func(_, i int, o, x func(int, int) float64) float64 { return x(0, i) + x(1, i) }, 1},
	{"Sub", 2, 1, func(o, x [][]float32) { Sub(o[0], x[0], x[1]) }, func(_, i int, o, x func(int, int) float64) float64 { return x(0, i) - x(1, i) }, 1},
	{"Mul", 2, 1, func(o, x [][]float32) { Mul(o[0], x[0], x[1]) }, func(_, i int, o, x func(int, int) float64) float64 { return x(0, i) * x(1, i) }, 1},
	{"MulAdd", 2, 1, func(o, x [][]float32) { MulAdd(o[0], x[0], x[1]) }, func(_, i int, o, x func(int, int) float64) float64 { return o(0, i) + x(0, i)*x(1, i) }, 1},
	{"Scale", 1, 1, func(o, x [][]float32) { Scale(o[0], x[0], 0.7) }, func(_, i int, o, x func(int, int) float64) float64 { return 0.7 * x(0, i) }, 1},
	{"Axpy", 1, 1, func(o, x [][]float32) { Axpy(o[0], 0.7, x[0]) }, func(_, i int, o, x func(int, int) float64) float64 { return o(0, i) + 0.7*x(0, i) }, 1},
	{"Exp", 1, 1, func(o, x [][]float32) { Exp(o[0], x[0]) }, func(_, i int, o, x func(int, int) float64) float64 { return math.Exp(x(0, i)) }, 3},
	{"ExpSum", 1, 1, func(o, x [][]float32) { ExpSum(o[0], x[0], 2) }, func(_, i int, o, x func(int, int) float64) float64 { return math.Exp(x(0, i) - 2) }, 3},
	{"Sigmoid", 1, 1, func(o, x [][]float32) { Sigmoid(o[0], x[0]) }, func(_, i int, o, x func(int, int) float64) float64 { return sigma(x(0, i)) }, 5},
	{"SiLU", 1, 1, func(o, x [][]float32) { SiLU(o[0], x[0]) }, func(_, i int, o, x func(int, int) float64) float64 { return x(0, i) * sigma(x(0, i)) }, 5},
	{"SwiGLU", 2, 1, func(o, x [][]float32) { SwiGLU(o[0], x[0], x[1]) }, func(_, i int, o, x func(int, int) float64) float64 { return x(0, i) * sigma(x(0, i)) * x(1, i) }, 3},
	{"SwiGLUBackward", 3, 2, func(o, x [][]float32) { SwiGLUBackward(o[0], o[1], x[0], x[1], x[2]) }, func(k, i int, o, x func(int, int) float64) float64 {
		g, u, d := x(0, i), x(1, i), x(2, i)
		if k == 1 {
			return d * g * sigma(g)
		}
		return d * u * (sigma(g) + g*sigma(g)*(1-sigma(g)))
	}, 3},
	{"GELU", 1, 1, func(o, x [][]float32) { GELU(o[0], x[0]) }, func(_, i int, o, x func(int, int) float64) float64 { return x(0, i) * phi(x(0, i)) }, 3},
	{"GELUBackward", 2, 1, func(o, x [][]float32) { GELUBackward(o[0], x[0], x[1]) }, func(_, i int, o, x func(int, int) float64) float64 {
		v := x(0, i)
		return x(1, i) * (phi(v) + v*math.Exp(-v*v/2)/math.Sqrt(2*math.Pi))
	}, 3},
	{"GELUTanh", 1, 1, func(o, x [][]float32) { GELUTanh(o[0], x[0]) }, func(_, i int, o, x func(int, int) float64) float64 { return geluTanh64(x(0, i)) }, 3},
	{"GELUTanhBackward", 2, 1, func(o, x [][]float32) { GELUTanhBackward(o[0], x[0], x[1]) }, func(_, i int, o, x func(int, int) float64) float64 {
		v := x(0, i)
		return x(1, i) * (geluTanh64(v+1e-5) - geluTanh64(v-1e-5)) / 2e-5
	}, 3},
	{"centre", 1, 1, func(o, x [][]float32) { centre(o[0], x[0], 0.3, 0.7) }, func(_, i int, o, x func(int, int) float64) float64 { return (x(0, i) - 0.3) * 0.7 }, 1},
	{"axpyShift", 1, 1, func(o, x [][]float32) { axpyShift(o[0], 0.3, x[0], 0.7) }, func(_, i int, o, x func(int, int) float64) float64 { return o(0, i) + 0.3*x(0, i) + 0.7 }, 1},
	{"SoftmaxBackward", 2, 1, func(o, x [][]float32) { softmaxBackward(o[0], x[0], x[1], 0.3, 0.5) }, func(_, i int, o, x func(int, int) float64) float64 { return 0.5 * x(0, i) * (x(1, i) - 0.3) }, 1},
}

func geluTanh64(x float64) float64 {
	return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
}

// TestElementwise compares with float64 at every length and alignment, checks
// that nothing else is written, that AVX2 and AVX-512 agree to the bit and that
// an element's result does not depend on its place.
func TestElementwise(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, op := range ops {
		for n := range 70 {
			offset := n % 5
			in, start := make([][]float32, op.in), make([][]float32, op.out)
			for k := range in {
				in[k] = randoms(r, n+offset, op.scale)[offset:]
			}
			for k := range start {
				start[k] = randoms(r, n+offset+20, 1)
			}
			var avx2 [][]float32
			eachLevel(func(level string) {
				whole, out := make([][]float32, op.out), make([][]float32, op.out)
				for k := range out {
					whole[k] = append([]float32(nil), start[k]...)
					out[k] = whole[k][offset : offset+n]
				}
				op.run(out, in)
				for k := range out {
					for i, v := range whole[k] {
						if (i < offset || i >= offset+n) && v != start[k][i] {
							t.Fatalf("%s %s n %d: wrote outside", op.name, level, n)
						}
					}
					for i, v := range out[k] {
						want := op.ref(k, i, func(k, i int) float64 { return float64(start[k][offset+i]) }, func(k, i int) float64 { return float64(in[k][i]) })
						if d := math.Abs(float64(v) - want); !(d < 1e-6*(1+math.Abs(want))) {
							t.Fatalf("%s %s n %d: element %d is %g, want %g", op.name, level, n, i, v, want)
						}
						if level == "AVX-512" && math.Float32bits(v) != math.Float32bits(avx2[k][i]) {
							t.Fatalf("%s n %d: AVX-512 gives %g, AVX2 %g", op.name, n, v, avx2[k][i])
						}
					}
				}
				if level == "AVX2" {
					avx2 = out
				}
				// One element alone.
				if n > 0 {
					j := r.IntN(n)
					one, ones := make([][]float32, op.out), make([][]float32, op.in)
					for k := range one {
						one[k] = []float32{start[k][offset+j]}
					}
					for k := range ones {
						ones[k] = in[k][j : j+1]
					}
					op.run(one, ones)
					for k := range one {
						if math.Float32bits(one[k][0]) != math.Float32bits(out[k][j]) {
							t.Fatalf("%s %s n %d: element %d alone is %g, not %g", op.name, level, n, j, one[k][0], out[k][j])
						}
					}
				}
			})
		}
	}
}

func TestActivationsAtTheEdges(t *testing.T) {
	x := []float32{inf, -inf, nan, 100, -100, 0, 12, -12}
	eachLevel(func(level string) {
		for _, c := range []struct {
			name string
			f    func(dst, x []float32)
			zero float64 // at -100
		}{{"SiLU", SiLU, 1e-40}, {"GELU", GELU, 0}, {"GELUTanh", GELUTanh, 0}} {
			d := make([]float32, len(x))
			c.f(d, x)
			if d[0] != inf || d[2] == d[2] || d[3] != 100 || math.Abs(float64(d[4])) > 1e-40 || d[5] != 0 || math.Abs(float64(d[6]-12)) > 1e-4 || !(d[7] <= 0 && d[7] > -1e-4) {
				t.Errorf("%s %s: %v", level, c.name, d)
			}
		}
		d := make([]float32, len(x))
		Sigmoid(d, x)
		if d[0] != 1 || d[1] != 0 || d[2] == d[2] || d[3] != 1 || d[4] > 1e-38 || d[5] != 0.5 {
			t.Errorf("%s Sigmoid: %v", level, d)
		}
	})
}

func TestReductions(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for n := range 150 {
		a, b, c := randoms(r, n+3, 1)[3:], randoms(r, n+1, 1)[1:], randoms(r, n, 1)
		var d, s, d3, sq float64
		m := math.Inf(-1)
		for i := range a {
			x, y, z := float64(a[i]), float64(b[i]), float64(c[i])
			d, s, d3, sq, m = d+x*y, s+x, d3+x*y*z, sq+(x-0.5)*(x-0.5), max(m, x)
		}
		last := map[string]float32{}
		eachLevel(func(level string) {
			for _, g := range []struct {
				name string
				got  float32
				want float64
			}{{"Dot", Dot(a, b), d}, {"Sum", Sum(a), s}, {"dot3", dot3(a, b, c), d3}, {"sumSqDiff", sumSqDiff(a, 0.5), sq}, {"Max", Max(a), m}} {
				if diff := math.Abs(float64(g.got) - g.want); diff > 1e-5*(1+math.Abs(g.want)) {
					t.Fatalf("%s %s n %d: %g, want %g", level, g.name, n, g.got, g.want)
				}
				if level == "AVX-512" && last[g.name] != g.got {
					t.Fatalf("%s n %d: AVX-512 and AVX2 differ", g.name, n)
				}
				last[g.name] = g.got
			}
		})
	}
	if Max(nil) != -inf || Sum(nil) != 0 || Dot(nil, nil) != 0 || ArgMax(nil) != -1 || ArgMax([]float32{nan, 1, 3, 3}) != 2 || ArgMax([]float32{-inf}) != 0 {
		t.Error("empty or special reductions")
	}
}

// TestOrder holds the promised order of summation of the SIMD code.
func TestNotFinite(t *testing.T) {
	nan, inf, large := float32(math.NaN()), float32(math.Inf(1)), float32(math.MaxFloat32)
	for _, n := range []int{0, 1, 7, 100, 4096, 10000} {
		x := make([]float32, n)
		for i := range x {
			x[i] = large // their sum is infinite, they are not
		}
		if at := NotFinite(x); at != -1 {
			t.Errorf("%d large numbers: %d", n, at)
		}
		for _, at := range []int{0, n / 2, n - 1} {
			for _, bad := range []float32{nan, inf, -inf} {
				if n == 0 {
					continue
				}
				y := slices.Clone(x)
				y[at] = bad
				if y[n-1] == large {
					y[n-1] = -inf // two infinities make a NaN
				}
				if got := NotFinite(y); got != at {
					t.Errorf("%v at %d of %d: found at %d", bad, at, n, got)
				}
			}
		}
	}
}

func TestOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for _, n := range []int{5, 31, 32, 33, 64, 100, 1023} {
		x := randoms(r, n, 1)
		var lane [32]float32
		for i, v := range x {
			lane[i%32] += v
		}
		for w := 16; w >= 1; w /= 2 {
			for i := range w {
				lane[i] += lane[i+w]
			}
		}
		eachLevel(func(level string) {
			if got := Sum(x); level != "generic" && got != lane[0] {
				t.Errorf("%s n %d: %g, want %g", level, n, got, lane[0])
			}
		})
	}
}

func TestSoftmax(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for _, n := range []int{1, 2, 7, 8, 33, 300} {
		x := randoms(r, n, 20)
		want := make([]float64, n)
		total, most := 0.0, math.Inf(-1)
		for _, v := range x {
			most = max(most, 0.5*float64(v))
		}
		for i, v := range x {
			want[i] = math.Exp(0.5*float64(v) - most)
			total += want[i]
		}
		eachLevel(func(level string) {
			p, tmp := append([]float32(nil), x...), make([]float32, n)
			Softmax(p, p, 0.5)
			for i := range p {
				if math.Abs(float64(p[i])-want[i]/total) > 1e-6 {
					t.Fatalf("%s n %d: p[%d] = %g, want %g", level, n, i, p[i], want[i]/total)
				}
			}
			if l := LogSumExp(x, 0.5, tmp); math.Abs(float64(l)-(most+math.Log(total))) > 1e-5 {
				t.Fatalf("%s n %d: logsumexp %g, want %g", level, n, l, most+math.Log(total))
			}
		})
	}
	x := []float32{-inf, 3, -inf}
	Softmax(x, x, 1)
	if x[0] != 0 || x[1] != 1 {
		t.Error(x)
	}
	if LogSumExp([]float32{-inf, -inf}, 1, make([]float32, 2)) != -inf {
		t.Error("logsumexp of nothing")
	}
}

// TestNormGradients compares with differences in float64.
func TestNormGradients(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for _, n := range []int{1, 5, 16, 37} {
		x, w, b, dy := randoms(r, n, 1), randoms(r, n, 1), randoms(r, n, 1), randoms(r, n, 1)
		loss := func(x, w, b []float32, at int, in []float32, h float64, layer bool) float64 {
			v := func(s []float32, i int) float64 {
				if &s[0] == &in[0] && i == at {
					return float64(s[i]) + h
				}
				return float64(s[i])
			}
			var mean, sq, sum float64
			for i := range x {
				mean += v(x, i) / float64(n)
			}
			if !layer {
				mean = 0
			}
			for i := range x {
				sq += (v(x, i) - mean) * (v(x, i) - mean) / float64(n)
			}
			for i := range x {
				y := (v(x, i) - mean) / math.Sqrt(sq+1e-2) * v(w, i)
				if layer {
					y += v(b, i)
				}
				sum += y * float64(dy[i])
			}
			return sum
		}
		eachLevel(func(level string) {
			check := func(name string, got, in []float32, layer bool) {
				for i := range got {
					want := (loss(x, w, b, i, in, 1e-5, layer) - loss(x, w, b, i, in, -1e-5, layer)) / 2e-5
					if math.Abs(float64(got[i])-1-want) > 1e-4*(1+math.Abs(want)) {
						t.Fatalf("%s %s n %d: gradient %d is %g, want %g", level, name, n, i, got[i]-1, want)
					}
				}
			}
			ones := func() []float32 {
				s := make([]float32, n)
				for i := range s {
					s[i] = 1 // gradients are added
				}
				return s
			}
			y := make([]float32, n)
			inv := RMSNorm(y, x, w, 1e-2)
			dx, dw := ones(), ones()
			RMSNormBackward(dx, dw, x, w, dy, inv)
			check("RMSNorm x", dx, x, false)
			check("RMSNorm w", dw, w, false)
			mean, inv := LayerNorm(y, x, w, b, 1e-2)
			dx, dw, db := ones(), ones(), ones()
			LayerNormBackward(dx, dw, db, x, w, dy, make([]float32, n), mean, inv)
			check("LayerNorm x", dx, x, true)
			check("LayerNorm w", dw, w, true)
			check("LayerNorm b", db, b, true)
		})
	}
}

func TestRopeTurnsAndTurnsBack(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	for _, h := range []int{1, 4, 8, 13, 32} {
		x, cos, sin := randoms(r, 2*h, 1), make([]float32, h), make([]float32, h)
		for i := range cos {
			s, c := math.Sincos(float64(i) + 0.3)
			cos[i], sin[i] = float32(c), float32(s)
		}
		eachLevel(func(level string) {
			y := append([]float32(nil), x...)
			Rope(y, cos, sin, false)
			for i := range h {
				if want := x[i]*cos[i] - x[i+h]*sin[i]; math.Abs(float64(y[i]-want)) > 1e-6 {
					t.Fatalf("%s h %d: %g, want %g", level, h, y[i], want)
				}
			}
			Rope(y, cos, sin, true)
			for i := range y {
				if math.Abs(float64(y[i]-x[i])) > 1e-6 {
					t.Fatalf("%s h %d: back is %g, not %g", level, h, y[i], x[i])
				}
			}
		})
	}
}

func TestRows(t *testing.T) {
	x := []float32{1, 2, 3, 4, 5, 6}
	AddRows(x, []float32{10, 20, 30})
	d := make([]float32, 3)
	SumRows(d, x)
	if fmt.Sprint(x, d) != "[11 22 33 14 25 36] [25 47 69]" {
		t.Error(x, d)
	}
}

func TestLengthsThatDiffer(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	Add(make([]float32, 3), make([]float32, 3), make([]float32, 4))
}
