package qwenvl

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"searchloop/internal/safetensors"
	"searchloop/internal/vec"
)

// TestWriteForReference writes models of Init with what they compute, for
// testdata/check.py to compare with transformers.
func TestWriteForReference(t *testing.T) {
	out := os.Getenv("SEARCHLOOP_CHECK")
	if out == "" {
		t.Skip("SEARCHLOOP_CHECK does not name a folder to write to; see testdata/check.py")
	}
	vision := demoConfig()
	vision.InitStd = 0.1
	untied := vision
	untied.Tied, untied.DType, untied.HeadDim, untied.MRopeSection = false, "BF16", 24, [3]int{4, 4, 4}
	text := vision
	text.Vision, text.PatchSize, text.MergeSize, text.TemporalPatch, text.MRopeSection = VisionConfig{}, 0, 0, 0, [3]int{}
	for name, cfg := range map[string]Config{"vision": vision, "untied-bf16": untied, "text": text} {
		dir := filepath.Join(out, name)
		if err := Init(cfg, 5).Save(dir); err != nil {
			t.Fatal(err)
		}
		m := mustLoad(t, dir) // what is in the file, after rounding
		b, _, _ := demoPack(cfg, 1, 90, cfg.HasVision())
		p := forward(t, m, b)
		tensors := []safetensors.Tensor{{Name: "logits", DType: "F32", Shape: []int{90, cfg.Vocab}, F32: allLogits(p)}}
		p.Release()
		check := map[string]any{"tokens": b.Tokens, "pad": cfg.ImagePadID, "grids": [][3]int32{}}
		if cfg.HasVision() {
			im := b.Images[0]
			check["grids"] = [][3]int32{im.Grid}
			tensors = append(tensors, safetensors.Tensor{Name: "patches", DType: "F32", F32: im.Patches,
				Shape: []int{len(im.Patches) / cfg.PatchDim(), cfg.PatchDim()}})
		}
		steps := cut(m, b)
		var grids [][3]int32
		for _, im := range b.Images {
			grids = append(grids, im.Grid)
		}
		_, next, err := Positions(b.Tokens, grids, cfg)
		if err != nil {
			t.Fatal(err)
		}
		logits := extend(t, m, steps)
		var greedy []int32
		for range 20 {
			token := int32(vec.ArgMax(logits[0]))
			greedy = append(greedy, token)
			at := []int32{next}
			logits = extend(t, m, []Step{{Cache: steps[0].Cache, Tokens: []int32{token}, Positions: [3][]int32{at, at, at}}})
			next++
		}
		check["greedy"] = greedy
		if err := safetensors.Write(filepath.Join(dir, "check.safetensors"), tensors, nil); err != nil {
			t.Fatal(err)
		}
		data, _ := json.Marshal(check)
		if err := os.WriteFile(filepath.Join(dir, "check.json"), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
