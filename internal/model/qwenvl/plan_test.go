package qwenvl

import (
	"slices"
	"testing"

	"searchloop/internal/tensor"
)

// What is computed again has the bits of what was kept; it takes less memory,
// and the plan says how much to the byte.
func TestRecomputeAndPlan(t *testing.T) {
	for _, name := range []string{"golden", "families", "moe"} {
		g := loadGoldens(t, name)
		for _, c := range g.Cases {
			var want [][]float32
			var before int64
			for _, r := range []Recompute{RecomputeNone, RecomputeSelective, RecomputeFull} {
				m := mustLoad(t, c.folder())
				b, _ := pack(t, m.Config(), c)
				mem, err := Plan(tensor.CPU, m.Config(), r, b, c.Rows, c.Targets)
				if err != nil {
					t.Fatal(err)
				}
				m.SetRecompute(r)
				m.Reserve(mem)
				p := forward(t, m, b)
				p.Score(c.Rows, c.Targets, g.Temperature)
				p.Backward(c.Rows, c.Targets, g.Temperature, c.A, c.B)
				if a := p.ws.arena; int64(4*a.Size()) != mem.Activations || int64(4*a.Peak()) != mem.Activations {
					t.Errorf("%s, %d: planned %d bytes, held %d, used %d", c.Name, r, mem.Activations, 4*a.Size(), 4*a.Peak())
				}
				m.ZeroGrad()
				p.Backward(c.Rows, c.Targets, g.Temperature, c.A, c.B) // a second time, too
				p.Release()
				var got [][]float32
				for _, q := range m.Params() {
					got = append(got, slices.Clone(q.G.Host()))
				}
				if want == nil {
					want = got
				}
				if !slices.EqualFunc(got, want, slices.Equal[[]float32]) {
					t.Errorf("%s, %d: gradients differ", c.Name, r)
				}
				// With two layers, of which the last keeps its own, there is nothing to save.
				if r != RecomputeNone && m.cfg.Layers > 2 && mem.Activations >= before {
					t.Errorf("%s, %d: %d bytes after %d", c.Name, r, mem.Activations, before)
				}
				before = mem.Activations
				if weights := int64(4 * m.size); mem.Weights != weights || mem.Gradients != weights {
					t.Errorf("%s: planned %d and %d bytes of weights and gradients, have %d", c.Name, mem.Weights, mem.Gradients, weights)
				}
			}
		}
	}
}

// longBatch is one text of n tokens of which the last asked are scored.
func longBatch(n, asked int) (b *Batch, rows, targets []int32) {
	b = &Batch{CuSeqlens: []int32{0, int32(n)}}
	state := uint64(7)
	for i := range n {
		b.Tokens = append(b.Tokens, int32(splitMix(&state)%150000))
		for a := range b.Positions {
			b.Positions[a] = append(b.Positions[a], int32(i))
		}
		if i >= n-asked {
			rows, targets = append(rows, int32(i-1)), append(targets, b.Tokens[i])
		}
	}
	return b, rows, targets
}

// bfloat16 is the CPU's back end as far as a plan asks: with the kind of a GPU.
type bfloat16 struct{ tensor.Backend }

func (bfloat16) Working() tensor.Kind { return tensor.BFloat16 }
func (bfloat16) HeadValues() int      { return 1 << 28 }

// Qwen3-VL-8B with a sequence of 60,000 + 5,000 tokens fits a GPU of 141 GB with
// full recomputation and the optimizer's state in host memory, and not without.
func TestPlanOfALargeModel(t *testing.T) {
	b, rows, targets := longBatch(65000, 5000)
	var mem [3]Memory
	for r := range mem {
		var err error
		if mem[r], err = Plan(bfloat16{tensor.CPU}, Qwen3VL8B(), Recompute(r), b, rows, targets); err != nil {
			t.Fatal(err)
		}
		t.Logf("recompute %d: weights %.1f GiB, gradients %.1f, activations %.1f, of these head %.1f", r, float64(mem[r].Weights)/(1<<30),
			float64(mem[r].Gradients)/(1<<30), float64(mem[r].Activations)/(1<<30), float64(mem[r].Head)/(1<<30))
	}
	const gpu = 139 << 30
	if n := mem[RecomputeFull].Weights + mem[RecomputeFull].Gradients + mem[RecomputeFull].Activations; n > gpu-4<<30 {
		t.Errorf("%d bytes with full recomputation", n)
	}
	if n := mem[RecomputeNone].Weights + mem[RecomputeNone].Gradients + mem[RecomputeNone].Activations; n < gpu {
		t.Errorf("%d bytes without recomputation: the plan forgets something", n)
	}
	if params := mem[0].Weights / 2; params < 8_700_000_000 || params > 8_800_000_000 {
		t.Errorf("%d parameters", params)
	}
	if mem[RecomputeFull].Head > 1<<30+1<<28 {
		t.Errorf("the head takes %d bytes", mem[RecomputeFull].Head)
	}
}
