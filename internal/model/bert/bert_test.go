package bert

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/safetensors"
)

// write makes a model folder of random weights and returns it.
func write(t testing.TB, c config, seed uint64, edit func(tensors map[string]safetensors.Tensor, files map[string]string)) string {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	tensors := map[string]safetensors.Tensor{}
	add := func(name string, base, spread float64, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(base + spread*r.NormFloat64())
		}
		tensors[name] = safetensors.Tensor{Name: name, DType: "F32", Shape: shape, F32: x}
	}
	linear := func(name string, out, in int) {
		add(name+".weight", 0, 1.5/math.Sqrt(float64(in)), out, in)
		add(name+".bias", 0, 0.2, out)
	}
	norm := func(name string) {
		add(name+".weight", 1, 0.2, c.Hidden)
		add(name+".bias", 0, 0.2, c.Hidden)
	}
	add("embeddings.word_embeddings.weight", 0, 0.5, c.Vocab, c.Hidden)
	add("embeddings.position_embeddings.weight", 0, 0.5, c.Positions, c.Hidden)
	add("embeddings.token_type_embeddings.weight", 0, 0.5, c.Types, c.Hidden)
	norm("embeddings.LayerNorm")
	for i := range c.Layers {
		at := "encoder.layer." + string(rune('0'+i)) + "."
		for _, n := range []string{"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"} {
			linear(at+n, c.Hidden, c.Hidden)
		}
		norm(at + "attention.output.LayerNorm")
		linear(at+"intermediate.dense", c.Intermediate, c.Hidden)
		linear(at+"output.dense", c.Hidden, c.Intermediate)
		norm(at + "output.LayerNorm")
	}
	raw, _ := json.Marshal(c)
	files := map[string]string{"config.json": string(raw)}
	if edit != nil {
		edit(tensors, files)
	}
	dir := t.TempDir()
	var all []safetensors.Tensor
	for _, x := range tensors {
		all = append(all, x)
	}
	if err := safetensors.Write(filepath.Join(dir, safetensors.FileName), all, nil); err != nil {
		t.Fatal(err)
	}
	for name, s := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(s), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func tiny() config {
	return config{ModelType: "bert", Vocab: 50, Hidden: 24, Layers: 2, Heads: 3, Intermediate: 40, Act: "gelu", Positions: 80, PositionType: "absolute", Types: 2, Eps: 1e-12}
}

func load(t testing.TB, dir string) *Encoder {
	t.Helper()
	e, err := Load(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func randomSeqs(r *rand.Rand, n, longest, vocab int) [][]int32 {
	seqs := make([][]int32, n)
	for i := range seqs {
		seqs[i] = make([]int32, 1+r.IntN(longest))
		for p := range seqs[i] {
			seqs[i][p] = int32(r.IntN(vocab))
		}
	}
	return seqs
}

func encode(t testing.TB, e *Encoder, seqs [][]int32) []float32 {
	t.Helper()
	v, err := e.Encode(seqs)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestAgainstTransformers compares with testdata/golden.py's output.
func TestAgainstTransformers(t *testing.T) {
	raw, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Seqs      [][]int32
		Mean, Cls struct{ Vectors [][]float64 }
	}
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][][]float64{"mean": golden.Mean.Vectors, "cls": golden.Cls.Vectors} {
		e := load(t, filepath.Join("testdata", name))
		got, worst := encode(t, e, golden.Seqs), 0.0
		for i, v := range want {
			for j, x := range v {
				worst = max(worst, math.Abs(float64(got[i*e.Dim()+j])-x))
			}
		}
		t.Logf("%s: greatest difference %.2g", name, worst)
		if !(worst < 2e-6) {
			t.Errorf("%s: greatest difference %g", name, worst)
		}
	}
}

func TestAgainstFloat64(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for _, act := range []string{"gelu", "gelu_new", "relu"} {
		c := tiny()
		c.Act = act
		e := load(t, write(t, c, 5, nil))
		seqs := randomSeqs(r, 7, c.Positions, c.Vocab)
		got := encode(t, e, seqs)
		for i, s := range seqs {
			for j, want := range reference(e, s) {
				if d := math.Abs(float64(got[i*c.Hidden+j]) - want); !(d < 2e-6) {
					t.Fatalf("%s: sequence %d (%d tokens), element %d: %g, want %g", act, i, len(s), j, got[i*c.Hidden+j], want)
				}
			}
		}
	}
}

func TestAloneOrInABatch(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	c := tiny()
	e := load(t, write(t, c, 6, nil))
	seqs := randomSeqs(r, 150, c.Positions, c.Vocab) // more than one chunk
	all := encode(t, e, seqs)
	old := runtime.GOMAXPROCS(3)
	defer runtime.GOMAXPROCS(old)
	for i := 0; i < len(seqs); i += 11 {
		for j, x := range encode(t, e, seqs[i:i+1]) {
			if math.Float32bits(x) != math.Float32bits(all[i*c.Hidden+j]) {
				t.Fatalf("sequence %d alone differs in element %d", i, j)
			}
		}
	}
}

func TestPoolingFiles(t *testing.T) {
	modules := `[{"path":"","type":"sentence_transformers.models.Transformer"},{"path":"1_Pooling","type":"sentence_transformers.models.Pooling"}`
	for name, c := range map[string]struct {
		files map[string]string
		want  pooling
	}{
		"nothing said": {nil, pooling{normalise: true}},
		"bge": {map[string]string{"modules.json": modules + `,{"path":"2_Normalize","type":"sentence_transformers.models.Normalize"}]`,
			"1_Pooling/config.json": `{"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":false}`, "sentence_bert_config.json": `{"max_seq_length":64}`}, pooling{cls: true, normalise: true, max: 64}},
		"not normalised": {map[string]string{"modules.json": modules + `]`, "1_Pooling/config.json": `{"pooling_mode":"mean"}`}, pooling{}},
		"ours":           {map[string]string{"searchloop.json": `{"pooling":"cls","normalize":false,"max_tokens":20,"query_prefix":"query: "}`}, pooling{cls: true, max: 20}},
	} {
		e := load(t, write(t, tiny(), 7, func(_ map[string]safetensors.Tensor, files map[string]string) {
			for k, v := range c.files {
				files[k] = v
			}
		}))
		if e.pooling != c.want {
			t.Errorf("%s: %+v, want %+v", name, e.pooling, c.want)
		}
	}
}

func TestNamesWithPrefixAndOldNorms(t *testing.T) {
	seqs := [][]int32{{1, 2, 3}}
	want := encode(t, load(t, write(t, tiny(), 8, nil)), seqs)
	got := encode(t, load(t, write(t, tiny(), 8, func(tensors map[string]safetensors.Tensor, _ map[string]string) {
		old := map[string]safetensors.Tensor{}
		for k, v := range tensors {
			old[k] = v
		}
		clear(tensors)
		for k, v := range old {
			k = "bert." + k
			k = strings.Replace(strings.Replace(k, "LayerNorm.weight", "LayerNorm.gamma", 1), "LayerNorm.bias", "LayerNorm.beta", 1)
			v.Name = k
			tensors[k] = v
		}
		tensors["cls.predictions.bias"] = safetensors.Tensor{Name: "cls.predictions.bias", DType: "F32", Shape: []int{1}, F32: []float32{1}}
	})), seqs)
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("element %d: %g, want %g", i, got[i], want[i])
		}
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(tensors map[string]safetensors.Tensor, files map[string]string)
		want string
	}{
		"no config":   {func(_ map[string]safetensors.Tensor, f map[string]string) { delete(f, "config.json") }, "config.json"},
		"not JSON":    {func(_ map[string]safetensors.Tensor, f map[string]string) { f["config.json"] = "{" }, "JSON"},
		"other model": {func(_ map[string]safetensors.Tensor, f map[string]string) { replace(f, `"bert"`, `"gpt2"`) }, "gpt2"},
		"activation":  {func(_ map[string]safetensors.Tensor, f map[string]string) { replace(f, `"gelu"`, `"swish"`) }, "swish"},
		"heads":       {func(_ map[string]safetensors.Tensor, f map[string]string) { replace(f, `heads":3`, `heads":5`) }, "multiple"},
		"negative":    {func(_ map[string]safetensors.Tensor, f map[string]string) { replace(f, `layers":2`, `layers":-2`) }, "num_hidden_layers"},
		"positions":   {func(_ map[string]safetensors.Tensor, f map[string]string) { replace(f, `absolute`, `relative_key`) }, "relative_key"},
		"missing": {func(x map[string]safetensors.Tensor, _ map[string]string) {
			delete(x, "encoder.layer.1.output.dense.bias")
		}, "encoder.layer.1.output.dense.bias"},
		"many layers": {func(_ map[string]safetensors.Tensor, f map[string]string) {
			replace(f, `layers":2`, `layers":16000000`)
		}, "encoder.layer.2."},
		"shape": {func(_ map[string]safetensors.Tensor, f map[string]string) {
			replace(f, `vocab_size":50`, `vocab_size":49`)
		}, "shape"},
		"pooling": {func(_ map[string]safetensors.Tensor, f map[string]string) {
			f["1_Pooling/config.json"] = `{"pooling_mode_max_tokens":true}`
		}, "max"},
		"two poolings": {func(_ map[string]safetensors.Tensor, f map[string]string) {
			f["1_Pooling/config.json"] = `{"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":true}`
		}, "several"},
		"dense": {func(_ map[string]safetensors.Tensor, f map[string]string) {
			f["modules.json"] = `[{"type":"sentence_transformers.models.Dense"}]`
		}, "Dense"},
		"max_tokens": {func(_ map[string]safetensors.Tensor, f map[string]string) { f["searchloop.json"] = `{"max_tokens":0}` }, "max_tokens"},
	} {
		_, err := Load(write(t, tiny(), 9, c.edit), "")
		if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	e := load(t, write(t, tiny(), 9, nil))
	for name, s := range map[string][]int32{"empty": {}, "long": make([]int32, 81), "unknown": {50}, "negative": {-1}} {
		if _, err := e.Encode([][]int32{{1}, s}); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "row 2") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if v, err := e.Encode(nil); err != nil || len(v) != 0 {
		t.Errorf("no sequences: %v %v", v, err)
	}
}

func replace(files map[string]string, old, with string) {
	files["config.json"] = strings.Replace(files["config.json"], old, with, 1)
}

// TestMiniLM runs a real encoder where one is at hand; the numbers are those that
// its authors' own code gives for the same sentences.
func TestMiniLM(t *testing.T) {
	dir := os.Getenv("SEARCHLOOP_MINILM")
	if dir == "" {
		t.Skip("SEARCHLOOP_MINILM does not name a folder with all-MiniLM-L6-v2")
	}
	e := load(t, dir)
	v := encode(t, e, [][]int32{
		{101, 2023, 2003, 2019, 2742, 6251, 102}, // This is an example sentence
		{101, 2169, 6251, 2003, 4991, 102},       // Each sentence is converted
	})
	for i, want := range [][]float32{{0.0676569, 0.0634959, 0.0487131, 0.0793049, 0.0374480}, {0.0864386, 0.1027628, 0.0053945}} {
		for j, x := range want {
			if got := v[i*e.Dim()+j]; math.Abs(float64(got-x)) > 1e-6 {
				t.Errorf("sentence %d, element %d: %g, want %g", i, j, got, x)
			}
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	for name, c := range map[string]config{
		"demo-128":   {ModelType: "bert", Vocab: 4000, Hidden: 128, Layers: 2, Heads: 4, Intermediate: 256, Act: "gelu", Positions: 512, PositionType: "absolute", Types: 2, Eps: 1e-12},
		"MiniLM-384": {ModelType: "bert", Vocab: 4000, Hidden: 384, Layers: 6, Heads: 12, Intermediate: 1536, Act: "gelu", Positions: 512, PositionType: "absolute", Types: 2, Eps: 1e-12},
	} {
		b.Run(name, func(b *testing.B) {
			e := load(b, write(b, c, 1, nil))
			seqs := make([][]int32, 32)
			for i := range seqs {
				seqs[i] = make([]int32, 128)
			}
			for b.Loop() {
				encode(b, e, seqs)
			}
			flop := float64(32*128) * float64(c.Layers) * (8*float64(c.Hidden*c.Hidden) + 4*float64(c.Hidden*c.Intermediate) + 4*128*float64(c.Hidden))
			ns := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			b.ReportMetric(flop/ns, "GFLOP/s")
			b.ReportMetric(32*128/ns*1e9, "tokens/s")
		})
	}
}
