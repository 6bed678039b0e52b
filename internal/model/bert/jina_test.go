package bert

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/safetensors"
)

type jinaGolden struct {
	Seqs    [][]int32
	Vectors map[string][][]float64 // by adapter
}

// leastCosine compares vectors of dim numbers, of any length, with want.
func leastCosine(got []float32, dim int, want [][]float64) float64 {
	least := 1.0
	for i, w := range want {
		var dot, a, b float64
		for j, x := range w {
			y := float64(got[i*dim+j])
			dot, a, b = dot+x*y, a+x*x, b+y*y
		}
		least = min(least, dot/math.Sqrt(a*b))
	}
	return least
}

// TestJinaAgainstTransformers compares with testdata/golden_jina.py's output: the
// published file with no adapter and with each, and the file that transformers saves.
func TestJinaAgainstTransformers(t *testing.T) {
	raw, err := os.ReadFile("testdata/jina.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden jinaGolden
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	check := func(dir, adapter string) {
		e, err := Load(dir, adapter)
		if err != nil {
			t.Fatal(err)
		}
		if e.MaxTokens() != 38 {
			t.Errorf("%s: %d tokens, want 38", dir, e.MaxTokens())
		}
		got, worst := encode(t, e, golden.Seqs), 0.0
		for i, want := range golden.Vectors[adapter] {
			for j, w := range want {
				worst = max(worst, math.Abs(float64(got[i*e.Dim()+j])-w))
			}
		}
		cos := leastCosine(got, e.Dim(), golden.Vectors[adapter])
		t.Logf("%s %q: least cosine %.9f, greatest difference %.2g", dir, adapter, cos, worst)
		if !(cos >= 0.99999) || !(worst < 2e-6) {
			t.Errorf("%s %q: cosine %.9f, greatest difference %g", dir, adapter, cos, worst)
		}
	}
	for _, adapter := range slices.Sorted(maps.Keys(golden.Vectors)) {
		check("testdata/jina", adapter)
	}
	check("testdata/hf", "")
	if len(golden.Vectors) != 3 {
		t.Errorf("golden values of %d adapters", len(golden.Vectors))
	}
}

func TestJinaRefuses(t *testing.T) {
	for what, c := range map[string]struct{ dir, adapter string }{
		"no adapter \"separation\"":   {"testdata/jina", "separation"},
		"no adapter \"retrieval.qu":   {"testdata/hf", "retrieval.query"},
		"nothing but padding tokens":  {"testdata/jina", ""},
		"no adapter \"retrieval.pass": {"testdata/mean", "retrieval.passage"},
	} {
		e, err := Load(c.dir, c.adapter)
		if err == nil {
			_, err = e.Encode([][]int32{{1, 1}})
		}
		if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, edit := range map[string]func(files map[string]string){
		"rotary":     func(f map[string]string) { replace(f, `absolute`, `rotary`) }, // of a BERT
		"rotary_emb": func(f map[string]string) { replace(f, `"bert"`, `"jina_embeddings_v3"`) },
		"gpt2":       func(f map[string]string) { f["config.json"] = clipConfig("gpt2", "null", `{}`) },
		"projected":  func(f map[string]string) { f["config.json"] = clipConfig("jinaai/jina-embeddings-v3", `"mlp"`, `{}`) },
		"num_attention": func(f map[string]string) {
			f["config.json"] = clipConfig("jinaai/jina-embeddings-v3", "null", `{"hidden_size": 48, "num_attention_heads": 0}`)
		},
		"max_position": func(f map[string]string) {
			f["config.json"] = clipConfig("jinaai/jina-embeddings-v3", "null", `{"hidden_size": 48, "num_attention_heads": 3, "max_position_embeddings": 16000000}`)
		},
		"shape": func(f map[string]string) {
			f["config.json"] = clipConfig("jinaai/jina-embeddings-v3", "null", `{"hidden_size": 48, "num_attention_heads": 3}`)
		},
	} {
		if what == "rotary_emb" {
			what = "rotary positions of base 0"
		}
		_, err := Load(write(t, tiny(), 9, func(_ map[string]safetensors.Tensor, files map[string]string) { edit(files) }), "")
		if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func clipConfig(name, proj, change string) string {
	return `{"model_type": "jina_clip", "text_config": {"embed_dim": 48, "hf_model_name_or_path": "` + name + `", "proj_type": ` + proj + `, "hf_model_config_kwargs": ` + change + `}}`
}
