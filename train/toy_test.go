package train

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/model/qwenvl"
	"searchloop/internal/safetensors"
)

// toy is a policy small enough to differentiate by hand: the logits of row t are
// Out·(Here[x_t] + Before[x_{t-1}] + Seen·(patches of x_t, if it is an image's)).
type toy struct {
	vocab, dim              int
	here, before, out, seen Param
	forwards                int
	nan                     func(step int) bool // makes the gradient of the n-th backward NaN
	backwards               int
}

const (
	toyPad      = 3
	toyPatchDim = 6
)

func newToy(vocab, dim int, seed uint64) *toy {
	t := &toy{vocab: vocab, dim: dim}
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, p := range []struct {
		to    *Param
		name  string
		shape []int
	}{{&t.before, "before", []int{vocab, dim}}, {&t.here, "here", []int{vocab, dim}}, {&t.out, "out", []int{vocab, dim}}, {&t.seen, "seen", []int{toyPatchDim, dim}}} {
		n := p.shape[0] * p.shape[1]
		*p.to = Param{Name: p.name, Shape: p.shape, W: make([]float32, n), G: make([]float32, n), Vision: p.name == "seen"}
		for i := range p.to.W {
			p.to.W[i] = float32(rng.NormFloat64()) * .3
		}
	}
	return t
}

func loadToy(dir string, _ bool) (Policy, error) {
	f, err := safetensors.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_, shape, ok := f.Info("out")
	if !ok {
		return nil, fail.New(fail.BadInput, "load toy", dir, "no tensor out")
	}
	t := newToy(shape[0], shape[1], 0)
	for _, p := range t.Params() {
		if err := f.Read(p.Name, p.W); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *toy) Save(dir string) error {
	var tensors []safetensors.Tensor
	for _, p := range t.Params() {
		tensors = append(tensors, safetensors.Tensor{Name: p.Name, DType: "F32", Shape: p.Shape, F32: p.W})
	}
	if err := safetensors.Write(filepath.Join(dir, "model.safetensors"), tensors, nil); err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(dir, "config.json"), []byte("{\"model_type\": \"toy\"}\n"))
}

func (t *toy) Params() []Param { return []Param{t.before, t.here, t.out, t.seen} }

func (t *toy) ZeroGrad() {
	for _, p := range t.Params() {
		clear(p.G)
	}
}

func (t *toy) Traits() Traits {
	return Traits{Vocab: t.vocab, ImagePad: toyPad, NeverSaid: []int32{1, 2, toyPad}, Merge: 2, PatchDim: toyPatchDim}
}

func (t *toy) Positions(tokens []int32, _ [][3]int32) (pos [3][]int32, err error) {
	for a := range pos {
		pos[a] = make([]int32, len(tokens))
	}
	return pos, nil
}

type toyPass struct {
	*toy
	b     *qwenvl.Batch
	first map[int32]bool      // tokens that begin a sequence
	patch map[int32][]float32 // sum of the four patches of an image token
}

func (t *toy) Forward(b *qwenvl.Batch) (Pass, error) {
	t.forwards++
	p := &toyPass{t, b, map[int32]bool{}, map[int32][]float32{}}
	for _, c := range b.CuSeqlens {
		p.first[c] = true
	}
	for _, im := range b.Images {
		for k := range len(im.Patches) / (4 * toyPatchDim) {
			sum := make([]float32, toyPatchDim)
			for j, x := range im.Patches[k*4*toyPatchDim : (k+1)*4*toyPatchDim] {
				sum[j%toyPatchDim] += x
			}
			p.patch[im.Offset+int32(k)] = sum
		}
	}
	return p, nil
}

// sources are the rows of the tables that make up the hidden state of row r.
func (p *toyPass) sources(r int32) (here, before []float32) {
	at := func(q Param, tok int32) []float32 { return q.W[int(tok)*p.dim : (int(tok)+1)*p.dim] }
	here = at(p.here, p.b.Tokens[r])
	if !p.first[r] {
		before = at(p.before, p.b.Tokens[r-1])
	}
	return here, before
}

func (p *toyPass) hidden(r int32) []float64 {
	h := make([]float64, p.dim)
	here, before := p.sources(r)
	for d := range h {
		h[d] = float64(here[d])
		if before != nil {
			h[d] += float64(before[d])
		}
		for j, x := range p.patch[r] {
			h[d] += float64(x) * float64(p.seen.W[j*p.dim+d])
		}
	}
	return h
}

func (p *toyPass) softmax(h []float64, temperature float64) (z []float64, lse float64) {
	z = make([]float64, p.vocab)
	top := math.Inf(-1)
	for v := range z {
		for d, x := range h {
			z[v] += x * float64(p.out.W[v*p.dim+d])
		}
		z[v] /= temperature
		top = max(top, z[v])
	}
	for _, x := range z {
		lse += math.Exp(x - top)
	}
	return z, math.Log(lse) + top
}

func (p *toyPass) Score(rows, targets []int32, temperature float32) (logp, entropy []float32) {
	for i, r := range rows {
		z, lse := p.softmax(p.hidden(r), float64(temperature))
		logp = append(logp, float32(z[targets[i]]-lse))
		h := lse
		for _, x := range z {
			h -= math.Exp(x-lse) * x
		}
		entropy = append(entropy, float32(h))
	}
	return logp, entropy
}

func (p *toyPass) Backward(rows, targets []int32, temperature float32, dlogp, dentropy []float32) {
	p.backwards++
	for i, r := range rows {
		h := p.hidden(r)
		z, lse := p.softmax(h, float64(temperature))
		ent := lse
		for _, x := range z {
			ent -= math.Exp(x-lse) * x
		}
		dh := make([]float64, p.dim)
		for v, x := range z {
			q := math.Exp(x - lse)
			g := -q * float64(dlogp[i])
			if int32(v) == targets[i] {
				g += float64(dlogp[i])
			}
			g -= float64(dentropy[i]) * q * (x - lse + ent)
			g /= float64(temperature)
			for d := range dh {
				dh[d] += g * float64(p.out.W[v*p.dim+d])
				p.out.G[v*p.dim+d] += float32(g * h[d])
			}
		}
		for d, g := range dh {
			p.here.G[int(p.b.Tokens[r])*p.dim+d] += float32(g)
			if !p.first[r] {
				p.before.G[int(p.b.Tokens[r-1])*p.dim+d] += float32(g)
			}
			for j, x := range p.patch[r] {
				p.seen.G[j*p.dim+d] += x * float32(g)
			}
		}
	}
	if p.nan != nil && p.nan(p.backwards) {
		p.out.G[0] = float32(math.NaN())
	}
}

func (p *toyPass) Release() {}

// The toy's gradient is that of its scores.
func TestToyGradient(t *testing.T) {
	m := newToy(7, 4, 1)
	b := &qwenvl.Batch{Tokens: []int32{0, 5, toyPad, 6, 4, 4, 5}, CuSeqlens: []int32{0, 4, 7},
		Images: []qwenvl.Image{{Grid: [3]int32{1, 2, 2}, Offset: 2, Patches: make([]float32, 4*toyPatchDim)}}}
	for i := range b.Images[0].Patches {
		b.Images[0].Patches[i] = float32(i%5) * .1
	}
	rows, targets := []int32{1, 2, 5}, []int32{4, 6, 5}
	dl, de := []float32{.3, -1, .7}, []float32{.2, .1, -.4}
	value := func() float64 {
		p, _ := m.Forward(b)
		logp, ent := p.Score(rows, targets, .7)
		v := 0.0
		for i := range logp {
			v += float64(dl[i])*float64(logp[i]) + float64(de[i])*float64(ent[i])
		}
		return v
	}
	p, _ := m.Forward(b)
	p.Backward(rows, targets, .7, dl, de)
	for _, q := range m.Params() {
		for i := range q.W {
			w := q.W[i]
			const e = 1.0 / 64
			q.W[i] = w + e
			up := value()
			q.W[i] = w - e
			down := value()
			q.W[i] = w
			near(t, q.Name, float64(q.G[i]), (up-down)/(2*e), 2e-3)
		}
	}
}

// toyFolder writes a policy folder with files that must travel along.
func toyFolder(t testing.TB, dir string, vocab, dim int, seed uint64) {
	t.Helper()
	if err := newToy(vocab, dim, seed).Save(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"generation_config.json", "vocab.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}
