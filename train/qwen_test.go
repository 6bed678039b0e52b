package train

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/model/qwenvl"
	"searchloop/internal/safetensors"
	"searchloop/internal/token"
	"searchloop/rollout/trajectory"
)

var qwenSpecials = []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"}

// qwenFolder writes a tiny Qwen3-VL with a tokenizer of bytes.
func qwenFolder(t testing.TB, dir string, seed uint64) { qwenFolderOf(t, dir, seed, "F32") }

func qwenFolderOf(t testing.TB, dir string, seed uint64, dtype string) {
	t.Helper()
	tok, err := token.TrainBPE(slices.Values([]string{"abc"}), 256+len(qwenSpecials), qwenSpecials)
	if err != nil {
		t.Fatal(err)
	}
	id := func(s string) int32 {
		v, ok := tok.ID(s)
		if !ok {
			t.Fatal(s)
		}
		return v
	}
	if err := tok.Save(dir); err != nil {
		t.Fatal(err)
	}
	cfg := qwenvl.Config{
		Vocab: tok.Size(), Hidden: 32, Intermediate: 64, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 16, RopeTheta: 1e4, MRopeSection: [3]int{4, 2, 2}, Tied: true,
		DType: dtype, InitStd: .08, ImagePadID: id("<|image_pad|>"), VideoPadID: id("<|video_pad|>"), VisionStartID: id("<|vision_start|>"), VisionEndID: id("<|vision_end|>"),
		PatchSize: 8, MergeSize: 2, TemporalPatch: 2,
		Vision: qwenvl.VisionConfig{Depth: 1, Hidden: 16, Intermediate: 32, Heads: 2, PositionSide: 4, Deepstack: []int{0}},
	}
	if err := qwenvl.Init(cfg, seed).Save(dir); err != nil {
		t.Fatal(err)
	}
	text := `{"patch_size": 8, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 256, "max_pixels": 1024, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}`
	if err := os.WriteFile(filepath.Join(dir, "preprocessor_config.json"), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// emblem is a PNG of the given kind.
func emblem(t testing.TB, kind int) string {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, 32, 16))
	for y := range 16 {
		for x := range 32 {
			m.Set(x, y, color.RGBA{uint8(kind * 60), uint8(x * 8 * (kind % 2)), uint8(y * 16), 255})
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Two tokens can be said, one of them is rewarded: the whole path, from sampling
// by the model's cache to the next checkpoint.
func TestQwenBandit(t *testing.T) {
	w := toyWorld{t.TempDir()}
	qwenFolder(t, w.at("policy"), 1)
	o := w.options("")
	o.Reference = w.at("policy")
	rng := rand.New(rand.NewPCG(1, 1))
	prompts := [][]int32{{1 + 256, 65, 66, 10}, {1 + 256, 67, 10}}
	probability := func(m *qwenvl.Model, prompt []int32) []float64 {
		steps := []qwenvl.Step{{Cache: m.NewCache(64), Tokens: prompt}}
		var err error
		if steps[0].Positions, _, err = qwenvl.Positions(prompt, nil, m.Config()); err != nil {
			t.Fatal(err)
		}
		logits, err := m.Extend(steps)
		if err != nil {
			t.Fatal(err)
		}
		top, sum := slices.Max(logits[0]), 0.0
		p := make([]float64, len(logits[0]))
		for v, z := range logits[0] {
			p[v] = math.Exp(float64(z - top))
			sum += p[v]
		}
		for v := range p {
			p[v] /= sum
		}
		return p
	}
	worst := 1.0
	for e := range 7 {
		m, err := qwenvl.Load(o.Policy)
		if err != nil {
			t.Fatal(err)
		}
		var rows []trajectory.Row
		var judged []trajectory.Judged
		worst = 1
		for q, prompt := range prompts {
			p := probability(m, prompt)
			if e == 0 { // from a model that knows two words
				for v := range p {
					if v != 70 && v != 71 {
						p[v] = 0
					}
				}
			}
			worst = min(worst, p[70]/(p[70]+p[71]))
			for k := range 16 {
				said := int32(71)
				if rng.Float64() < p[70]/(p[70]+p[71]) {
					said = 70
				}
				row := trajectory.Row{ID: fmt.Sprintf("q%d#%02d", q, k), Group: fmt.Sprint(q), Status: trajectory.OK, LogprobMode: trajectory.LogprobProcessed,
					Temperature: 1, TopP: 1, TokenIDs: append(slices.Clone(prompt), said)}
				row.LossMask, row.Logprobs = make([]bool, len(row.TokenIDs)), make([]float32, len(row.TokenIDs))
				row.LossMask[len(prompt)] = true
				row.Logprobs[len(prompt)] = float32(math.Log(probability(m, prompt)[said]))
				rows = append(rows, row)
				judged = append(judged, trajectory.Judged{ID: row.ID, Scored: true, Reward: float64(71 - said)})
			}
		}
		if worst > .95 {
			break
		}
		dataset(t, w.at("rollouts"), "rollouts", rows)
		dataset(t, w.at("judged"), "judged", judged)
		o.Rollouts, o.Judged, o.Out = w.at("rollouts"), w.at("judged"), w.at(fmt.Sprint("epoch", e))
		// The bound is far below what any mistake would give.
		if err := grpo(context.Background(), toyRun(t, "grpo.optimizer.lr=0.003", "grpo.max_mismatch=1e-5", "grpo.kl=0.001", "grpo.pack_tokens=64"), o, qwenKit); err != nil {
			t.Fatal(err)
		}
		o.Policy = o.Out
	}
	if worst < .95 {
		t.Errorf("the rewarded token has %.3f of the two", worst)
	}
}

// Images in the prompt and in the middle of a trajectory; rows of other images
// are told apart by nothing else.
func TestQwenSees(t *testing.T) {
	w := toyWorld{t.TempDir()}
	qwenFolder(t, w.at("policy"), 1)
	ids := []string{storeImage(t, w.at("images"), emblem(t, 0)), storeImage(t, w.at("images"), emblem(t, 1)), storeImage(t, w.at("images"), emblem(t, 3))}
	var rows []trajectory.Row
	for i := range 24 {
		answer := string(rune('a' + i%3))
		rows = append(rows, trajectory.Row{ID: fmt.Sprintf("q%02d#0", i), Status: trajectory.OK, Turns: []trajectory.Turn{
			{Role: "user", Text: "?", Images: []string{ids[i%3]}}, {Role: "assistant", Text: "look", Call: "image_search_by_lens", Finish: "stop"},
			{Role: "tool", Text: "-", Images: []string{ids[(i+i/3)%3]}}, {Role: "assistant", Text: answer, Finish: "stop"},
		}})
	}
	dataset(t, w.at("rollouts"), "rollouts", rows)
	set := []string{"sft.pack_tokens=256", "sft.batch_tokens=512", "sft.epochs=30", "sft.optimizer.lr=0.01"}
	o := w.lessons("out")
	if err := sft(context.Background(), toyRun(t, set...), o, qwenKit); err != nil {
		t.Fatal(err)
	}
	ls := lines(t, o.Out)
	// Blind, the answer costs ln 3 in each of 7 trained tokens' mean: 0.157.
	if last := num(t, ls[len(ls)-1], "loss"); last > .05 {
		t.Errorf("the last loss is %.3f", last)
	}
	moved := func(dir string) (text, vision bool) {
		a, err := safetensors.Open(w.at("policy"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := safetensors.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range a.Names() {
			x, _ := a.Float32(n)
			y, _ := b.Float32(n)
			if !slices.Equal(x, y) {
				if bytes.Contains([]byte(n), []byte("visual.")) {
					vision = true
				} else {
					text = true
				}
			}
		}
		return text, vision
	}
	if text, vision := moved(o.Out); !text || !vision {
		t.Errorf("moved: text %v, vision %v", text, vision)
	}
	o.Out = w.at("frozen")
	if err := sft(context.Background(), toyRun(t, append(set, "sft.epochs=1", "sft.freeze_vision=true")...), o, qwenKit); err != nil {
		t.Fatal(err)
	}
	if text, vision := moved(o.Out); !text || vision {
		t.Errorf("frozen, moved: text %v, vision %v", text, vision)
	}
	seesGRPO(t, w, ids)
}

// seesGRPO trains rows that hold images by their grids and offsets.
func seesGRPO(t *testing.T, w toyWorld, ids []string) {
	policy, err := LoadQwen(w.at("policy"), false)
	if err != nil {
		t.Fatal(err)
	}
	c := policy.(qwen).Config()
	read, err := qwenPictures(w.at("policy"))
	if err != nil {
		t.Fatal(err)
	}
	pictures := OpenPictures(read, w.at("images"))
	var rows []trajectory.Row
	var judged []trajectory.Judged
	for i := range 8 {
		row := trajectory.Row{ID: fmt.Sprint("r", i), Group: fmt.Sprint(i / 4), Status: trajectory.OK, LogprobMode: trajectory.LogprobProcessed, Temperature: .7, TopP: 1}
		show := func(id string) {
			row.TokenIDs = append(row.TokenIDs, c.VisionStartID)
			row.Images = append(row.Images, trajectory.Image{ID: id, GridT: 1, GridH: 2, GridW: 4, Offset: int32(len(row.TokenIDs))})
			row.TokenIDs = append(row.TokenIDs, c.ImagePadID, c.ImagePadID, c.VisionEndID)
		}
		say := func(ids ...int32) {
			for range len(row.TokenIDs) - len(row.LossMask) {
				row.LossMask = append(row.LossMask, false)
			}
			for _, id := range ids {
				row.TokenIDs, row.LossMask = append(row.TokenIDs, id), append(row.LossMask, true)
			}
		}
		row.TokenIDs = append(row.TokenIDs, 65)
		show(ids[i%3])
		say(66, int32(70+i%4))
		show(ids[(i+1)%3])
		say(int32(80 + i%5))
		row.Logprobs = make([]float32, len(row.TokenIDs))
		s := &Sequence{Tokens: row.TokenIDs, Temperature: row.Temperature}
		s.Spans, s.Trained = spansOf(row.LossMask)
		for _, im := range row.Images {
			s.Images = append(s.Images, ImageRef{im.ID, [3]int32{im.GridT, im.GridH, im.GridW}, im.Offset})
		}
		var p packed
		logp, err := p.score(policy, pictures, []*Sequence{s})
		if err != nil {
			t.Fatal(err)
		}
		for _, span := range s.Spans {
			for j := span.From; j < span.To; j++ {
				row.Logprobs[j], logp = logp[0], logp[1:]
			}
		}
		rows = append(rows, row)
		judged = append(judged, trajectory.Judged{ID: row.ID, Scored: true, Reward: float64(i % 2)})
	}
	dataset(t, w.at("rollouts"), "rollouts", rows)
	dataset(t, w.at("judged"), "judged", judged)
	o := w.options("grpo")
	// The trainer's packs are not those of the sampler: the log-probs are the same
	// to the bit all the same.
	if err := grpo(context.Background(), toyRun(t, "grpo.pack_tokens=64", "grpo.kl=0"), o, qwenKit); err != nil {
		t.Fatal(err)
	}
	first := lines(t, o.Out)[0]
	if mis := first["mismatch"].(map[string]any); mis["abs_max"].(float64) != 0 || mis["tokens"].(float64) < 8 {
		t.Errorf("mismatch %v", mis)
	}
	// An image that is not the one the policy saw shows in the log-probs.
	for i := range rows {
		rows[i].Images[0].ID = ids[(i+1)%3]
	}
	dataset(t, w.at("rollouts"), "rollouts", rows)
	o.Out = w.at("swapped")
	if err := grpo(context.Background(), toyRun(t, "grpo.pack_tokens=64", "grpo.kl=0"), o, qwenKit); kindOf(err) != fail.Bound {
		t.Errorf("%v", err)
	}
}

// A policy stored in bfloat16 learns in steps that bfloat16 cannot hold: the
// float32 weights go from epoch to epoch in the training state.
func TestNarrowPolicyKeepsItsMaster(t *testing.T) {
	w := toyWorld{t.TempDir()}
	qwenFolderOf(t, w.at("policy"), 1, "BF16")
	o := w.options("")
	o.Reference, o.Policy = w.at("policy"), w.at("policy")
	var before, start []float32
	for e := range 3 {
		policy, err := LoadQwen(o.Policy, false)
		if err != nil {
			t.Fatal(err)
		}
		var rows []trajectory.Row
		var judged []trajectory.Judged
		for i := range 8 {
			row := trajectory.Row{ID: fmt.Sprint("r", i), Group: "g", Status: trajectory.OK, LogprobMode: trajectory.LogprobProcessed, Temperature: 1, TopP: 1,
				TokenIDs: []int32{65, 66, int32(70 + i%2)}, LossMask: []bool{false, false, true}, Logprobs: make([]float32, 3)}
			rows = append(rows, row)
			judged = append(judged, trajectory.Judged{ID: row.ID, Scored: true, Reward: float64(i % 2)})
		}
		rescore(t, policy, rows)
		dataset(t, w.at("rollouts"), "rollouts", rows)
		dataset(t, w.at("judged"), "judged", judged)
		o.Rollouts, o.Judged, o.Out = w.at("rollouts"), w.at("judged"), w.at(fmt.Sprint("epoch", e))
		if err := grpo(context.Background(), toyRun(t, "grpo.optimizer.lr=1e-6", "grpo.optimizer.weight_decay=0", "grpo.updates=1", "grpo.passes=1", "grpo.max_mismatch=0.01"), o, qwenKit); err != nil {
			t.Fatal(err)
		}
		c, err := readCursor(filepath.Join(o.Out, StateDir))
		if err != nil {
			t.Fatal(err)
		}
		state, err := safetensors.OpenFile(filepath.Join(o.Out, StateDir, c.File))
		if err != nil {
			t.Fatal(err)
		}
		const name = "model.language_model.layers.0.mlp.up_proj.weight"
		master, err := state.Float32("weight." + name)
		if err != nil {
			t.Fatal(err)
		}
		model, err := safetensors.Open(o.Out)
		if err != nil {
			t.Fatal(err)
		}
		if dtype, _, _ := model.Info(name); dtype != "BF16" {
			t.Errorf("saved as %s", dtype)
		}
		if e == 0 {
			first, err := safetensors.Open(w.at("policy"))
			if err != nil {
				t.Fatal(err)
			}
			start, _ = first.Float32(name)
			before = start
		}
		far, step := 0.0, 0.0
		for i := range master {
			far += math.Abs(float64(master[i]-start[i])) / float64(len(master))
			step += math.Abs(float64(master[i]-before[i])) / float64(len(master))
		}
		near(t, "one step", step, 1e-6, 2e-7)
		near(t, "way so far", far, 1e-6*float64(e+1), 3e-7*float64(e+1))
		before, o.Policy = master, o.Out
	}
}
