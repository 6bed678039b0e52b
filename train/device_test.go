package train

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/model/qwenvl"
	"searchloop/internal/recipe"
	"searchloop/internal/tensor"
	"searchloop/rollout/trajectory"
)

// deviceKit is qwenKit as a device has it, over the CPU's back end: weights,
// gradients and moments are tensors, and no parameter has host memory of its own.
var deviceKit = kit{
	load:     func(dir string, freeze bool) (Policy, error) { return loadQwen(tensor.CPU, dir, freeze) },
	pictures: qwenPictures, renderer: qwenRenderer,
}

// qwenWorld is a tiny Qwen3-VL in dtype with rollouts that it could have played.
func qwenWorld(t testing.TB, dtype string) (toyWorld, GRPOOptions) {
	t.Helper()
	w := toyWorld{t.TempDir()}
	qwenFolderOf(t, w.at("policy"), 1, dtype)
	qwenFolderOf(t, w.at("reference"), 2, dtype)
	ids := []string{storeImage(t, w.at("images"), emblem(t, 0)), storeImage(t, w.at("images"), emblem(t, 1))}
	policy, err := LoadQwen(w.at("policy"), false)
	if err != nil {
		t.Fatal(err)
	}
	c := policy.(qwen).Config()
	var rows []trajectory.Row
	var judged []trajectory.Judged
	for i := range 16 {
		row := trajectory.Row{ID: "r" + string(rune('a'+i)), Group: string(rune('a' + i/4)), Status: trajectory.OK, LogprobMode: trajectory.LogprobProcessed, Temperature: 1, TopP: 1}
		row.TokenIDs = []int32{65, int32(66 + i%3), c.VisionStartID, c.ImagePadID, c.ImagePadID, c.VisionEndID, int32(70 + i%2), int32(80 + i%5), 90}
		if i%2 == 0 { // rows without images too
			row.TokenIDs = []int32{65, int32(66 + i%3), int32(70 + i%2), int32(80 + i%5)}
		} else {
			row.Images = []trajectory.Image{{ID: ids[i/2%2], GridT: 1, GridH: 2, GridW: 4, Offset: 3}}
		}
		row.LossMask, row.Logprobs = make([]bool, len(row.TokenIDs)), make([]float32, len(row.TokenIDs))
		for j := len(row.TokenIDs) - 2; j < len(row.TokenIDs); j++ {
			row.LossMask[j], row.Logprobs[j] = true, -5.5
		}
		rows = append(rows, row)
		judged = append(judged, trajectory.Judged{ID: row.ID, Scored: true, Reward: float64(i * i % 3)})
	}
	dataset(t, w.at("rollouts"), "rollouts", rows)
	dataset(t, w.at("judged"), "judged", judged)
	return w, w.options("")
}

var deviceSet = []string{"grpo.pack_tokens=64", "grpo.max_mismatch=0", "grpo.kl=0.1", "grpo.old_logprobs=recompute", "grpo.updates=3", "grpo.passes=2",
	"grpo.optimizer.lr=0.003", "grpo.optimizer.weight_decay=0.1"}

func runGRPO(t testing.TB, k kit, o GRPOOptions, out string, set ...string) string {
	t.Helper()
	o.Out = out
	if err := grpo(context.Background(), toyRun(t, append(deviceSet[:len(deviceSet):len(deviceSet)], set...)...), o, k); err != nil {
		t.Fatal(err)
	}
	return out
}

// What a device does is what the host does: the same run through tensors of a back
// end, and through slices, ends in the same bytes, with every way to train; all
// weights and LoRA also when it is stopped on the way and when the next epoch
// carries the state on.
func TestDevicePathIsTheHostPath(t *testing.T) {
	w, o := qwenWorld(t, "F32")
	o.Policy, o.Reference = w.at("policy"), w.at("reference")
	for name, set := range map[string][]string{
		"whole": nil, "split": {"grpo.optimizer.master=split"}, "float32": {"grpo.optimizer.master=float32"},
		"frozen": {"grpo.freeze_vision=true"}, "lora": {"grpo.lora.rank=4", "grpo.lora.alpha=8"},
		"again": {"grpo.recompute=full"}, "selective": {"grpo.recompute=selective"},
	} {
		t.Run(name, func(t *testing.T) {
			host := runGRPO(t, qwenKit, o, w.at("host "+name), set...)
			dev := runGRPO(t, deviceKit, o, w.at("device "+name), set...)
			sameCheckpoint(t, host, dev)
			if name != "whole" && name != "lora" {
				return
			}

			// Stopped after every second pack.
			stopped := o
			stopped.Out = w.at("stopped " + name)
			runs := 0
			for ; ; runs++ {
				r := toyRun(t, append(deviceSet[:len(deviceSet):len(deviceSet)], set...)...)
				k := deviceKit
				k.load = func(dir string, freeze bool) (Policy, error) {
					p, err := deviceKit.load(dir, freeze)
					if err == nil && strings.HasSuffix(dir, "policy") {
						q := p.(qwen)
						return halting{q, r, new(int)}, nil
					}
					return p, err
				}
				err := grpo(context.Background(), r, stopped, k)
				if err == nil {
					break
				}
				if kindOf(err) != fail.Interrupted {
					t.Fatal(err)
				}
			}
			if runs < 2 {
				t.Errorf("stopped %d times only", runs)
			}
			sameCheckpoint(t, host, stopped.Out)

			// The next epoch, on the other side than the one before.
			next := o
			next.Policy = host
			a := runGRPO(t, deviceKit, next, w.at("next device "+name), set...)
			next.Policy = dev
			b := runGRPO(t, qwenKit, next, w.at("next host "+name), set...)
			sameFiles(t, a, b, []string{"model.safetensors", MetricsName})
		})
	}
}

// halting is a policy whose run is told to stop when two packs were trained on.
type halting struct {
	qwen
	r *job.Run
	n *int
}

type haltingPass struct {
	Pass
	s halting
}

func (s halting) Forward(b *qwenvl.Batch) (Pass, error) {
	p, err := s.qwen.Forward(b)
	return haltingPass{p, s}, err
}

func (p haltingPass) Backward(rows, targets []int32, temperature float32, dlogp, dentropy []float32) {
	p.Pass.Backward(rows, targets, temperature, dlogp, dentropy)
	if *p.s.n++; *p.s.n == 2 {
		p.s.r.Stop()
	}
}

// A reference policy of other weights borrows the memory for passes and gives it
// back; KL is measured to it.
func TestReferenceBorrowsMemory(t *testing.T) {
	w, _ := qwenWorld(t, "F32")
	own, err := deviceKit.load(w.at("policy"), false)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := deviceKit.load(w.at("reference"), true)
	if err != nil {
		t.Fatal(err)
	}
	a, b := own.(qwen), ref.(qwen)
	a.SetRecompute(qwenvl.RecomputeFull)
	a.reserve(qwenvl.RecomputeFull, &qwenvl.Memory{Activations: 1 << 22})
	b.borrow(own)
	if a.Held() != 0 || b.Held() != 1<<22 || b.Recompute() != qwenvl.RecomputeFull {
		t.Errorf("%d and %d bytes held", a.Held(), b.Held())
	}
	a.borrow(ref)
	b.free()
	if a.Held() != 1<<22 {
		t.Errorf("%d bytes came back", a.Held())
	}
}

func TestDeviceNames(t *testing.T) {
	for name, want := range map[string]string{"": "cpu", "cpu": "cpu", "cuda": "cuda:0", "cuda:0": "cuda:0", "cuda:3": "cuda:3"} {
		d, err := NewDevice(name, slog.New(slog.DiscardHandler))
		if err != nil || d.String() != want {
			t.Errorf("%q: %v, %v", name, d, err)
		}
	}
	for _, name := range []string{"gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:01", "cuda:1:2", "CUDA", "auto:1"} {
		if _, err := NewDevice(name, slog.New(slog.DiscardHandler)); kindOf(err) != fail.Usage {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Bits depend on the device, so a checkpoint of one is no checkpoint of the other;
// and the files say where they were made.
func TestDeviceIsProvenance(t *testing.T) {
	cpu, _ := NewDevice("cpu", nil)
	gpu, _ := NewDevice("cuda:1", nil)
	if cpu.identity() != "" || gpu.identity() != "cuda/bfloat16" {
		t.Errorf("%q, %q", cpu.identity(), gpu.identity())
	}
	w := newToyWorld(t, t.TempDir(), 6, nil)
	out := mustGRPO(t, w, "out")
	first := lines(t, out)[0]
	if first["device"] != "cpu" || first["dtype"] != "float32" {
		t.Errorf("%v", first)
	}
	m, err := manifest.Open(out)
	if err != nil || !strings.Contains(string(m.Meta), `"device"`) || !strings.Contains(string(m.Meta), `"float32"`) {
		t.Errorf("%s, %v", m.Meta, err)
	}
}

// Without a GPU the job says what is missing and leaves nothing behind; auto goes
// to the CPU and says why.
func TestNoGPU(t *testing.T) {
	w, o := qwenWorld(t, "F32")
	o.Policy, o.Reference, o.Out, o.Device = w.at("policy"), w.at("reference"), w.at("out"), "cuda"
	var log bytes.Buffer
	r := toyRun(t, deviceSet...)
	r.Log = slog.New(slog.NewTextHandler(&log, nil))
	err := grpo(context.Background(), r, o, qwenKit)
	if err == nil {
		t.Skip("there is a GPU")
	}
	if kindOf(err) != fail.Usage || !strings.Contains(err.Error(), "GPU") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(o.Out, StateDir)); err == nil {
		t.Error("it has begun")
	}
	d, err := NewDevice("auto", r.Log)
	if err != nil || d.String() != "cpu" || !strings.Contains(log.String(), "training on the CPU") {
		t.Errorf("%v, %v, %s", d, err, log.String())
	}
}

// The plan is told before the first step, with the optimizer's part by the way it
// is kept.
func TestMemoryPlan(t *testing.T) {
	w, o := qwenWorld(t, "F32")
	o.Policy, o.Reference = w.at("policy"), w.at("reference")
	policy, err := LoadQwen(w.at("policy"), false)
	if err != nil {
		t.Fatal(err)
	}
	weights := int64(0)
	for _, p := range policy.Params() {
		weights += int64(p.size())
	}
	dev := &Device{class: "cuda"}
	for _, c := range []struct {
		d    *Device
		o    recipe.Optimizer
		want int64
	}{
		{nil, recipe.Optimizer{}, 8}, {nil, recipe.Optimizer{Master: MasterFloat32}, 12}, {nil, recipe.Optimizer{Master: MasterSplit}, 10}, {dev, recipe.Optimizer{}, 10},
	} {
		n := needOf(c.d, policy.(planner), qwenvl.Memory{Weights: 4 * weights, Gradients: 4 * weights}, c.o, recipe.LoRA{})
		if n.Optimizer != c.want*weights || n.Offloaded != 0 {
			t.Errorf("%v, %q: %d bytes for %d weights", c.d, c.o.Master, n.Optimizer, weights)
		}
	}
	n := needOf(dev, policy.(planner), qwenvl.Memory{Weights: 2 * weights, Gradients: 4 * weights}, recipe.Optimizer{Offload: true}, recipe.LoRA{})
	if n.Offloaded != 10*weights || n.Optimizer != offloadStage {
		t.Errorf("offloaded: %+v", n)
	}
	var log bytes.Buffer
	r := toyRun(t, deviceSet...)
	r.Log = slog.New(slog.NewTextHandler(&log, nil))
	o.Out = w.at("out")
	if err := grpo(context.Background(), r, o, qwenKit); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"memory plan", "weights=", "gradients=", "optimizer=", "activations=", "head=", "recompute=none"} {
		if !strings.Contains(log.String(), word) {
			t.Errorf("no %q in %s", word, log.String())
		}
	}
	if err := tooLarge(dev, &n, RecomputeNone, 1<<30, 2<<30, recipe.Optimizer{}); kindOf(err) != fail.Usage || !strings.Contains(err.Error(), "1.00 GiB of 2.00 GiB are free") {
		t.Errorf("%v", err)
	}
	o.Out = w.at("bad")
	if err := grpo(context.Background(), toyRun(t, "grpo.recompute=some"), o, qwenKit); kindOf(err) != fail.Usage {
		t.Errorf("%v", err)
	}
}

// Shapes that no kernel serves are refused by name.
func TestShapesThatDoNotFit(t *testing.T) {
	w := toyWorld{t.TempDir()}
	qwenFolder(t, w.at("policy"), 1)
	if err := fits(w.at("policy")); err != nil {
		t.Error(err)
	}
	c, err := qwenvl.LoadConfig(w.at("policy"))
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(c *qwenvl.Config){
		"intermediate size, 68": func(c *qwenvl.Config) { c.Intermediate = 68 },
		"head dimension is 136": func(c *qwenvl.Config) { c.HeadDim = 136 },
		"number of experts, 12": func(c *qwenvl.Config) { c.Experts, c.ExpertWidth = 12, 64 },
		"vision head dimension": func(c *qwenvl.Config) { c.Vision.Heads = 4 },
	} {
		c := c
		change(&c)
		if got := unserved(c); !strings.Contains(got, want) {
			t.Errorf("%q instead of %q", got, want)
		}
	}
}

// A run that does not fit is refused; auto takes the first way to recompute that
// does.
func TestPlanRunRefuses(t *testing.T) {
	w, o := qwenWorld(t, "F32")
	o.Policy, o.Reference = w.at("policy"), w.at("reference")
	policy, err := deviceKit.load(w.at("policy"), false)
	if err != nil {
		t.Fatal(err)
	}
	q := policy.(qwen)
	packs := [][]*Sequence{{{Tokens: make([]int32, 4000), Spans: []Span{{3990, 4000}}, Trained: 10, Temperature: 1}}}
	plan := func(how qwenvl.Recompute) int64 {
		m, err := q.plan(how, packs)
		if err != nil {
			t.Fatal(err)
		}
		n := needOf(&Device{class: "cuda"}, q, m, recipe.Optimizer{}, recipe.LoRA{})
		return n.rest() + spare
	}
	none, full := plan(qwenvl.RecomputeNone), plan(qwenvl.RecomputeFull)
	for _, c := range []struct {
		free int64
		how  string
		want qwenvl.Recompute
		ok   bool
	}{
		{none, "", qwenvl.RecomputeNone, true}, {none - 1, RecomputeNone, 0, false}, {none - 1, RecomputeFull, qwenvl.RecomputeFull, full < none}, {full - 1, "", 0, full-1 >= plan(qwenvl.RecomputeSelective)},
	} {
		free := c.free
		d := &Device{class: "cuda", be: tensor.CPU, memory: func() (int64, int64) { return free, 1 << 33 }}
		err := planRun(toyRun(t), d, policy, packs, c.how, recipe.Optimizer{}, recipe.LoRA{})
		if c.ok != (err == nil) || err != nil && !strings.Contains(err.Error(), "8.00 GiB are free") {
			t.Errorf("%d free, %q: %v", free, c.how, err)
		}
		if err == nil && q.Recompute() != c.want {
			t.Errorf("%d free, %q: recompute %d", free, c.how, q.Recompute())
		}
	}
}

// Packs that cannot be the largest are not planned, and the plan is the same.
func TestLargestPacks(t *testing.T) {
	w, _ := qwenWorld(t, "F32")
	policy, err := deviceKit.load(w.at("policy"), false)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 5))
	c := policy.(qwen).Config()
	var packs [][]*Sequence
	for range 60 {
		var pack []*Sequence
		for range 1 + rng.IntN(4) {
			s := &Sequence{Tokens: make([]int32, 6+rng.IntN(40)), Temperature: 1}
			s.Trained = 1 + rng.IntN(len(s.Tokens)-5)
			s.Spans = []Span{{int32(len(s.Tokens) - s.Trained), int32(len(s.Tokens))}}
			if rng.IntN(2) == 0 { // an image of two tokens, or of one
				n := int32(1 + rng.IntN(2))
				s.Tokens[0], s.Tokens[1] = c.ImagePadID, 65
				if n == 2 {
					s.Tokens[1] = c.ImagePadID
				}
				s.Images = []ImageRef{{"x", [3]int32{1, 2, 2 * n}, 0}}
			}
			pack = append(pack, s)
		}
		packs = append(packs, pack)
	}
	few := largest(packs)
	if len(few) == 0 || len(few) > 30 {
		t.Errorf("%d of %d packs are planned", len(few), len(packs))
	}
	for _, r := range []qwenvl.Recompute{qwenvl.RecomputeNone, qwenvl.RecomputeFull} {
		a, err := policy.(planner).plan(r, packs)
		if err != nil {
			t.Fatal(err)
		}
		b, err := policy.(planner).plan(r, few)
		if err != nil || a != b {
			t.Errorf("%+v with all packs, %+v with %d, %v", a, b, len(few), err)
		}
	}
}
