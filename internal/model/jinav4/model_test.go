package jinav4

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/picture"
	"searchloop/internal/safetensors"
	"searchloop/internal/tensor"
	"searchloop/internal/token"
)

const golden = "testdata/v4"

var tasks = []string{"retrieval", "text-matching", "code"}

// reference is v4.json: what transformers' backbone gives.
type reference struct {
	Tasks map[string]struct{ Queries, Passages, Images [][]float64 }
	Texts []struct {
		Text string
		IDs  []int32
	}
	Images [][]byte
	Pillow [][]float64
	None   [][]float64 // of queries, without an adapter
}

func readReference(t testing.TB) (r reference, texts []string, pictures []*picture.Picture) {
	t.Helper()
	raw, err := os.ReadFile("testdata/v4.json")
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Texts {
		texts = append(texts, x.Text)
	}
	for _, png := range r.Images {
		p, err := picture.Decode(png)
		if err != nil {
			t.Fatal(err)
		}
		pictures = append(pictures, p)
	}
	return r, texts, pictures
}

func mustLoad(t testing.TB, dir, task string) *Model {
	t.Helper()
	m, err := Load(dir, task)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// ids are the tokens of texts after a prompt.
func ids(t testing.TB, prompt string, texts []string) (seqs [][]int32) {
	t.Helper()
	words, err := token.LoadUnmarked(golden)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range texts {
		seqs = append(seqs, words.Encode(prompt+x, 0))
	}
	return seqs
}

// cosine is that of the i-th of vectors.
func cosine(v []float32, i int, want []float64) float64 {
	v = v[i*len(want) : (i+1)*len(want)]
	var dot, a, b float64
	for j, w := range want {
		dot, a, b = dot+w*float64(v[j]), a+w*w, b+float64(v[j])*float64(v[j])
	}
	return dot / math.Sqrt(a*b)
}

// near wants the vectors of a reference, of length 1.
func near(t *testing.T, what string, got []float32, err error, want [][]float64, least float64) {
	t.Helper()
	if err != nil || len(got) != len(want)*len(want[0]) {
		t.Fatalf("%s: %d numbers for %d vectors of %d, %v", what, len(got), len(want), len(want[0]), err)
	}
	for i, w := range want {
		length := 0.0
		for _, x := range got[i*len(w) : (i+1)*len(w)] {
			length += float64(x) * float64(x)
		}
		if c := cosine(got, i, w); !(c >= least) || math.Abs(length-1) > 1e-5 {
			t.Errorf("%s %d: cosine %.8f, length² %.6f", what, i, c, length)
		}
	}
}

// Every task's vectors of queries, passages and images are transformers'.
func TestAsTransformers(t *testing.T) {
	r, texts, pictures := readReference(t)
	for i, seq := range ids(t, "Query: ", texts) {
		if !slices.Equal(seq, r.Texts[i].IDs) {
			t.Errorf("text %d: tokens %v, want %v", i, seq, r.Texts[i].IDs)
		}
	}
	const least = 0.999999
	for _, task := range tasks {
		m, want := mustLoad(t, golden, task), r.Tasks[task]
		query, passage := Prompts(task)
		v, err := m.Encode(ids(t, query, texts))
		near(t, task+", query", v, err, want.Queries, least)
		for i, w := range r.None {
			if c := cosine(v, i, w); c > 0.99 {
				t.Errorf("%s: query %d as without an adapter: cosine %.6f", task, i, c)
			}
		}
		v, err = m.Encode(ids(t, passage, texts))
		near(t, task+", passage", v, err, want.Passages, least)
		// Pillow's resizing is the one here; torchvision's differs by single levels.
		v, err = m.EncodeImages(pictures)
		near(t, task+", image", v, err, want.Images, 0.99999)
		if task == Retrieval {
			near(t, "image prepared by Pillow", v, err, r.Pillow, least)
		}
		if m.Dim() != 32 || m.Vocab() != 440 || m.MaxTokens() != 256 {
			t.Errorf("dimension %d, %d ids, %d tokens", m.Dim(), m.Vocab(), m.MaxTokens())
		}
	}
}

// wide is the CPU with the widths of a GPU.
type wide struct{ tensor.Encoding }

func (wide) Widths() int { return 8 }

// A sequence has the same bits alone and in any company, by calls that take turns and
// in the packs of a device; one that is longer than a pack too.
func TestCompany(t *testing.T) {
	r, texts, pictures := readReference(t)
	m := mustLoad(t, golden, Retrieval)
	seqs := ids(t, "Query: ", slices.Concat(texts, []string{strings.Repeat("more ", 30)}))
	all, err := m.Encode(seqs)
	if err != nil {
		t.Fatal(err)
	}
	images, err := m.EncodeImages(pictures)
	if err != nil {
		t.Fatal(err)
	}
	dim := m.Dim()
	same := func(m *Model, what string) {
		t.Helper()
		var wait sync.WaitGroup
		for i := range seqs {
			wait.Go(func() {
				if v, err := m.Encode(seqs[i : i+1]); err != nil || !slices.Equal(v, all[i*dim:(i+1)*dim]) {
					t.Errorf("%s: text %d has other bits (%v)", what, i, err)
				}
			})
		}
		for i := range pictures {
			wait.Go(func() {
				if v, err := m.EncodeImages(pictures[i : i+1]); err != nil || !slices.Equal(v, images[i*dim:(i+1)*dim]) {
					t.Errorf("%s: image %d has other bits (%v)", what, i, err)
				}
			})
		}
		wait.Wait()
	}
	same(m, "alone")
	d, err := LoadOn(&tensor.Shared{Encoding: wide{tensor.CPU.(tensor.Encoding)}}, golden, Retrieval)
	if err != nil {
		t.Fatal(err)
	}
	same(d, "packs")
	v, err := d.Encode(ids(t, "Query: ", texts))
	near(t, "in packs", v, err, r.Tasks[Retrieval].Queries, 0.999999)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	m.start(32) // shorter than some sequences
	same(m, "short packs")
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := m.Encode(seqs); err == nil {
		t.Error("closed, and encodes")
	}
}

// What Prepare makes has the picture's vector.
func TestPrepare(t *testing.T) {
	_, _, pictures := readReference(t)
	m := mustLoad(t, golden, Retrieval)
	want, err := m.EncodeImages(pictures)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range pictures {
		if pictures[i], err = m.Prepare(p); err != nil {
			t.Fatal(err)
		}
		if n := pictures[i].W * pictures[i].H; n < 56*56 || n > 28*28*40 {
			t.Errorf("picture %d is prepared to %d×%d", i, pictures[i].W, pictures[i].H)
		}
	}
	if got, err := m.EncodeImages(pictures); err != nil || !slices.Equal(got, want) {
		t.Errorf("other vectors, %v", err)
	}
}

// What cannot be encoded names the text or the picture.
func TestRefusesInput(t *testing.T) {
	_, _, pictures := readReference(t)
	m := mustLoad(t, golden, Retrieval)
	for what, seq := range map[string][]int32{"0 tokens": {}, "257 tokens": make([]int32, 257), "token 440": {1, 440}, "token -1": {-1}} {
		_, err := m.Encode([][]int32{{1, 2}, seq})
		if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "row 2") {
			t.Errorf("%s: %v", what, err)
		}
	}
	strip := &picture.Picture{W: 201, H: 1, Pix: make([]uint8, 3*201)}
	if _, err := m.EncodeImages([]*picture.Picture{pictures[0], strip}); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "row 2") {
		t.Errorf("a strip: %v", err)
	}
	if _, err := m.Prepare(strip); fail.KindOf(err) != fail.BadInput {
		t.Errorf("a strip: %v", err)
	}
}

// A folder whose parts are missing or do not belong together is refused, with the file
// and what is wrong with it.
func TestRefusesFolder(t *testing.T) {
	config, preprocessor, adapter := "config.json", "preprocessor_config.json", filepath.Join("adapters", "adapter_config.json")
	weights := filepath.Join("adapters", "adapter_model.safetensors")
	q := "base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.retrieval.weight"
	for name, c := range map[string]struct {
		file, old, with string // with "": the file is taken away
		task            string
		change          func(tensors map[string]safetensors.Tensor)
		want            string
	}{
		"task":              {task: "retrieval.query", want: `task_names lists ["retrieval" "text-matching" "code"]`},
		"no task":           {want: "task_names lists"},
		"another model":     {file: config, old: "JinaEmbeddingsV4Model", with: "Qwen2_5_VLModel", task: "code", want: "JinaEmbeddingsV4Model is known"},
		"pooling":           {file: config, old: `"mean"`, with: `"last"`, task: "code", want: "single_vector_pool_strategy"},
		"experts":           {file: config, old: `"qwen2_5_vl"`, with: `"qwen2"`, task: "code", want: "only Qwen2.5-VL"},
		"no tokenizer":      {file: token.File, task: "code", want: "tokenizer.json"},
		"other tokenizer":   {file: token.File, old: "<|vision_start|>", with: "<|picture_start|>", task: "code", want: "<|vision_start|>"},
		"no settings":       {file: preprocessor, task: "code", want: "preprocessor_config.json"},
		"other patches":     {file: preprocessor, old: `"patch_size": 14`, with: `"patch_size": 16`, task: "code", want: "2×16×16"},
		"no adapters":       {file: adapter, task: "code", want: "adapter_config.json"},
		"no weights of it":  {file: weights, task: "code", want: "adapter_model.safetensors"},
		"rank":              {file: adapter, old: `"r": 4`, with: `"r": 5`, task: "code", want: "lora_A.code.weight"},
		"great rank":        {file: adapter, old: `"r": 4`, with: `"r": 5000`, task: "code", want: "at most 1024"},
		"DoRA":              {file: adapter, old: `"use_dora": false`, with: `"use_dora": true`, task: "code", want: "use_dora"},
		"a shard":           {file: "model-00002-of-00002.safetensors", task: "code", want: "model-00002"},
		"wider":             {file: config, old: `"intermediate_size": 48`, with: `"intermediate_size": 40`, task: "code", want: "config.json asks for"},
		"adapter of a task": {task: "code", change: func(x map[string]safetensors.Tensor) { drop(x, ".code.") }, want: `no adapter for the task "code"; there are those for ["retrieval" "text-matching"]`},
		"half an adapter":   {task: Retrieval, change: func(x map[string]safetensors.Tensor) { delete(x, q) }, want: q},
		"its shape": {task: Retrieval, change: func(x map[string]safetensors.Tensor) {
			x[q] = safetensors.Tensor{Name: q, DType: "F32", Shape: []int{4, 16}, F32: make([]float32, 64)}
		}, want: "[4 16]"},
		"a layer too many": {task: Retrieval, change: func(x map[string]safetensors.Tensor) {
			n := strings.Replace(q, "layers.0", "layers.9", 1)
			x[n] = safetensors.Tensor{Name: n, DType: "F32", Shape: []int{4, 32}, F32: make([]float32, 128)}
		}, want: "layers.9"},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(golden)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, c.file)
		switch {
		case c.change != nil:
			rewrite(t, filepath.Join(dir, weights), c.change)
		case c.file != "" && c.with == "":
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		case c.file != "":
			text, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(text), c.old) {
				t.Fatalf("%s: %s has no %s (%v)", name, c.file, c.old, err)
			}
			if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), c.old, c.with)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Load(dir, c.task); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func drop(x map[string]safetensors.Tensor, part string) {
	for n := range x {
		if strings.Contains(n, part) {
			delete(x, n)
		}
	}
}

// rewrite changes the tensors of a file.
func rewrite(t *testing.T, path string, change func(map[string]safetensors.Tensor)) {
	t.Helper()
	m, err := safetensors.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tensors := map[string]safetensors.Tensor{}
	for _, n := range m.Names() {
		x, err := m.Float32(n)
		if err != nil {
			t.Fatal(err)
		}
		_, shape, _ := m.Info(n)
		tensors[n] = safetensors.Tensor{Name: n, DType: "F32", Shape: slices.Clone(shape), F32: x}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	change(tensors)
	var list []safetensors.Tensor
	for _, x := range tensors {
		list = append(list, x)
	}
	slices.SortFunc(list, func(a, b safetensors.Tensor) int { return strings.Compare(a.Name, b.Name) })
	if err := safetensors.Write(path, list, nil); err != nil {
		t.Fatal(err)
	}
}
