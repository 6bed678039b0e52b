// Package scratch makes a policy from nothing: a byte-level BPE tokenizer trained
// on the text of trajectories and a Qwen3-VL of the recipe's size with random
// weights, as a Hugging Face folder. It is how the demo gets its policy; real
// policies are downloaded. It trains no weights.
package scratch

import (
	"context"
	"encoding/json"
	"math"
	"path/filepath"

	"searchloop/internal/atomicfile"
	"searchloop/internal/chat"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/model/qwenvl"
	"searchloop/internal/recipe"
	"searchloop/internal/table"
	"searchloop/internal/token"
	"searchloop/rollout/trajectory"
)

// Options of Make.
type Options struct {
	Rollouts string // trajectories whose text the tokenizer is trained on
	Out      string
}

// specials are Qwen's added tokens, in its order. The tags are tokens so that a
// turn's structure costs one token each.
var specials = []string{
	"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
	"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>",
}

// templateFile is where other servers look for the chat template.
const templateFile = "chat_template.jinja"

// Make writes the policy folder: config.json, model.safetensors, tokenizer.json,
// tokenizer_config.json, preprocessor_config.json, manifest.json.
func Make(ctx context.Context, r *job.Run, o Options) error {
	rec, err := r.Recipe()
	if err != nil {
		return err
	}
	d, err := r.Dataset(job.Spec{Dir: o.Out, Schema: "searchloop/checkpoint", Version: 1,
		Inputs: map[string]string{"rollouts": o.Rollouts},
		Params: struct {
			Model recipe.Model
			Seed  uint64
		}{rec.Model, rec.Seed}})
	if err != nil || d.Complete() || d.DryRun() {
		return err
	}
	var readErr error
	texts := func(yield func(string) bool) {
		for row, err := range table.ReadDataset[trajectory.Row](o.Rollouts) {
			if err != nil {
				readErr = err
				return
			}
			for _, t := range row.Turns {
				if !yield(t.Text) {
					return
				}
			}
		}
	}
	tok, err := token.TrainBPE(texts, rec.Model.Vocab, specials)
	if readErr != nil {
		return readErr
	}
	if err != nil {
		return fail.Wrap(fail.Usage, "train the tokenizer", o.Rollouts, err)
	}
	cfg, err := config(rec.Model, tok)
	if err != nil {
		return err
	}
	if err := tok.Save(o.Out); err != nil {
		return err
	}
	m := qwenvl.Init(cfg, rec.Seed)
	if err := qwenvl.WriteConfig(o.Out, cfg); err != nil {
		return err
	}
	if err := m.Save(o.Out); err != nil {
		return err
	}
	if err := writeProcessor(o.Out, rec.Model); err != nil {
		return err
	}
	if err := atomicfile.WriteFile(filepath.Join(o.Out, templateFile), []byte(chat.Template)); err != nil {
		return err
	}
	var weights int
	for _, p := range m.Params() {
		n := 1
		for _, s := range p.Shape {
			n *= s
		}
		weights += n
	}
	r.Log.Info("policy made from scratch", "weights", weights, "vocabulary", tok.Size(), "dir", o.Out)
	return d.SealFiles([]string{"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "preprocessor_config.json", templateFile}, nil)
}

// config is a Qwen3-VL configuration of the recipe's size. The head's frequencies
// are split between time, height and width as the published models split theirs
// (24:20:20 of 64, rounded); the first vision block also feeds the decoder's
// first layer (deepstack), so that every path of the architecture is alive.
func config(m recipe.Model, tok *token.BPE) (qwenvl.Config, error) {
	if m.Hidden < 1 || m.Layers < 1 || m.Heads < 1 || m.KVHeads < 1 || m.HeadDim < 2 || m.HeadDim%2 != 0 || m.Intermediate < 1 || m.Heads%m.KVHeads != 0 ||
		m.VisionHidden < 1 || m.VisionLayers < 1 || m.VisionHeads < 1 || m.PatchSize < 1 {
		return qwenvl.Config{}, fail.New(fail.Usage, "make a policy", "", "the recipe's model section is incomplete: %+v", m)
	}
	if !(m.InitStd >= 0) || math.IsInf(m.InitStd, 0) {
		return qwenvl.Config{}, fail.New(fail.Usage, "make a policy", "", "model.init_std %g: want 0 (means 0.02) or more", m.InitStd)
	}
	id := func(name string) int32 {
		v, ok := tok.ID(name)
		if !ok {
			panic("scratch: the tokenizer lost " + name) // it was given as a special token
		}
		return v
	}
	side := (m.HeadDim/2*20 + 32) / 64
	return qwenvl.Config{
		Vocab: tok.Size(), Hidden: m.Hidden, Intermediate: m.Intermediate, Layers: m.Layers,
		Heads: m.Heads, KVHeads: m.KVHeads, HeadDim: m.HeadDim,
		MaxPositions: 4096, RMSEps: 1e-6, RopeTheta: 1e4, MRopeSection: [3]int{m.HeadDim/2 - 2*side, side, side},
		Tied: true, DType: "F32", InitStd: m.InitStd,
		ImagePadID: id("<|image_pad|>"), VideoPadID: id("<|video_pad|>"), VisionStartID: id("<|vision_start|>"), VisionEndID: id("<|vision_end|>"),
		PatchSize: m.PatchSize, MergeSize: 2, TemporalPatch: 2,
		Vision: qwenvl.VisionConfig{
			Depth: m.VisionLayers, Hidden: m.VisionHidden, Intermediate: 4 * m.VisionHidden, Heads: m.VisionHeads, Channels: 3,
			Out: m.Hidden, PositionSide: 16, Deepstack: []int{0}, RopeTheta: 1e4,
		},
	}, nil
}

func writeProcessor(dir string, m recipe.Model) error {
	text, err := json.MarshalIndent(map[string]any{
		"image_processor_type": "Qwen2VLImageProcessorFast",
		"patch_size":           m.PatchSize,
		"merge_size":           2,
		"temporal_patch_size":  2,
		"size":                 map[string]int{"shortest_edge": m.MinPixels, "longest_edge": m.MaxPixels},
		"image_mean":           []float64{0.5, 0.5, 0.5},
		"image_std":            []float64{0.5, 0.5, 0.5},
	}, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(dir, "preprocessor_config.json"), append(text, '\n'))
}
