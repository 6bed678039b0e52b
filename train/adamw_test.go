package train

import (
	"math"
	"testing"

	"searchloop/internal/recipe"
)

func adam(t *testing.T, o recipe.Optimizer, params ...Param) *AdamW {
	t.Helper()
	a, err := NewAdamW(o, params)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// momentsOf copies both moments of tensor i.
func momentsOf(a *AdamW, i int) (m, v []float32) {
	n := a.params[i].size()
	m, v = make([]float32, n), make([]float32, n)
	a.read(i, nil, m, v)
	return m, v
}

var goldenAdam = recipe.Optimizer{Beta1: .9, Beta2: .999, Eps: 1e-8, WeightDecay: .01}

func TestAdamWValues(t *testing.T) {
	p := Param{W: f(1), G: f(.5)}
	a := adam(t, goldenAdam, p)
	a.Step(.01)
	near(t, "after one step", float64(p.W[0]), .9899, 1e-7)
	p.G[0] = -.25
	a.Step(.01)
	m, v := momentsOf(a, 0)
	near(t, "m", float64(m[0]), .02, 1e-8)
	near(t, "v", float64(v[0]), .00031225, 1e-10)
	near(t, "after two steps", float64(p.W[0]), .987137640, 1e-7)
	q := Param{W: f(1), G: f(.5), NoDecay: true}
	adam(t, goldenAdam, q).Step(.01)
	near(t, "without decay", float64(q.W[0]), .99, 1e-7)
}

func TestClipByGlobalNorm(t *testing.T) {
	o := goldenAdam
	o.ClipNorm = 1
	p, q := Param{W: f(0, 0), G: f(1, 2)}, Param{W: f(0), G: f(2)}
	a := adam(t, o, p, q)
	norm, ok := a.Step(0)
	if norm != 3 || !ok {
		t.Fatalf("norm %g, %v", norm, ok)
	}
	m, _ := momentsOf(a, 1)
	near(t, "scaled gradient", float64(m[0])/.1, 2*.333333222, 1e-7)
}

func TestNonFiniteGradientIsSkipped(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), 3e38} {
		p, q := Param{W: f(1, 2), G: f(0, float32(bad))}, Param{W: f(3), G: f(1)}
		a := adam(t, goldenAdam, p, q)
		_, ok := a.Step(.1)
		if m, _ := momentsOf(a, 1); ok || a.Skipped != 1 || a.Updates != 0 || p.W[0] != 1 || p.W[1] != 2 || q.W[0] != 3 || m[0] != 0 {
			t.Errorf("gradient %g: %+v", bad, a)
		}
	}
}

func TestUnreachedTensorIsLeftAlone(t *testing.T) {
	p, q := Param{W: f(1, 1), G: f(0, 0)}, Param{W: f(1, 1), G: f(0, 1)}
	adam(t, goldenAdam, p, q).Step(.1)
	if p.W[0] != 1 || q.W[0] == 1 {
		t.Errorf("%v %v", p.W, q.W)
	}
}

// A hundred steps of 1e-6 move a weight of 0.02, although each is a hundredth of
// the distance between neighbouring bfloat16 numbers there.
func TestSmallStepsAdd(t *testing.T) {
	o := goldenAdam
	o.WeightDecay = 0
	p := Param{W: f(.02), G: f(.3)}
	a := adam(t, o, p)
	for range 100 {
		a.Step(1e-6)
	}
	near(t, "moved", .02-float64(p.W[0]), 1e-4, 1e-6)
}

// Results do not depend on how the work is divided.
func TestStepOfLargeTensors(t *testing.T) {
	const n = 3*16384 + 17
	big := Param{W: make([]float32, n), G: make([]float32, n)}
	for i := range big.W {
		big.W[i], big.G[i] = float32(math.Sin(float64(i))), float32(math.Cos(float64(i*i)))
	}
	var parts []Param
	for lo := 0; lo < n; lo += 1000 {
		hi := min(lo+1000, n)
		parts = append(parts, Param{W: append([]float32(nil), big.W[lo:hi]...), G: append([]float32(nil), big.G[lo:hi]...)})
	}
	a, b := adam(t, goldenAdam, big), adam(t, goldenAdam, parts...)
	for range 3 {
		na, _ := a.Step(.01)
		nb, _ := b.Step(.01)
		near(t, "norm", na, nb, 1e-5*na)
	}
	for i, p := range parts {
		for j, w := range p.W {
			if w != big.W[i*1000+j] {
				t.Fatalf("element %d", i*1000+j)
			}
		}
	}
}

func TestSchedule(t *testing.T) {
	at := func(shape string, warm float64, steps ...int64) (out []float64) {
		s, err := NewSchedule(recipe.Optimizer{LR: 1, MinLR: .1, Warmup: warm, Schedule: shape}, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range steps {
			out = append(out, s.At(i))
		}
		return out
	}
	for _, c := range []struct {
		shape string
		want  []float64
	}{
		{"constant", []float64{.1, .5, 1, 1, 1, 1}},
		{"linear", []float64{.1, .5, 1, 1, .55, .11}},
		{"cosine", []float64{.1, .5, 1, 1, .55, .1 + .9*(1+math.Cos(math.Pi*89/90))/2}},
	} {
		for i, got := range at(c.shape, .1, 0, 4, 9, 10, 55, 99) {
			near(t, c.shape, got, c.want[i], 1e-12)
		}
	}
	if got := at("constant", 0, 0)[0]; got != 1 {
		t.Errorf("without warm-up: %g", got)
	}
	for _, o := range []recipe.Optimizer{{Schedule: "step"}, {Schedule: "constant", LR: -1}, {Schedule: "linear", LR: 1, MinLR: 2}, {Schedule: "linear", LR: 1, Warmup: 1}} {
		if _, err := NewSchedule(o, 10); err == nil {
			t.Errorf("%+v accepted", o)
		}
	}
}

func BenchmarkAdamW(b *testing.B) {
	const n = 1 << 19
	p := Param{W: make([]float32, n), G: make([]float32, n)}
	for i := range p.G {
		p.G[i] = float32(i%100) * 1e-4
	}
	a, err := NewAdamW(recipe.Optimizer{Beta1: .9, Beta2: .999, Eps: 1e-8, WeightDecay: .01, ClipNorm: 1}, []Param{p})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(28 * n)
	for b.Loop() {
		a.Step(1e-3)
	}
}
