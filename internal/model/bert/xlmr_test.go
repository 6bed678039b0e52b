package bert

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/safetensors"
)

// TestXLMRAgainstTransformers compares with testdata/golden_xlmr.py's output.
func TestXLMRAgainstTransformers(t *testing.T) {
	raw, err := os.ReadFile("testdata/xlmr.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Seqs    [][]int32
		Vectors [][]float64
	}
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	e := load(t, "testdata/xlmr")
	if e.MaxTokens() != 38 {
		t.Errorf("%d tokens, want 38: two of the 40 positions are the padding's", e.MaxTokens())
	}
	got := encode(t, e, golden.Seqs)
	worst := 0.0
	for i, want := range golden.Vectors {
		for j, w := range want {
			worst = max(worst, math.Abs(float64(got[i*e.Dim()+j])-w))
		}
	}
	t.Logf("largest difference %.2g", worst)
	if worst > 1e-6 {
		t.Errorf("differs from transformers by %g", worst)
	}
	if _, err := e.Encode([][]int32{make([]int32, 39)}); fail.KindOf(err) != fail.BadInput {
		t.Errorf("39 tokens: %v", err)
	}
}

func TestXLMRRefuses(t *testing.T) {
	c := tiny()
	for what, change := range map[string]func(*config){
		"model_type":   func(c *config) { c.ModelType = "deberta" },
		"pad_token_id": func(c *config) { c.ModelType, c.Pad = "xlm-roberta", c.Positions-1 },
	} {
		bad := c
		change(&bad)
		_, err := Load(write(t, bad, 1, func(map[string]safetensors.Tensor, map[string]string) {}), "")
		if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
