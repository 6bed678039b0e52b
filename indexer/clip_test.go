package indexer_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/corpus"
	"searchloop/indexer"
	"searchloop/indexer/encoder"
	"searchloop/indexer/encoder/served"
	"searchloop/indexer/faiss"
	"searchloop/indexer/vectors"
	"searchloop/internal/fail"
	"searchloop/internal/picture"
)

// clipFolder is a tiny Jina-CLIP with random weights.
func clipFolder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	at := filepath.Join("..", "internal", "model", "eva", "testdata", "clip")
	for _, f := range []string{filepath.Join(at, "config.json"), filepath.Join(at, "model.safetensors"), filepath.Join(at, "preprocessor_config.json"),
		filepath.Join("..", "internal", "token", "testdata", "xlmr", "tokenizer.json")} {
		data, err := os.ReadFile(f)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, filepath.Base(f)), data, 0o644))
	}
	return dir
}

// paint is a picture of stripes whose width and colour depend on n.
func paint(t testing.TB, n int) []byte {
	t.Helper()
	p := &picture.Picture{W: 30 + n, H: 24, Pix: make([]byte, 3*(30+n)*24)}
	for i := range p.Pix {
		p.Pix[i] = byte(i / 3 / (2 + n) * 97 * (i%3 + n))
	}
	data, err := p.PNG()
	must(t, err)
	return data
}

// An image corpus embedded by its images is searched by texts and by images; by
// its titles when that is asked for, or when the encoder reads texts only.
func TestImageCorpus(t *testing.T) {
	d := newTree(t.TempDir())
	ctx, clip := context.Background(), clipFolder(t)
	store, err := corpus.OpenStore(filepath.Join(d.passages, "images"))
	must(t, err)
	var rows []corpus.Passage
	for n := range 11 { // more than two batches
		sha, err := store.Put(paint(t, n))
		must(t, err)
		rows = append(rows, corpus.Passage{ID: fmt.Sprint("p", n), Contents: fmt.Sprintf("Picture %d", n), ImageID: sha})
	}
	writePassages(t, d.passages, rows, 1)
	embed := func(o indexer.EmbedOptions) error {
		o.Passages = d.passages
		if o.Encoder == "" {
			o.Encoder = clip
		}
		return indexer.Embed(ctx, newRun(t, 2), o)
	}
	dim := 8
	must(t, embed(indexer.EmbedOptions{Out: d.vectors, Override: encoder.Override{Dim: &dim}}))
	must(t, indexer.Build(ctx, newRun(t, 1), indexer.BuildOptions{Vectors: d.vectors, Passages: d.passages, Out: d.index}))
	x := open(t, d.index)
	if s := x.Describe().Space; s.Content != vectors.Images || s.Dim != dim || !x.ReadsImages() {
		t.Errorf("space %+v", s)
	}
	info, err := indexer.Info(d.index)
	must(t, err)
	adopt := func(dim *int) error {
		return indexer.Adopt(ctx, newRun(t, 1), indexer.AdoptOptions{File: info[0].Path, Passages: d.passages, Encoder: clip, Out: filepath.Join(t.TempDir(), "index"),
			Server: served.Options{Override: encoder.Override{Dim: dim}}})
	}
	if err := adopt(nil); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "--dim 8") {
		t.Errorf("a file of vectors that were cut: %v", err)
	}
	must(t, adopt(&dim))
	queries := []indexer.Query{{Text: "Picture 3"}}
	for n := range rows {
		q, err := x.ImageQuery(paint(t, n))
		must(t, err)
		queries = append(queries, q)
	}
	queries = append(queries, indexer.Query{Text: "a text"})
	found, err := x.SearchQueries(ctx, queries, 3, faiss.Effort{})
	must(t, err)
	for n := range rows {
		if h := found[n+1][0]; h.Row != int64(n) || h.Score < 0.9999 || h.Score > 1.0001 {
			t.Errorf("image %d finds row %d with %g", n, h.Row, h.Score)
		}
	}
	alone, err := x.Search(ctx, []string{"Picture 3", "a text"}, 3)
	must(t, err)
	for i, at := range []int{0, len(queries) - 1} {
		for j, h := range alone[i] {
			if h != found[at][j] {
				t.Errorf("text %d among images: hit %d is %+v, alone %+v", i, j, found[at][j], h)
			}
		}
	}
	if _, err := x.ImageQuery([]byte("no image")); fail.KindOf(err) != fail.BadInput {
		t.Errorf("no image: %v", err)
	}

	again := newTree(t.TempDir())
	must(t, embed(indexer.EmbedOptions{Out: again.vectors, Content: "text"}))
	must(t, indexer.Build(ctx, newRun(t, 1), indexer.BuildOptions{Vectors: again.vectors, Passages: d.passages, Out: again.index}))
	y := open(t, again.index)
	if hits, err := y.Search(ctx, []string{"Picture 3"}, 1); err != nil || hits[0][0].Row != 3 || y.Describe().Space.Content != "" {
		t.Errorf("by titles: %+v, %v", hits, err)
	}

	// What cannot be done is said before anything is made, or names the passage.
	texts := build(t, t.TempDir(), facts(20), 32, 1)
	refused := func(what string, err error) {
		t.Helper()
		if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), what) {
			t.Errorf("want %q: %v", what, err)
		}
	}
	out := filepath.Join(t.TempDir(), "vectors")
	refused("reads no images", embed(indexer.EmbedOptions{Out: out, Encoder: texts.encoder, Content: vectors.Images}))
	refused("no images folder", indexer.Embed(ctx, newRun(t, 1), indexer.EmbedOptions{Encoder: clip, Passages: texts.passages, Out: out, Content: vectors.Images}))
	rows[2].ImageID = ""
	writePassages(t, d.passages, rows, 1)
	refused("p2", embed(indexer.EmbedOptions{Out: out}))
	rows[2].ImageID, err = store.Put([]byte("\x89PNG\r\n\x1a\nand then nothing"))
	must(t, err)
	writePassages(t, d.passages, rows, 1)
	refused("p2", embed(indexer.EmbedOptions{Out: out}))
	if _, err := open(t, texts.index).ImageQuery(paint(t, 1)); fail.KindOf(err) != fail.BadInput {
		t.Errorf("an image for an encoder of texts: %v", err)
	}
}
