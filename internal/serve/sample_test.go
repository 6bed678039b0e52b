package serve

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func randomLogits(r *rand.Rand, n int) []float32 {
	l := make([]float32, n)
	for i := range l {
		l[i] = float32(r.NormFloat64() * 3)
		if r.IntN(10) == 0 && i > 0 {
			l[i] = l[i-1] // ties
		}
	}
	return l
}

// slowDraw is draw, written for clarity: sort everything, cut, renormalise, draw.
func slowDraw(s sampling, logits []float32, position int) (keep []int32, logprob []float64) {
	t := float64(s.temperature)
	if t == 0 {
		t = 1
	}
	n := len(logits)
	if len(s.banned) > 0 {
		_, logprob = slowDraw(sampling{temperature: s.temperature, topP: 1}, logits, 0)
		logits = slices.Clone(logits)
		for _, id := range s.banned {
			logits[id] = float32(math.Inf(-1))
		}
		keep, _ = slowDraw(sampling{s.temperature, s.topK, s.topP, 0, nil}, logits, 0)
		return keep, logprob
	}
	z := 0.0
	for _, l := range logits {
		z += math.Exp(float64(l) / t)
	}
	logprob = make([]float64, n)
	order := make([]int32, n)
	for i, l := range logits {
		logprob[i], order[i] = float64(l)/t-math.Log(z), int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		switch {
		case logits[a] > logits[b]:
			return -1
		case logits[a] < logits[b]:
			return 1
		}
		return int(a - b)
	})
	if s.topK > 0 && s.topK < n {
		order = order[:s.topK]
	}
	total := 0.0
	for _, id := range order {
		total += math.Exp(logprob[id])
	}
	sum := 0.0
	for i, id := range order {
		if sum += math.Exp(logprob[id]); s.topP < 1 && sum >= float64(s.topP)*total {
			order = order[:i+1]
			break
		}
	}
	if s.temperature == 0 {
		order = order[:1]
	}
	return order, logprob
}

func TestDraw(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	w := new(scratch)
	for range 3000 {
		n := 2 + r.IntN(700)
		logits := randomLogits(r, n)
		s := sampling{temperature: []float32{0, 0.3, 1, 1.7}[r.IntN(4)], topP: 1, seed: r.Uint64()}
		if r.IntN(2) == 0 {
			s.topK = 1 + r.IntN(n+5)
		}
		if r.IntN(2) == 0 {
			s.topP = float32(r.Float64())*0.98 + 0.01
		}
		if r.IntN(2) == 0 && n > 2 {
			s.banned = []int32{int32(r.IntN(n / 2)), int32(n/2 + r.IntN(n/2))}
			if r.IntN(2) == 0 {
				logits[s.banned[0]] = 40
			}
		}
		before := slices.Clone(logits)
		position := r.IntN(5000)
		d, ok := s.draw(logits, position, 5, w)
		if !ok || !slices.Equal(logits, before) {
			t.Fatalf("%+v: ok %v, logits changed %v", s, ok, !slices.Equal(logits, before))
		}
		keep, logprob := slowDraw(s, logits, position)
		if i := slices.Index(keep, d.id); i < 0 {
			// The very border of topP may fall on either side of a rounding.
			if more, _ := slowDraw(sampling{s.temperature, s.topK, min(s.topP+1e-5, 1), 0, s.banned}, logits, 0); !slices.Contains(more, d.id) {
				t.Fatalf("%+v drew %d, not one of %d kept", s, d.id, len(keep))
			}
		}
		if diff := math.Abs(float64(d.logprob) - logprob[d.id]); diff > 2e-5 {
			t.Fatalf("%+v: log-prob %v, want %v", s, d.logprob, logprob[d.id])
		}
		all, _ := slowDraw(sampling{temperature: s.temperature + 1, topP: 1, banned: s.banned}, logits, 0)
		for i, l := range d.top {
			if l.id != all[i] || math.Abs(float64(l.logprob)-logprob[l.id]) > 2e-5 {
				t.Fatalf("likeliest %d is %v, want %d", i, l, all[i])
			}
		}
		if again, _ := s.draw(logits, position, 0, new(scratch)); again.id != d.id {
			t.Fatal("the same draw gave another token")
		}
	}
}

// TestDrawShares: tokens come as often as their probabilities say.
func TestDrawShares(t *testing.T) {
	logits := []float32{0, 1, 2, -1, 0.5, 2, -30}
	w := new(scratch)
	for _, s := range []sampling{{temperature: 1, topP: 1}, {temperature: 0.7, topP: 1, topK: 4}, {temperature: 1.3, topP: 0.8}, {temperature: 1, topP: 0.9, topK: 5}} {
		keep, logprob := slowDraw(s, logits, 0)
		total := 0.0
		for _, id := range keep {
			total += math.Exp(logprob[id])
		}
		const n = 60000
		count := make([]int, len(logits))
		for i := range n {
			s.seed = uint64(i / 300)
			d, _ := s.draw(logits, i%300, 0, w)
			count[d.id]++
		}
		for id := range count {
			want := 0.0
			if slices.Contains(keep, int32(id)) {
				want = math.Exp(logprob[id]) / total
			}
			if got := float64(count[id]) / n; math.Abs(got-want) > 5*math.Sqrt(want*(1-want)/n)+1e-9 {
				t.Errorf("%+v: token %d came %.4f of the time, want %.4f", s, id, got, want)
			}
		}
	}
}

func TestDrawOddLogits(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	s := sampling{temperature: 1, topP: 1}
	for what, l := range map[string][]float32{"NaN": {1, nan, 2}, "all NaN": {nan, nan}, "+Inf": {0, inf}, "all -Inf": {-inf, -inf}} {
		if d, ok := s.draw(l, 1, 2, new(scratch)); ok {
			t.Errorf("%s: drew %v", what, d)
		}
	}
	d, ok := s.draw([]float32{-inf, 3, -inf}, 1, 3, new(scratch))
	if !ok || d.id != 1 || d.logprob != 0 {
		t.Errorf("one possible token: %+v", d)
	}
	// Neither the seed nor the position alone decides.
	same := 0
	for i := range 200 {
		if uniform(uint64(i), 5) == uniform(uint64(i)+1, 5) || uniform(9, i) == uniform(9, i+1) || uniform(uint64(i), i+1) == uniform(uint64(i+1), i) {
			same++
		}
	}
	if same > 0 {
		t.Errorf("%d equal numbers", same)
	}
}

func BenchmarkDraw(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		name string
		n    int
		s    sampling
	}{
		{"640", 640, sampling{temperature: 1, topP: 1}}, {"640topP", 640, sampling{temperature: 1, topP: 0.9}}, {"640topK", 640, sampling{temperature: 0.8, topK: 20, topP: 0.95}},
		{"151936", 151936, sampling{temperature: 1, topP: 1}}, {"151936topP", 151936, sampling{temperature: 1, topP: 0.9}},
	} {
		logits := randomLogits(r, c.n)
		w := new(scratch)
		i := 0
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				c.s.draw(logits, i, 0, w)
				i++
			}
		})
	}
}
