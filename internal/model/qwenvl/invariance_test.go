package qwenvl

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// bits compares float32 slices bit by bit.
func bits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: bits differ at %d: %g, want %g", what, i, got[i], want[i])
		}
	}
}

// mixedPack is a pack of sequences of unlike lengths, every second one with an
// image, some of them longer than a page of the cache and than a block of rows.
func mixedPack(cfg Config, lengths ...int) *Batch {
	all := &Batch{CuSeqlens: []int32{0}}
	for i, n := range lengths {
		b, _, _ := demoPack(cfg, 1, n, i%2 == 1)
		for j := range b.Tokens { // unlike texts
			if b.Tokens[j] < 600 {
				b.Tokens[j] = (b.Tokens[j] + int32(17*i)) % 600
			}
		}
		base := int32(len(all.Tokens))
		for _, im := range b.Images {
			im.Offset += base
			all.Images = append(all.Images, im)
		}
		all.Tokens = append(all.Tokens, b.Tokens...)
		for a := range all.Positions {
			all.Positions[a] = append(all.Positions[a], b.Positions[a]...)
		}
		all.CuSeqlens = append(all.CuSeqlens, base+int32(n))
	}
	return all
}

// part is sequence i of a pack alone.
func (b *Batch) part(m *Model, i int) *Batch {
	s := cut(m, b)[i]
	return &Batch{Tokens: s.Tokens, CuSeqlens: []int32{0, int32(len(s.Tokens))}, Positions: s.Positions, Images: s.Images}
}

var mixedLengths = []int{33, 70, 1, 150, 64, 29, 131}

func TestSequenceAloneAndInAPack(t *testing.T) {
	cfg := demoConfig()
	m := Init(cfg, 3)
	b := mixedPack(cfg, mixedLengths...)
	p := forward(t, m, b)
	packed := allLogits(p)
	p.Release()
	for i := range mixedLengths {
		one := b.part(m, i)
		q := forward(t, m, one)
		bits(t, fmt.Sprint("sequence ", i), allLogits(q), packed[int(b.CuSeqlens[i])*cfg.Vocab:int(b.CuSeqlens[i+1])*cfg.Vocab])
		q.Release()
	}
	// What one sequence says does not reach the others.
	other := mixedPack(cfg, mixedLengths...)
	for i := range int(other.CuSeqlens[1]) {
		other.Tokens[i] = (other.Tokens[i] + 1) % 600
	}
	p = forward(t, m, other)
	bits(t, "after a change of sequence 0", allLogits(p)[mixedLengths[0]*cfg.Vocab:], packed[mixedLengths[0]*cfg.Vocab:])
	p.Release()
}

// A sequence's gradients add up over packs; the order of addition differs.
func TestGradientsOfAPackAreTheSum(t *testing.T) {
	cfg := demoConfig()
	m := Init(cfg, 3)
	b := mixedPack(cfg, mixedLengths...)
	whole := gradients(t, m, b)
	m.ZeroGrad()
	for i := range mixedLengths {
		if i != 2 { // one token: nothing to score
			addGradients(t, m, b.part(m, i))
		}
	}
	for i, q := range m.Params() {
		if d := relative(q.G.Host(), whole[i]); d > 1e-5 {
			t.Errorf("%s: relative difference %g", q.Name, d)
		}
	}
	// And the same pass again gives the same bits, with memory used before.
	for i, g := range gradients(t, m, b) {
		bits(t, m.Params()[i].Name, g, whole[i])
	}
}

// addGradients scores every token of the pack that has one before it, with
// coefficients of both signs.
func addGradients(t *testing.T, m *Model, b *Batch) {
	t.Helper()
	var rows, targets []int32
	var dlogp, dent []float32
	for s := 1; s < len(b.CuSeqlens); s++ {
		for r := b.CuSeqlens[s-1]; r+1 < b.CuSeqlens[s]; r++ {
			rows, targets = append(rows, r), append(targets, b.Tokens[r+1])
			k := float32(r - b.CuSeqlens[s-1])
			dlogp, dent = append(dlogp, float32(math.Sin(float64(k)))), append(dent, 0.1*float32(math.Cos(float64(k))))
		}
	}
	p := forward(t, m, b)
	p.Score(rows, targets, 0.7)
	p.Backward(rows, targets, 0.7, dlogp, dent)
	p.Release()
}

func gradients(t *testing.T, m *Model, b *Batch) [][]float32 {
	m.ZeroGrad()
	addGradients(t, m, b)
	var all [][]float32
	for _, q := range m.Params() {
		all = append(all, slices.Clone(q.G.Host()))
	}
	return all
}

func TestExtendEqualsForward(t *testing.T) {
	cfg := demoConfig()
	m := Init(cfg, 4)
	b := mixedPack(cfg, mixedLengths...)
	p := forward(t, m, b)
	want := allLogits(p)
	p.Release()
	row := func(r int) []float32 { return want[r*cfg.Vocab : (r+1)*cfg.Vocab] }

	// Whole prompts, all at once.
	whole := cut(m, b)
	logits := extend(t, m, whole)
	for i := range whole {
		bits(t, fmt.Sprint("prompt ", i), logits[i], row(int(b.CuSeqlens[i+1])-1))
		if whole[i].Cache.Len() != mixedLengths[i] {
			t.Errorf("cache of %d tokens holds %d", mixedLengths[i], whole[i].Cache.Len())
		}
	}
	// In pieces of every size, an image never cut, in company and alone.
	for _, size := range []int{1, 7, 64, 100} {
		steps := cut(m, b)
		for i := range steps {
			s, from := steps[i], 0
			for from < len(s.Tokens) {
				to := min(from+size, len(s.Tokens))
				for to < len(s.Tokens) && s.Tokens[to] == cfg.ImagePadID {
					to++
				}
				step := Step{Cache: s.Cache, Tokens: s.Tokens[from:to]}
				for a := range step.Positions {
					step.Positions[a] = s.Positions[a][from:to]
				}
				for _, im := range s.Images {
					if int(im.Offset) >= from && int(im.Offset) < to {
						im.Offset -= int32(from)
						step.Images = append(step.Images, im)
					}
				}
				bits(t, fmt.Sprintf("sequence %d up to %d", i, to), extend(t, m, []Step{step})[0], row(int(b.CuSeqlens[i])+to-1))
				from = to
			}
			s.Cache.Release()
		}
	}
	// One more token for all of them together, and for each alone from a fork.
	forks := make([]*Cache, len(whole))
	next := make([]Step, len(whole))
	for i := range whole {
		forks[i] = whole[i].Cache.Fork()
		at := []int32{int32(mixedLengths[i])}
		next[i] = Step{Cache: whole[i].Cache, Tokens: []int32{int32(i + 5)}, Positions: [3][]int32{at, at, at}}
	}
	together := extend(t, m, next)
	for i := range next {
		next[i].Cache = forks[i]
		bits(t, fmt.Sprint("token after ", i), extend(t, m, next[i:i+1])[0], together[i])
	}
	// Back to the prompt and again.
	for i := range next {
		next[i].Cache.Truncate(mixedLengths[i])
		bits(t, fmt.Sprint("again after ", i), extend(t, m, next[i:i+1])[0], together[i])
	}
}

func extend(t *testing.T, m *Model, steps []Step) [][]float32 {
	t.Helper()
	logits, err := m.Extend(steps)
	if err != nil {
		t.Fatal(err)
	}
	return logits
}

// A fork that goes on does not disturb the other, whoever writes first.
func TestForksAreIndependent(t *testing.T) {
	cfg := demoConfig()
	m := Init(cfg, 4)
	b := mixedPack(cfg, 90)
	s := cut(m, b)
	extend(t, m, s)
	a, c := s[0].Cache, s[0].Cache.Fork()
	step := func(cache *Cache, token int32) []float32 {
		at := []int32{int32(cache.Len())}
		return extend(t, m, []Step{{Cache: cache, Tokens: []int32{token}, Positions: [3][]int32{at, at, at}}})[0]
	}
	var want [][]float32
	for i := range 80 {
		want = append(want, step(a, int32(i)))
	}
	for i := range 80 {
		step(c, int32(i+100))
	}
	c.Truncate(90)
	a.Truncate(90)
	for i := range 80 {
		bits(t, fmt.Sprint("token ", i), step(a, int32(i)), want[i])
		bits(t, fmt.Sprint("forked token ", i), step(c, int32(i)), want[i])
	}
	a.Release()
	c.Release()
	// Three pages each, the first of them shared.
	if used := len(m.gen.free); used != 5 {
		t.Errorf("%d pages came back, want 5", used)
	}
}

// A row with coefficients of zero has no influence, whatever is in it.
func TestMaskedRowsDoNotMatter(t *testing.T) {
	cfg := demoConfig()
	m := Init(cfg, 5)
	b := mixedPack(cfg, 40, 60)
	run := func(rows, targets []int32, dlogp []float32) [][]float32 {
		m.ZeroGrad()
		p := forward(t, m, b)
		defer p.Release()
		p.Backward(rows, targets, 1, dlogp, nil)
		var all [][]float32
		for _, q := range m.Params() {
			all = append(all, slices.Clone(q.G.Host()))
		}
		return all
	}
	want := run([]int32{5, 50}, []int32{1, 2}, []float32{1, -1})
	for i, g := range run([]int32{5, 50, 7, 90, 7}, []int32{1, 2, 3, 4, 5}, []float32{1, -1, 0, 0, 0}) {
		if d := relative(g, want[i]); d > 1e-6 {
			t.Errorf("%s: relative difference %g", m.Params()[i].Name, d)
		}
	}
	none := run([]int32{5, 50}, []int32{1, 2}, []float32{0, 0})
	for i := range none {
		for _, x := range none[i] {
			if x != 0 {
				t.Fatalf("%s: gradient %g without a loss", m.Params()[i].Name, x)
			}
		}
	}
	empty := run(nil, nil, nil)
	if len(empty) != len(none) {
		t.Error("no rows at all")
	}
}

// The chunks of the head leave no trace.
func TestScoreInChunks(t *testing.T) {
	cfg := demoConfig()
	cfg.Vocab, cfg.Hidden, cfg.Intermediate, cfg.Layers = 4096, 16, 16, 1 // up to 1024 rows of logits stay, chunks have 128 rows
	m := Init(cfg, 6)
	b := mixedPack(cfg, 700, 700)
	var rows, targets []int32
	for r := range int32(1390) {
		rows, targets = append(rows, r), append(targets, (r*31)%4000)
	}
	p := forward(t, m, b)
	defer p.Release()
	logp, ent := p.Score(rows, targets, 0.9)
	for from := 0; from < len(rows); from += 300 {
		to := min(from+300, len(rows))
		l, e := p.Score(rows[from:to], targets[from:to], 0.9)
		bits(t, "logp", l, logp[from:to])
		bits(t, "entropy", e, ent[from:to])
	}
	coef := make([]float32, len(rows))
	for i := range coef {
		coef[i] = float32(i%7) - 3
	}
	m.ZeroGrad()
	p.Backward(rows, targets, 0.9, coef, coef)
	whole := slices.Clone(m.g.Host())
	m.ZeroGrad()
	for from := 0; from < len(rows); from += 300 {
		to := min(from+300, len(rows))
		p.Backward(rows[from:to], targets[from:to], 0.9, coef[from:to], coef[from:to])
	}
	if d := relative(m.g.Host(), whole); d > 1e-5 {
		t.Errorf("gradients in pieces differ by %g", d)
	}
}

// Finite differences along one random direction in every parameter.
func TestGradientByFiniteDifferences(t *testing.T) {
	for _, layers := range []int{1, 3} { // with one, images' features come after the last layer
		t.Run(fmt.Sprint("layers=", layers), func(t *testing.T) { finiteDifferences(t, layers) })
	}
}

func finiteDifferences(t *testing.T, layers int) {
	cfg := demoConfig()
	cfg.Layers, cfg.Tied, cfg.InitStd = layers, false, 0.15
	m := Init(cfg, 7)
	b := mixedPack(cfg, 20, 40)
	rows, targets := []int32{4, 15, 50, 58, 44, 50}, []int32{9, 8, 7, 6, 5, 4} // 44 is inside the image, 50 is there twice
	dlogp, dent := []float32{1, -1, .5, 2, -.7, .4}, []float32{.3, 0, -.2, .1, .2, 0}
	loss := func() float64 {
		p := forward(t, m, b)
		defer p.Release()
		logp, ent := p.Score(rows, targets, 0.8)
		sum := 0.0
		for i := range logp {
			sum += float64(dlogp[i])*float64(logp[i]) + float64(dent[i])*float64(ent[i])
		}
		return sum
	}
	m.ZeroGrad()
	p := forward(t, m, b)
	p.Backward(rows, targets, 0.8, dlogp, dent)
	p.Release()
	state := uint64(3)
	for _, q := range m.Params() {
		g, w := q.G.Host(), q.W.Host()
		old := slices.Clone(w)
		norm := 0.0
		for _, x := range g {
			norm += float64(x) * float64(x)
		}
		if norm = math.Sqrt(norm); norm < 1e-4 {
			continue
		}

		// A random direction that leans on the gradient, so that a wrong part of it
		// shows and the difference is far above the noise.
		dir, length, slope := make([]float64, len(g)), 0.0, 0.0
		for i := range dir {
			dir[i] = float64(g[i]) * float64(splitMix(&state)%1000) / 1000
			length += dir[i] * dir[i]
		}
		length = math.Sqrt(length)
		step := 0.02 / max(norm, 1)
		move := func(by float64) float64 {
			for i := range w {
				w[i] = float32(float64(old[i]) + by*dir[i]/length)
			}
			return loss()
		}
		for i := range dir {
			slope += float64(g[i]) * dir[i] / length
		}
		got := (move(step) - move(-step)) / (2 * step)
		copy(w, old)
		if math.Abs(got-slope) > 0.02*math.Abs(slope)+2e-4 {
			t.Errorf("%s: slope %g, gradient says %g", q.Name, got, slope)
		}
	}
}
