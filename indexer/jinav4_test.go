package indexer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"searchloop/corpus"
	"searchloop/indexer"
	"searchloop/indexer/encoder"
	"searchloop/indexer/encoder/served"
	"searchloop/indexer/faiss"
	"searchloop/indexer/vectors"
	"searchloop/internal/device"
	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/model/qwenvl"
	"searchloop/internal/picture"
	"searchloop/internal/safetensors"
)

const tinyV4 = "../internal/model/jinav4/testdata/v4"

// jinav4Folder is a jina-embeddings-v4 with random weights, whose vectors have the
// published length, 2,048, and whose rest is tiny.
func jinav4Folder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS(tinyV4)))
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	must(t, err)
	var c map[string]any
	must(t, json.Unmarshal(raw, &c))
	text, vision := c["text_config"].(map[string]any), c["vision_config"].(map[string]any)
	maps.Copy(text, map[string]any{"hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 2, "num_hidden_layers": 1,
		"rope_scaling": map[string]any{"rope_type": "default", "mrope_section": []int{16, 24, 24}}})
	vision["out_hidden_size"] = 2048
	c["matryoshka_dims"] = []int{128, 256, 512, 1024, 2048}
	raw, err = json.Marshal(c)
	must(t, err)
	cfg, err := qwenvl.ParseConfig(raw)
	must(t, err)
	for _, f := range []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", safetensors.IndexName} {
		must(t, os.Remove(filepath.Join(dir, f)))
	}
	cfg.InitStd = 0.1
	must(t, qwenvl.Init(cfg, 1).Save(dir))
	must(t, os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o644))
	var adapter []safetensors.Tensor
	for part, shape := range map[string][]int{"A": {4, 2048}, "B": {2048, 4}} {
		x := make([]float32, 4*2048)
		for i := range x {
			x[i] = float32(i%17-8) / 100
		}
		adapter = append(adapter, safetensors.Tensor{Name: "base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_" + part + ".retrieval.weight", DType: "BF16", Shape: shape, F32: x})
	}
	slices.SortFunc(adapter, func(a, b safetensors.Tensor) int { return strings.Compare(a.Name, b.Name) })
	must(t, safetensors.Write(filepath.Join(dir, "adapters", "adapter_model.safetensors"), adapter, nil))
	return dir
}

// picturePassages makes a corpus of images.
func picturePassages(t testing.TB, dir string, n int) (rows []corpus.Passage) {
	t.Helper()
	store, err := corpus.OpenStore(filepath.Join(dir, "images"))
	must(t, err)
	for i := range n {
		sha, err := store.Put(paint(t, i))
		must(t, err)
		rows = append(rows, corpus.Passage{ID: fmt.Sprint("p", i), Contents: fmt.Sprintf("Picture %d of stripes", i), ImageID: sha})
	}
	writePassages(t, dir, rows, 1)
	return rows
}

// Images embedded by jina-embeddings-v4 are searched by texts and by images; cut off at
// any batch the job ends with the same bytes, on the CPU and in a device's packs.
func TestJinaV4Images(t *testing.T) {
	d, ctx := newTree(t.TempDir()), context.Background()
	rows := picturePassages(t, d.passages, 11)
	dim := 16
	for _, gpu := range []*device.GPU{onDevice(), nil} {
		o := indexer.EmbedOptions{Encoder: tinyV4, Passages: d.passages, Out: filepath.Join(t.TempDir(), "vectors"), Override: encoder.Override{Dim: &dim}, GPU: gpu}
		must(t, indexer.Embed(ctx, newRun(t, 1), o))
		want := files(t, o.Out)
		o.Out = d.vectors
		if gpu != nil {
			o.Out = filepath.Join(t.TempDir(), "vectors")
		}
		tries := 0
		for err := error(nil); tries == 0 || err != nil; tries++ {
			if err = indexer.Embed(&dying{ctx, 2}, newRun(t, 1), o); err != nil && (fail.KindOf(err) != fail.Interrupted || tries > 10) {
				t.Fatal(err)
			}
		}
		same(t, "resumed", files(t, o.Out), want)
		if m, err := manifest.Open(o.Out); err != nil || tries < 2 || m.Counts.Reused == 0 || m.Counts.OK != 11 {
			t.Errorf("%d tries, %+v, %v", tries, m.Counts, err)
		}
	}
	must(t, indexer.Build(ctx, newRun(t, 1), indexer.BuildOptions{Vectors: d.vectors, Passages: d.passages, Out: d.index}))
	x := open(t, d.index)
	if s := x.Describe().Space; s.Content != vectors.Images || s.Dim != dim || s.QueryPrefix != "Query: " || !x.ReadsImages() {
		t.Errorf("space %+v", s)
	}
	// A text finds the images whose vectors have the greatest products with its own.
	enc, err := encoder.Load(tinyV4, encoder.Override{Dim: &dim})
	must(t, err)
	text, err := enc.Queries(ctx, []string{"Picture 3 of stripes"})
	must(t, err)
	queries := []indexer.Query{{Text: "Picture 3 of stripes"}}
	for n := range rows {
		q, err := x.ImageQuery(paint(t, n))
		must(t, err)
		queries = append(queries, q)
	}
	found, err := x.SearchQueries(ctx, queries, 11, faiss.Effort{})
	must(t, err)
	var shown []*picture.Picture
	for n := range rows {
		p, err := picture.Decode(paint(t, n))
		must(t, err)
		shown = append(shown, p)
	}
	set, err := enc.Images(ctx, shown)
	must(t, err)
	best, score := -1, float32(-2)
	for n := range rows {
		if h := found[n+1][0]; h.Row != int64(n) || h.Score < 0.9999 || h.Score > 1.0001 {
			t.Errorf("image %d finds row %d with %g", n, h.Row, h.Score)
		}
		var dot float32
		for j, v := range text {
			dot += v * set[n*dim+j]
		}
		if dot > score {
			best, score = n, dot
		}
	}
	if h := found[0][0]; h.Row != int64(best) || h.Score-score > 1e-5 || score-h.Score > 1e-5 || h.Passage.ID != rows[best].ID {
		t.Errorf("the text finds %+v, want row %d with %g", h, best, score)
	}
}

// An index file of 2,048 dimensions, as published, is adopted with the encoder, and
// refused with one of another dimension or other weights.
func TestJinaV4Adopt(t *testing.T) {
	d, ctx, dir := newTree(t.TempDir()), context.Background(), jinav4Folder(t)
	rows := facts(12)
	writePassages(t, d.passages, rows, 1)
	must(t, indexer.Embed(ctx, newRun(t, 1), indexer.EmbedOptions{Encoder: dir, Passages: d.passages, Out: d.vectors}))
	must(t, indexer.Build(ctx, newRun(t, 1), indexer.BuildOptions{Vectors: d.vectors, Passages: d.passages, Out: d.index}))
	info, err := indexer.Info(d.index)
	must(t, err)
	adopt := func(enc string, dim *int, out string) error {
		return indexer.Adopt(ctx, newRun(t, 1), indexer.AdoptOptions{File: info[0].Path, Passages: d.passages, Encoder: enc, Out: out, Server: served.Options{Override: encoder.Override{Dim: dim}}})
	}
	out := filepath.Join(t.TempDir(), "index")
	must(t, adopt(dir, nil, out))
	x := open(t, out)
	if s := x.Describe().Space; s.Dim != 2048 {
		t.Errorf("space %+v", s)
	}
	if hits, err := x.Search(ctx, []string{rows[5].Contents}, 12); err != nil || len(hits[0]) != 12 {
		t.Errorf("%d hits, %v", len(hits[0]), err)
	}
	if err := adopt(tinyV4, nil, filepath.Join(t.TempDir(), "index")); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "2048: jina-embeddings-v4 makes") {
		t.Errorf("an encoder of 32 numbers: %v", err)
	}
	cut := 1024
	if err := adopt(dir, &cut, filepath.Join(t.TempDir(), "index")); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "dimension 1024") {
		t.Errorf("vectors that are cut: %v", err)
	}
	// Vectors made with another task are not those of the file.
	other := filepath.Join(t.TempDir(), "v4")
	must(t, os.CopyFS(other, os.DirFS(dir)))
	config := filepath.Join(other, "adapters", "adapter_config.json")
	text, err := os.ReadFile(config)
	must(t, err)
	must(t, os.WriteFile(config, []byte(strings.Replace(string(text), `"lora_alpha": 6`, `"lora_alpha": 6000`, 1)), 0o644))
	if err := adopt(other, nil, filepath.Join(t.TempDir(), "index")); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "cosine") {
		t.Errorf("another adapter: %v", err)
	}
	// Queries for the index are refused with another encoder, too.
	if _, err := indexer.Open(ctx, out, indexer.WithEncoder(other)); fail.KindOf(err) != fail.BadInput {
		t.Errorf("queries of another encoder: %v", err)
	}
}
