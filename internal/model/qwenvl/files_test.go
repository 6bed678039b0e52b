package qwenvl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/safetensors"
)

func read(t *testing.T, parts ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestSaveIsWhatWasLoaded(t *testing.T) {
	for _, dir := range []string{"testdata/vl", "testdata/text"} {
		out := t.TempDir()
		if err := mustLoad(t, dir).Save(out); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"config.json", "model.safetensors"} {
			if !bytes.Equal(read(t, dir, file), read(t, out, file)) {
				t.Errorf("%s/%s is not the same after a load and a save", dir, file)
			}
		}
	}
}

// Shards, half precision and a tied head that is stored all the same survive.
func TestSaveShardsAndDTypes(t *testing.T) {
	src, err := safetensors.Open("testdata/text")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dir := t.TempDir()
	shards := map[string][]safetensors.Tensor{}
	weightMap := map[string]string{}
	add := func(name, from, file, dtype string) {
		x, err := src.Float32(from)
		if err != nil {
			t.Fatal(err)
		}
		_, shape, _ := src.Info(from)
		shards[file] = append(shards[file], safetensors.Tensor{Name: name, DType: dtype, Shape: shape, F32: x})
		weightMap[name] = file
	}
	for i, name := range src.Names() {
		add(name, name, fmt.Sprintf("model-%05d-of-00002.safetensors", i%2+1), []string{"BF16", "F16", "F32"}[i%3])
	}
	add(headName, "model.embed_tokens.weight", "model-00001-of-00002.safetensors", "BF16")
	for file, tensors := range shards {
		for i := range tensors { // the head is stored as the table is
			if tensors[i].Name == "model.embed_tokens.weight" || tensors[i].Name == headName {
				tensors[i].DType = "BF16"
			}
		}
		if err := safetensors.Write(filepath.Join(dir, file), tensors, map[string]string{"format": "pt"}); err != nil {
			t.Fatal(err)
		}
	}
	index, _ := json.Marshal(map[string]any{"metadata": map[string]int{"total_size": 1}, "weight_map": weightMap})
	for name, data := range map[string][]byte{"config.json": read(t, "testdata/text/config.json"), safetensors.IndexName: index} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out := t.TempDir()
	if err := mustLoad(t, dir).Save(out); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"config.json", safetensors.IndexName, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"} {
		if !bytes.Equal(read(t, dir, file), read(t, out, file)) {
			t.Errorf("%s is not the same after a load and a save", file)
		}
	}
}

func TestInitSaveLoad(t *testing.T) {
	for _, dtype := range []string{"F32", "BF16"} {
		cfg := demoConfig()
		cfg.DType = dtype
		m := Init(cfg, 42)
		dir := t.TempDir()
		if err := m.Save(dir); err != nil {
			t.Fatal(err)
		}
		back := mustLoad(t, dir)
		if got, want := fmt.Sprintf("%+v", back.Config()), fmt.Sprintf("%+v", m.Config()); got != want {
			t.Errorf("configuration\n%s, want\n%s", got, want)
		}
		again := t.TempDir()
		if err := back.Save(again); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(read(t, dir, "model.safetensors"), read(t, again, "model.safetensors")) {
			t.Errorf("%s: a second save differs", dtype)
		}
		if dtype == "F32" {
			for i, p := range m.Params() {
				bits(t, p.Name, back.Params()[i].W.Host(), p.W.Host())
			}
		}
		if err := WriteConfig(again, m.Config()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(read(t, dir, "config.json"), read(t, again, "config.json")) {
			t.Error("WriteConfig differs from what Save wrote")
		}
	}
}

// The same bits on every machine: this digest must never change.
func TestInitIsTheSameEverywhere(t *testing.T) {
	m := Init(demoConfig(), 7)
	h := fnv.New64a()
	var sum, square float64
	n := 0
	for _, p := range m.Params() {
		fmt.Fprint(h, p.Name, p.Shape, p.W.Host())
		if strings.HasSuffix(p.Name, "embed_tokens.weight") {
			for _, x := range p.W.Host() {
				sum += float64(x)
				square += float64(x) * float64(x)
				n++
			}
		}
		if p.NoDecay != (len(p.Shape) == 1) || p.Vision != strings.Contains(p.Name, ".visual.") {
			t.Errorf("%s: NoDecay %v, Vision %v", p.Name, p.NoDecay, p.Vision)
		}
	}
	if got := fmt.Sprintf("%016x", h.Sum64()); got != initDigest {
		t.Errorf("digest %s, want %s", got, initDigest)
	}
	if mean, dev := sum/float64(n), square/float64(n); mean*mean > 1e-7 || dev < 0.98*0.02*0.02 || dev > 1.02*0.02*0.02 {
		t.Errorf("mean %g, variance %g", mean, dev)
	}
	if x, y := Init(demoConfig(), 8).Params()[0].W.Host()[0], m.Params()[0].W.Host()[0]; x == y {
		t.Error("another seed gives the same weights")
	}
}

const initDigest = "2057653bea5b3e5d"

func TestConfigVariants(t *testing.T) {
	base, err := LoadConfig("testdata/vl")
	if err != nil {
		t.Fatal(err)
	}
	parse := func(edit func(top, text map[string]any)) (Config, error) {
		var top map[string]any
		if err := json.Unmarshal(read(t, "testdata/vl/config.json"), &top); err != nil {
			t.Fatal(err)
		}
		edit(top, top["text_config"].(map[string]any))
		data, _ := json.Marshal(top)
		return ParseConfig(data)
	}
	older := func(text map[string]any) {
		delete(text, "rope_parameters")
		text["rope_theta"] = 5e6
		text["rope_scaling"] = map[string]any{"rope_type": "default", "mrope_interleaved": true, "mrope_section": []int{4, 2, 2}}
	}
	for name, edit := range map[string]func(top, text map[string]any){
		"rope_scaling beside rope_theta": func(_, text map[string]any) { older(text) },
		"type mrope":                     func(_, text map[string]any) { older(text); text["rope_scaling"].(map[string]any)["type"] = "mrope" },
		"flat": func(top, text map[string]any) {
			older(text)
			delete(top, "text_config")
			for k, v := range text {
				if k != "model_type" {
					top[k] = v
				}
			}
		},
		"torch_dtype": func(top, _ map[string]any) { delete(top, "dtype"); top["torch_dtype"] = "float32" },
	} {
		got, err := parse(edit)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", base) {
			t.Errorf("%s:\n%+v, want\n%+v", name, got, base)
		}
	}
	for name, edit := range map[string]func(top, text map[string]any){
		"no hidden size": func(_, text map[string]any) { delete(text, "hidden_size") },
		"huge":           func(_, text map[string]any) { text["vocab_size"] = 1 << 40 },
		"another model":  func(top, _ map[string]any) { top["model_type"] = "qwen2_5_vl" },
		"yarn":           func(_, text map[string]any) { text["rope_parameters"].(map[string]any)["rope_type"] = "yarn" },
		"section": func(_, text map[string]any) {
			text["rope_parameters"].(map[string]any)["mrope_section"] = []int{4, 4, 4}
		},
		"no section":      func(_, text map[string]any) { delete(text["rope_parameters"].(map[string]any), "mrope_section") },
		"not interleaved": func(_, text map[string]any) { text["rope_parameters"].(map[string]any)["mrope_interleaved"] = false },
		"no theta":        func(_, text map[string]any) { delete(text["rope_parameters"].(map[string]any), "rope_theta") },
		"heads":           func(_, text map[string]any) { text["num_key_value_heads"] = 3 },
		"bias":            func(_, text map[string]any) { text["attention_bias"] = true },
		"no vision":       func(top, _ map[string]any) { delete(top, "vision_config") },
		"no pad":          func(top, _ map[string]any) { delete(top, "image_token_id") },
		"deepstack outside depth": func(top, _ map[string]any) {
			top["vision_config"].(map[string]any)["deepstack_visual_indexes"] = []int{3}
		},
		"positions no square": func(top, _ map[string]any) { top["vision_config"].(map[string]any)["num_position_embeddings"] = 37 },
		"out differs":         func(top, _ map[string]any) { top["vision_config"].(map[string]any)["out_hidden_size"] = 16 },
		"words for numbers":   func(_, text map[string]any) { text["hidden_size"] = "big" },
	} {
		if _, err := parse(edit); fail.KindOf(err) != fail.BadInput {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	src, err := safetensors.Open("testdata/text")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	load := func(edit func([]safetensors.Tensor) []safetensors.Tensor) error {
		var all []safetensors.Tensor
		for _, name := range src.Names() {
			x, _ := src.Float32(name)
			dtype, shape, _ := src.Info(name)
			all = append(all, safetensors.Tensor{Name: name, DType: dtype, Shape: shape, F32: x})
		}
		dir := t.TempDir()
		if err := safetensors.Write(filepath.Join(dir, "model.safetensors"), edit(all), nil); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "config.json"), read(t, "testdata/text/config.json"), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Load(dir)
		return err
	}
	for name, edit := range map[string]func([]safetensors.Tensor) []safetensors.Tensor{
		"missing": func(x []safetensors.Tensor) []safetensors.Tensor { return x[1:] },
		"another": func(x []safetensors.Tensor) []safetensors.Tensor {
			return append(x, safetensors.Tensor{Name: "model.layers.2.mlp.up_proj.weight", DType: "F32", Shape: []int{1}, F32: []float32{1}})
		},
		"shape": func(x []safetensors.Tensor) []safetensors.Tensor {
			x[0].Shape = []int{len(x[0].F32), 1}
			return x
		},
	} {
		if err := load(edit); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "model.") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if err := load(func(x []safetensors.Tensor) []safetensors.Tensor { return x }); err != nil {
		t.Error(err)
	}
	if _, err := Load(t.TempDir()); fail.KindOf(err) != fail.BadInput {
		t.Errorf("an empty folder: %v", err)
	}
}

func TestForwardRefuses(t *testing.T) {
	cfg := demoConfig()
	m := Init(cfg, 1)
	for name, edit := range map[string]func(b *Batch){
		"lengths":           func(b *Batch) { b.CuSeqlens[1]-- },
		"falling lengths":   func(b *Batch) { b.CuSeqlens = []int32{0, 50, 40, 60} },
		"positions":         func(b *Batch) { b.Positions[2] = b.Positions[2][1:] },
		"token":             func(b *Batch) { b.Tokens[3] = int32(cfg.Vocab) },
		"negative token":    func(b *Batch) { b.Tokens[3] = -1 },
		"stray pad":         func(b *Batch) { b.Tokens[3] = cfg.ImagePadID },
		"no image":          func(b *Batch) { b.Images = nil },
		"offset":            func(b *Batch) { b.Images[0].Offset++ },
		"offset far":        func(b *Batch) { b.Images[0].Offset = 1<<31 - 2 },
		"negative offset":   func(b *Batch) { b.Images[0].Offset = -3 },
		"patches":           func(b *Batch) { b.Images[0].Patches = b.Images[0].Patches[1:] },
		"grid":              func(b *Batch) { b.Images[0].Grid = [3]int32{1, 3, 8} },
		"image twice":       func(b *Batch) { b.Images = append(b.Images, b.Images[0]) },
		"image across rows": func(b *Batch) { b.CuSeqlens = []int32{0, 22, 60} },
	} {
		b, _, _ := demoPack(cfg, 1, 60, true)
		edit(b)
		if p, err := m.Forward(b); fail.KindOf(err) != fail.BadInput {
			t.Errorf("%s: error %v, pass %v", name, err, p != nil)
		}
	}
	text := cfg
	text.Vision, text.PatchSize = VisionConfig{}, 0
	b, _, _ := demoPack(cfg, 1, 60, true)
	if _, err := Init(text, 1).Forward(b); fail.KindOf(err) != fail.BadInput {
		t.Errorf("an image for a text model: %v", err)
	}
	c := m.NewCache(10)
	if _, err := m.Extend([]Step{{Cache: c, Tokens: make([]int32, 11), Positions: [3][]int32{make([]int32, 11), make([]int32, 11), make([]int32, 11)}}}); fail.KindOf(err) != fail.BadInput || c.Len() != 0 {
		t.Errorf("a full cache: %v, %d tokens", err, c.Len())
	}
}

func TestFrozenVision(t *testing.T) {
	cfg := demoConfig()
	m := Init(cfg, 1)
	b := mixedPack(cfg, 40, 60)
	want := gradients(t, m, b)
	m.FreezeVision(true)
	m.ZeroGrad()
	addGradients(t, m, b)
	for i, p := range m.Params() {
		if p.Vision != (p.G == nil) {
			t.Errorf("%s: gradient %v", p.Name, p.G != nil)
		} else if p.G != nil {
			bits(t, p.Name, p.G.Host(), want[i])
		}
	}
}
