//go:build cuda

package qwenvl

import (
	"encoding/json"
	"math"
	"os"
	"sync"
	"testing"

	"searchloop/internal/tensor"
	"searchloop/internal/tensor/cuda"
)

var openGPU = sync.OnceValues(func() (*cuda.Backend, error) { return cuda.New(0) })

func gpu(t testing.TB) tensor.Backend {
	t.Helper()
	be, err := openGPU()
	if err != nil {
		t.Skip(err)
	}
	return be
}

func onGPU(t testing.TB, dir string) *Model {
	t.Helper()
	m, err := LoadOn(gpu(t), dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The whole model in bfloat16 on the GPU is at most twice as far from the
// float32 golden values as transformers in bfloat16 is (testdata/golden_bf16.py).
// Gradients are compared all together, and one by one with more room: a single
// small tensor may be lucky in either program.
func TestGPUAgainstTransformers(t *testing.T) {
	gpu(t)
	raw, err := os.ReadFile("testdata/bf16.json")
	if err != nil {
		t.Fatal(err)
	}
	var peer struct {
		Cases map[string]struct {
			Logits float64
			Grads  map[string]float64
		}
	}
	if err := json.Unmarshal(raw, &peer); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"golden", "families"} {
		g := loadGoldens(t, file)
		for _, c := range g.Cases {
			t.Run(c.Name, func(t *testing.T) {
				theirs := peer.Cases[c.Name]
				m := onGPU(t, c.folder())
				b, _ := pack(t, m.Config(), c)
				p := forward(t, m, b)
				ours := relative(allLogits(p), g.tensor(t, c.Name+".logits"))
				t.Logf("logits: ours %.2e, transformers %.2e", ours, theirs.Logits)
				if !(ours <= 2*theirs.Logits) {
					t.Errorf("logits: error %g, transformers' is %g", ours, theirs.Logits)
				}
				p.Score(c.Rows, c.Targets, g.Temperature)
				p.Backward(c.Rows, c.Targets, g.Temperature, c.A, c.B)
				p.Release()
				var sumOurs, sumTheirs, n float64
				for _, q := range m.Params() {
					got := make([]float32, q.G.Len())
					m.be.Download(got, q.G)
					key := longName(m, q.Name)
					name := c.Name + ".grad." + key
					if _, _, ok := g.tensors.Info(name); !ok {
						for _, x := range got {
							if x != 0 {
								t.Fatalf("%s: gradient %g, want none", q.Name, x)
							}
						}
						continue
					}
					e, ref := relative(got, g.tensor(t, name)), theirs.Grads[key]
					if ref == 0 { // nothing flows there
						continue
					}
					if !(e <= 4*ref+1e-2) {
						t.Errorf("%s: error %.2e, transformers' is %.2e", q.Name, e, ref)
					}
					sumOurs, sumTheirs, n = sumOurs+e*e, sumTheirs+ref*ref, n+1
				}
				e, ref := math.Sqrt(sumOurs/n), math.Sqrt(sumTheirs/n)
				t.Logf("gradients: ours %.2e, transformers %.2e", e, ref)
				if !(e <= 2*ref) {
					t.Errorf("gradients: error %g, transformers' is %g", e, ref)
				}
			})
		}
	}
}

// Through the cache the last token's logits are those of the whole pass.
func TestGPUExtend(t *testing.T) {
	g := loadGoldens(t, "golden")
	gpu(t)
	for _, c := range g.Cases {
		m := onGPU(t, c.folder())
		b, _ := pack(t, m.Config(), c)
		p := forward(t, m, b)
		want := allLogits(p)
		p.Release()
		v := m.Config().Vocab
		cache := m.NewCache(len(c.Tokens) + 1)
		logits, err := m.Extend([]Step{{Cache: cache, Tokens: c.Tokens, Positions: b.Positions, Images: b.Images}})
		if err != nil {
			t.Fatal(err)
		}
		// Both are some rounding away from the truth.
		if e := relative(logits[0], want[len(want)-v:]); !(e < 4e-2) {
			t.Errorf("%s: the cache's logits are %g away", c.Name, e)
		}
	}
}

// Experts on the GPU: with the routes of the CPU, since a router whose logits are
// rounded may choose others, every gradient is near the CPU's; and two passes with
// routes of their own give the same bits.
func TestGPUSparse(t *testing.T) {
	gpu(t)
	g := loadGoldens(t, "moe")
	for _, c := range g.Cases {
		if c.folder() != "testdata/moe" { // the other has 6 experts: no multiple of 8
			continue
		}
		pass := func(m *Model, routes [][]int32) ([][]float32, [][]int32) {
			b, _ := pack(t, m.Config(), c)
			b.Routes = routes
			m.ZeroGrad()
			p := forward(t, m, b)
			p.Score(c.Rows, c.Targets, g.Temperature)
			routes = p.Routes()
			p.Backward(c.Rows, c.Targets, g.Temperature, c.A, c.B)
			p.Release()
			var grads [][]float32
			for _, q := range m.Params() {
				x := make([]float32, q.G.Len())
				m.be.Download(x, q.G)
				grads = append(grads, x)
			}
			return grads, routes
		}
		host, dev := mustLoad(t, c.folder()), onGPU(t, c.folder())
		want, routes := pass(host, nil)
		got, _ := pass(dev, routes)
		var off, all float64
		for i := range want {
			for k, x := range want[i] {
				d := float64(got[i][k] - x)
				off, all = off+d*d, all+float64(x)*float64(x)
			}
		}
		e := math.Sqrt(off / all)
		t.Logf("%s: gradients are %.2e away", c.Name, e)
		if !(e < 3e-2) {
			t.Errorf("%s: gradients are %g away", c.Name, e)
		}
		first, _ := pass(dev, nil)
		again, _ := pass(dev, nil)
		for i := range first {
			for k := range first[i] {
				if first[i][k] != again[i][k] {
					t.Fatalf("%s: two passes differ in %s", c.Name, dev.params[i].Name)
				}
			}
		}
	}
}
