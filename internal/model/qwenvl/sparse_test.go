package qwenvl

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"searchloop/internal/safetensors"
)

// Tokens go to the experts that transformers' routers choose.
func TestRoutes(t *testing.T) {
	g := loadGoldens(t, "moe")
	for _, c := range g.Cases {
		m := mustLoad(t, c.folder())
		b, _ := pack(t, m.Config(), c)
		p := forward(t, m, b)
		allLogits(p) // asks for every row of the last layer
		var got [][][]int32
		for _, r := range p.Routes() {
			if r != nil {
				got = append(got, slices.Collect(slices.Chunk(r, m.Config().TopExperts)))
			}
		}
		p.Release()
		if fmt.Sprint(got) != fmt.Sprint(c.Routes) {
			t.Errorf("%s: %v\nwant %v", c.Name, got, c.Routes)
		}
	}
}

func routedGradients(t *testing.T, m *Model, g *golden, c *goldenCase, routes [][]int32) (logp []float32, grads [][]float32, own [][]int32) {
	t.Helper()
	b, _ := pack(t, m.Config(), *c)
	b.Routes = routes
	p := forward(t, m, b)
	m.ZeroGrad()
	logp, _ = p.Score(c.Rows, c.Targets, g.Temperature)
	p.Backward(c.Rows, c.Targets, g.Temperature, c.A, c.B)
	own = p.Routes()
	p.Release()
	for _, q := range m.Params() {
		grads = append(grads, slices.Clone(q.G.Host()))
	}
	return logp, grads, own
}

// To replay a model's own routing changes no bit (facts T22).
func TestT22ReplayOfOwnRoutesChangesNothing(t *testing.T) {
	g := loadGoldens(t, "moe")
	for _, c := range g.Cases {
		m := mustLoad(t, c.folder())
		logp, grads, own := routedGradients(t, m, g, &c, nil)
		logp2, grads2, own2 := routedGradients(t, m, g, &c, own)
		if !slices.Equal(logp, logp2) || !slices.EqualFunc(grads, grads2, slices.Equal[[]float32]) || fmt.Sprint(own) != fmt.Sprint(own2) {
			t.Errorf("%s: replay differs", c.Name)
		}
	}
}

// Routes that the present router would not choose are taken all the same, with
// weights and a router gradient of the present logits: the slope of the loss
// along a router weight is what differences say, although the expert is one of
// the least likely.
func TestT22ForeignRoutesKeepTheirGradient(t *testing.T) {
	g := loadGoldens(t, "moe")
	c := g.Cases[len(g.Cases)-1]
	m := mustLoad(t, c.folder())
	cfg := m.Config()
	_, _, own := routedGradients(t, m, g, &c, nil)
	routes := make([][]int32, len(own))
	for i, r := range own {
		routes[i] = slices.Clone(r)
		for tok := range len(r) / cfg.TopExperts {
			top := routes[i][tok*cfg.TopExperts : (tok+1)*cfg.TopExperts]
			for e := int32(cfg.Experts) - 1; top[0] >= 0; e-- {
				if !slices.Contains(top, e) {
					top[len(top)-1] = e
					break
				}
			}
		}
	}
	_, grads, taken := routedGradients(t, m, g, &c, routes)
	if fmt.Sprint(taken) != fmt.Sprint(routes) {
		t.Fatalf("took %v, want %v", taken, routes)
	}
	objective := func() float64 {
		b, _ := pack(t, cfg, c)
		b.Routes = routes
		p := forward(t, m, b)
		defer p.Release()
		logp, entropy := p.Score(c.Rows, c.Targets, g.Temperature)
		sum := 0.0
		for i := range logp {
			sum += float64(c.A[i])*float64(logp[i]) + float64(c.B[i])*float64(entropy[i])
		}
		return sum
	}
	checked := 0
	for i, q := range m.Params() {
		if len(q.Shape) != 2 || q.Shape[0] != cfg.Experts {
			continue
		}
		w, at := q.W.Host(), 0
		for j := range grads[i] {
			if math.Abs(float64(grads[i][j])) > math.Abs(float64(grads[i][at])) {
				at = j
			}
		}
		const step = 1e-2
		was := w[at]
		w[at] = was + step
		up := objective()
		w[at] = was - step
		down := objective()
		w[at] = was
		if slope := (up - down) / (2 * step); math.Abs(slope-float64(grads[i][at])) > 2e-2*math.Abs(slope) {
			t.Errorf("%s[%d]: gradient %g, differences give %g", q.Name, at, grads[i][at], slope)
		}
		checked++
	}
	if checked == 0 {
		t.Fatal("no router")
	}
}

func TestBadRoutes(t *testing.T) {
	g := loadGoldens(t, "moe")
	c := g.Cases[0]
	m := mustLoad(t, c.folder())
	n := len(c.Tokens)
	good := make([]int32, n*2)
	for i := range good {
		good[i] = int32(i % 2)
	}
	for name, routes := range map[string][][]int32{
		"layers": {nil}, "dense": {good, nil, nil}, "short": {nil, good[2:], nil},
		"unknown": {nil, append([]int32{0, 6}, good[2:]...), nil}, "twice": {nil, append([]int32{1, 1}, good[2:]...), nil},
	} {
		b, _ := pack(t, m.Config(), c)
		b.Routes = routes
		if _, err := m.Forward(b); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// The published layout, experts as [in, out], is the same model, and is saved as
// it was loaded.
func TestTransposedExperts(t *testing.T) {
	g := loadGoldens(t, "moe")
	c := g.Cases[0]
	files, err := safetensors.Open(c.folder())
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	dir := t.TempDir()
	var out []safetensors.Tensor
	for _, name := range files.Names() {
		x, err := files.Float32(name)
		if err != nil {
			t.Fatal(err)
		}
		dtype, shape, _ := files.Info(name)
		shape = slices.Clone(shape)
		if len(shape) == 3 {
			y := make([]float32, len(x))
			rows, cols := shape[1], shape[2]
			for e := range shape[0] {
				for r := range rows {
					for k := range cols {
						y[e*rows*cols+k*rows+r] = x[e*rows*cols+r*cols+k]
					}
				}
			}
			x, shape[1], shape[2] = y, cols, rows
		}
		out = append(out, safetensors.Tensor{Name: name, DType: dtype, Shape: shape, F32: x})
	}
	if err := safetensors.Write(filepath.Join(dir, safetensors.FileName), out, files.Metadata()); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(c.folder(), "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644); err != nil {
		t.Fatal(err)
	}
	plain, turned := mustLoad(t, c.folder()), mustLoad(t, dir)
	logp, grads, _ := routedGradients(t, plain, g, &c, nil)
	logp2, grads2, _ := routedGradients(t, turned, g, &c, nil)
	near(t, "logp", logp2, logp, 1e-5)
	for i, q := range plain.Params() {
		if len(q.Shape) == 3 {
			continue // transposed too
		}
		if d := relative(grads2[i], grads[i]); d > 1e-4 {
			t.Errorf("%s: gradients differ by %g", q.Name, d)
		}
	}
	again := t.TempDir()
	if err := turned.Save(again); err != nil {
		t.Fatal(err)
	}
	a, err1 := os.ReadFile(filepath.Join(dir, safetensors.FileName))
	b, err2 := os.ReadFile(filepath.Join(again, safetensors.FileName))
	if err1 != nil || err2 != nil || string(a) != string(b) {
		t.Error("saved otherwise than loaded")
	}
}
