package train

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/model/qwenvl"
	"searchloop/internal/peft"
	"searchloop/internal/recipe"
	"searchloop/internal/safetensors"
	"searchloop/rollout/trajectory"
)

// The factors' gradients are those of the loss, by finite differences.
func TestLoRAGradients(t *testing.T) {
	base, rows := qwenRows(t, 3)
	policy, err := adapt(base, recipe.LoRA{Rank: 2, Alpha: 6, Targets: []string{"q_proj", "down_proj"}}, 5)
	if err != nil {
		t.Fatal(err)
	}
	l := policy.(*adapted)
	params := l.Params()
	if len(params) != 8 || params[0].Name != "base_model.model.model.language_model.layers.0.mlp.down_proj.lora_A.weight" {
		t.Fatalf("%d factors, first %s", len(params), params[0].Name)
	}
	for i := range params { // B is zero in the beginning, and then A has no gradient
		for k := range params[i].W {
			params[i].W[k] += float32((k*7+i)%5-2) * .05
		}
	}
	l.apply()
	d := &drill{policy: policy, rows: rows}
	loss := func() float64 {
		v, _ := d.gradient(t, new(imitation), []int{0, 1, 2})
		l.gather()
		return v
	}
	for _, p := range params {
		loss()
		at := 0
		for k, g := range p.G { // the steepest entry
			if math.Abs(float64(g)) > math.Abs(float64(p.G[at])) {
				at = k
			}
		}
		got := float64(p.G[at])
		const e = 1. / 256
		keep := p.W[at]
		p.W[at] = keep + e
		l.apply()
		up := loss()
		p.W[at] = keep - e
		l.apply()
		down := loss()
		p.W[at] = keep
		l.apply()
		near(t, p.Name, got, (up-down)/(2*e), 1e-3*math.Abs(got)+5e-5)
	}
}

func loraWorld(t *testing.T) (toyWorld, []string) {
	t.Helper()
	w := toyWorld{t.TempDir()}
	qwenFolder(t, w.at("policy"), 1)
	var rows []trajectory.Row
	for i := range 12 {
		rows = append(rows, trajectory.Row{ID: fmt.Sprintf("q%02d#0", i), Status: trajectory.OK, Turns: []trajectory.Turn{
			{Role: "user", Text: string(rune('a' + i%3))}, {Role: "assistant", Text: string(rune('a' + (i+1)%3)), Finish: "stop"}}})
	}
	dataset(t, w.at("rollouts"), "rollouts", rows)
	return w, []string{"sft.pack_tokens=256", "sft.batch_tokens=80", "sft.epochs=20", "sft.optimizer.lr=0.01", "sft.lora={rank: 4, alpha: 8}", "sft.save_steps=2"}
}

// sameAsPEFT compares an adapter's names and shapes with those that PEFT gives to
// one of the same settings; testdata/adapter.py wrote them down.
func sameAsPEFT(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile("testdata/adapter.json")
	if err != nil {
		t.Fatal(err)
	}
	var want struct{ Shapes map[string][]int }
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := map[string][]int{}
	for _, name := range f.Names() {
		_, got[name], _ = f.Info(name)
	}
	if fmt.Sprint(got) != fmt.Sprint(want.Shapes) {
		t.Errorf("adapter %v, PEFT's %v", got, want.Shapes)
	}
}

// An adapter is learned, saved in PEFT's form, and is what distinguishes the
// merged policy from the one it started from.
func TestLoRA(t *testing.T) {
	w, set := loraWorld(t)
	o := w.lessons("out")
	if err := sft(context.Background(), toyRun(t, set...), o, qwenKit); err != nil {
		t.Fatal(err)
	}
	ls := lines(t, o.Out)
	if first, last := num(t, ls[0], "loss"), num(t, ls[len(ls)-1], "loss"); last > .6*first {
		t.Errorf("the loss went from %.3f to %.3f", first, last)
	}
	m, err := manifest.Open(o.Out)
	if err != nil || m.Verify(o.Out) != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(m.Parts, func(p manifest.Part) bool { return p.Name == "adapter/adapter_model.safetensors" }) {
		t.Error("the adapter is not in the manifest")
	}
	base, err := safetensors.Open(w.at("policy"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := safetensors.Open(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	moved := 0
	for _, n := range base.Names() {
		x, _ := base.Float32(n)
		y, _ := out.Float32(n)
		if !slices.Equal(x, y) {
			moved++
			if !strings.HasSuffix(n, "_proj.weight") {
				t.Errorf("%s moved", n)
			}
		}
	}
	if moved != 14 {
		t.Errorf("%d tensors moved", moved)
	}
	var config map[string]any
	text, err := os.ReadFile(filepath.Join(o.Out, AdapterDir, peft.ConfigFile))
	if err != nil || json.Unmarshal(text, &config) != nil || config["r"] != 4.0 || config["lora_alpha"] != 8.0 || config["peft_type"] != "LORA" {
		t.Errorf("%s, %v", text, err)
	}
	if dir := os.Getenv("SEARCHLOOP_ADAPTER"); dir != "" { // for testdata/adapter.py
		for _, name := range []string{"policy", "out"} {
			if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(w.at(name))); err != nil {
				t.Fatal(err)
			}
		}
	}
	sameAsPEFT(t, filepath.Join(o.Out, AdapterDir, peft.WeightsFile))
	// Merging it into the base gives the checkpoint.
	mo := MergeOptions{Policy: w.at("policy"), Adapter: filepath.Join(o.Out, AdapterDir), Out: w.at("merged")}
	if err := Merge(context.Background(), toyRun(t), mo); err != nil {
		t.Fatal(err)
	}
	merged, err := safetensors.Open(mo.Out)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range base.Names() {
		x, _ := merged.Float32(n)
		y, _ := out.Float32(n)
		for i := range x {
			if math.Abs(float64(x[i]-y[i])) > 1e-6 {
				t.Fatalf("%s differs at %d: %g, %g", n, i, x[i], y[i])
			}
		}
	}
	sameFiles(t, w.at("policy"), mo.Out, []string{"config.json", "tokenizer.json"})
	if m, err := manifest.Open(mo.Out); err != nil || m.Verify(mo.Out) != nil {
		t.Error(err)
	}
}

// stopping counts passes and stops the run at one of them.
type stopping struct {
	Policy
	pass func()
}

func (s stopping) Forward(b *qwenvl.Batch) (Pass, error) {
	s.pass()
	return s.Policy.Forward(b)
}

func TestLoRAStopAndContinue(t *testing.T) {
	w, set := loraWorld(t)
	quiet, o := w.lessons("quiet"), w.lessons("stopped")
	if err := sft(context.Background(), toyRun(t, set...), quiet, qwenKit); err != nil {
		t.Fatal(err)
	}
	for runs := 0; ; runs++ {
		r := toyRun(t, set...)
		k, n := qwenKit, 0
		k.load = func(dir string, frozen bool) (Policy, error) {
			p, err := LoadQwen(dir, frozen)
			return stopping{p, func() {
				if n++; n == 3 {
					r.Stop()
				}
			}}, err
		}
		err := sft(context.Background(), r, o, k)
		if err == nil {
			if runs < 2 {
				t.Errorf("stopped %d times only", runs)
			}
			break
		}
		if kindOf(err) != fail.Interrupted {
			t.Fatal(err)
		}
	}
	sameFiles(t, quiet.Out, o.Out, []string{"model.safetensors", "adapter/adapter_model.safetensors", "adapter/adapter_config.json", MetricsName, "trainer/cursor.json"})
}

func TestAdapterRefusals(t *testing.T) {
	base, _ := qwenRows(t, 1)
	for _, o := range []recipe.LoRA{{Rank: -1}, {Alpha: 2}, {Rank: 2, Alpha: -1}, {Rank: 2, Targets: []string{"x_proj"}}} {
		if _, err := adapt(base, o, 1); kindOf(err) != fail.Usage {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if p, err := adapt(base, recipe.LoRA{}, 1); err != nil || p != base {
		t.Errorf("%v", err)
	}
	if loraScale(recipe.LoRA{Rank: 16, Alpha: 8}) != .5 || loraScale(recipe.LoRA{Rank: 16, Alpha: 8, RSLoRA: true}) != 2 {
		t.Error("scale")
	}
	const good = `{"peft_type": "LORA", "r": 1, "lora_alpha": 2}`
	key := "base_model.model.model.language_model.layers.0.self_attn.q_proj."
	pair := func(in, out int) []safetensors.Tensor {
		return []safetensors.Tensor{{Name: key + "lora_A.weight", DType: "F32", Shape: []int{1, in}, F32: make([]float32, in)},
			{Name: key + "lora_B.weight", DType: "F32", Shape: []int{out, 1}, F32: make([]float32, out)}}
	}
	for name, c := range map[string]struct {
		config  string
		tensors []safetensors.Tensor
	}{
		"good":          {good, pair(32, 32)},
		"type":          {`{"peft_type": "IA3", "r": 1, "lora_alpha": 2}`, pair(32, 32)},
		"dora":          {`{"peft_type": "LORA", "r": 1, "lora_alpha": 2, "use_dora": true}`, pair(32, 32)},
		"rank":          {`{"peft_type": "LORA", "r": 2, "lora_alpha": 2}`, pair(32, 32)},
		"shape":         {good, pair(31, 32)},
		"half":          {good, pair(32, 32)[:1]},
		"unknown layer": {good, []safetensors.Tensor{{Name: "base_model.model.nowhere.lora_A.weight", DType: "F32", Shape: []int{1, 1}, F32: f(1)}}},
		"not a factor":  {good, []safetensors.Tensor{{Name: key + "weight", DType: "F32", Shape: []int{1, 1}, F32: f(1)}}},
		"no json":       {"{", pair(32, 32)},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, peft.ConfigFile), []byte(c.config), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := safetensors.Write(filepath.Join(dir, peft.WeightsFile), c.tensors, nil); err != nil {
			t.Fatal(err)
		}
		if err := addAdapter(base, dir); name == "good" && err != nil || name != "good" && kindOf(err) != fail.BadInput {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := addAdapter(base, t.TempDir()); kindOf(err) != fail.BadInput {
		t.Errorf("an empty folder: %v", err)
	}
}
