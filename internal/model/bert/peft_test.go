package bert

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/peft"
	"searchloop/internal/safetensors"
)

// withAdapters is a copy of the model in testdata/hf with the adapters of
// testdata/hf-peft in it, as transformers 5 lays jina-embeddings-v3 out.
func withAdapters(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/hf")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS("testdata/hf-peft")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPEFTAgainstTransformers compares with testdata/golden_peft.py's output.
func TestPEFTAgainstTransformers(t *testing.T) {
	raw, err := os.ReadFile("testdata/peft.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden jinaGolden
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	dir := withAdapters(t)
	plain := encode(t, load(t, dir), golden.Seqs)
	for _, adapter := range slices.Sorted(maps.Keys(golden.Vectors)) {
		e, err := Load(dir, adapter)
		if err != nil {
			t.Fatal(err)
		}
		got, worst := encode(t, e, golden.Seqs), 0.0
		for i, want := range golden.Vectors[adapter] {
			for j, w := range want {
				worst = max(worst, math.Abs(float64(got[i*e.Dim()+j])-w))
			}
		}
		cos := leastCosine(got, e.Dim(), golden.Vectors[adapter])
		t.Logf("%q: least cosine %.9f, greatest difference %.2g; without it %.4f", adapter, cos, worst, leastCosine(plain, e.Dim(), golden.Vectors[adapter]))
		if !(cos >= 0.99999) || !(worst < 2e-6) {
			t.Errorf("%q: cosine %.9f, greatest difference %g", adapter, cos, worst)
		}
	}
	if len(golden.Vectors) != 2 {
		t.Errorf("golden values of %d adapters", len(golden.Vectors))
	}
}

func TestPEFTRefuses(t *testing.T) {
	for what, spoil := range map[string]func(dir string) error{
		"IA3":            config1(`"LORA"`, `"IA3"`),
		"r is 0":         config1(`"r": 2`, `"r": 0`),
		"use_dora":       config1(`"use_dora": false`, `"use_dora": true`),
		"rank_pattern":   config1(`"rank_pattern": {}`, `"rank_pattern": {"fc1": 4}`),
		"shape":          config1(`"r": 2`, `"r": 5`),
		"unexpected end": config1("}\n", ""),
		"safetensors":    func(dir string) error { return os.Remove(filepath.Join(dir, peft.WeightsFile)) },
		"layers.7": func(dir string) error {
			return safetensors.Write(filepath.Join(dir, peft.WeightsFile), []safetensors.Tensor{{Name: "base_model.model.layers.7.mlp.fc1.lora_A.weight", DType: "F32", Shape: []int{2, 32}, F32: make([]float32, 64)}}, nil)
		},
		"lora_B": func(dir string) error {
			return safetensors.Write(filepath.Join(dir, peft.WeightsFile), []safetensors.Tensor{{Name: "base_model.model.layers.0.mlp.fc1.lora_A.weight", DType: "F32", Shape: []int{2, 32}, F32: make([]float32, 64)}}, nil)
		},
	} {
		dir := withAdapters(t)
		folder := AdapterFolder(dir, "retrieval.query")
		if err := spoil(folder); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir, "retrieval.query"); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "retrieval_query") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// config1 replaces a text of adapter_config.json once.
func config1(old, with string) func(dir string) error {
	return func(dir string) error {
		path := filepath.Join(dir, peft.ConfigFile)
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), old) {
			return fail.New(fail.Bug, "test", path, "no %q: %v", old, err)
		}
		at := strings.LastIndex(string(text), old)
		return os.WriteFile(path, []byte(string(text[:at])+with+string(text[at+len(old):])), 0o666)
	}
}
