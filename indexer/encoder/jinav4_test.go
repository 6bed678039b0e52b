package encoder_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"searchloop/indexer/encoder"
	"searchloop/indexer/vectors"
	"searchloop/internal/fail"
	"searchloop/internal/picture"
	"searchloop/internal/tensor"
)

// jinav4 is a tiny jina-embeddings-v4 in a folder that may be changed, and what
// transformers' backbone makes of some texts and pictures.
func jinav4(t testing.TB) (dir string, texts []string, pictures []*picture.Picture, golden map[string]struct{ Queries, Passages, Images [][]float64 }) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(models+"jinav4/testdata/v4")); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(models + "jinav4/testdata/v4.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Tasks  map[string]struct{ Queries, Passages, Images [][]float64 }
		Texts  []struct{ Text string }
		Images [][]byte
		Pillow [][]float64
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	for _, x := range file.Texts {
		texts = append(texts, x.Text)
	}
	for _, png := range file.Images {
		p, err := picture.Decode(png)
		if err != nil {
			t.Fatal(err)
		}
		pictures = append(pictures, p)
	}
	one := file.Tasks["retrieval"]
	one.Images = file.Pillow // whose resizing is the one here
	file.Tasks["retrieval"] = one
	return dir, texts, pictures, file.Tasks
}

// Prompts, adapters and the cut are those of the published code, on the CPU and in a
// device's packs.
func TestJinaV4(t *testing.T) {
	dir, texts, pictures, golden := jinav4(t)
	ctx := context.Background()
	on := &tensor.Shared{Encoding: tensor.CPU.(tensor.Encoding)}
	for _, dim := range []int{32, 16, 8} {
		for _, where := range []*tensor.Shared{nil, on} {
			e, err := encoder.LoadOn(where, dir, encoder.Override{Dim: &dim}, tensor.OwnProducts)
			if err != nil {
				t.Fatal(err)
			}
			if s := e.Space(); s.Dim != dim || s.MaxTokens != 256 || s.QueryPrefix != "Query: " || s.PassagePrefix != "Passage: " || s.Pooling != "mean" || !s.Normalized || !e.ReadsImages() {
				t.Errorf("space %+v", s)
			}
			v, err := e.Queries(ctx, texts)
			if err != nil {
				t.Fatal(err)
			}
			near(t, "query", v, golden["retrieval"].Queries, dim)
			if v, err = e.Passages(ctx, texts); err != nil {
				t.Fatal(err)
			}
			near(t, "passage", v, golden["retrieval"].Passages, dim)
			if v, err = e.Images(ctx, slices.Concat(pictures, pictures)); err != nil { // more than one call takes
				t.Fatal(err)
			}
			near(t, "image", v, slices.Concat(golden["retrieval"].Images, golden["retrieval"].Images), dim)
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	dim := 12
	if _, err := encoder.Load(dir, encoder.Override{Dim: &dim}); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "[8 16 32]") {
		t.Errorf("12 numbers: %v", err)
	}
	if _, err := encoder.LoadOn(on, dir, encoder.Override{}, tensor.E4M3Products); fail.KindOf(err) != fail.Usage {
		t.Errorf("8 bits: %v", err)
	}
	strip := &picture.Picture{W: 201, H: 1, Pix: make([]uint8, 3*201)}
	five := append(slices.Clone(pictures), strip)
	if _, err := load(t, dir, encoder.Override{}).Images(ctx, five); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "row 6") {
		t.Errorf("a strip: %v", err)
	}
}

// Another task is a line in searchloop.json, with its prompts; every file of the folder
// is part of the identity.
func TestJinaV4Settings(t *testing.T) {
	dir, texts, _, golden := jinav4(t)
	ctx := context.Background()
	write := func(settings string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "searchloop.json"), []byte(settings), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	before := load(t, dir, encoder.Override{}).Space()
	for settings, c := range map[string]struct{ task, query, passage string }{
		`{"passage_adapter": "text-matching"}`:                                   {"text-matching", "Query: ", "Query: "},
		`{"query_adapter": "code", "passage_adapter": "code"}`:                   {"code", "Query: ", "Passage: "},
		`{"query_adapter": "code", "query_prefix": "", "passage_prefix": "p: "}`: {"code", "", "p: "},
	} {
		write(settings)
		e := load(t, dir, encoder.Override{})
		s := e.Space()
		if s.QueryPrefix != c.query || s.PassagePrefix != c.passage || s.Encoder == before.Encoder {
			t.Errorf("%s: space %+v", settings, s)
		}
		if _, err := encoder.LoadSpace(dir, before); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "encoder") {
			t.Errorf("%s: queries for vectors of another task: %v", settings, err)
		}
		if c.query != "" {
			v, err := e.Passages(ctx, texts)
			if err != nil {
				t.Fatal(err)
			}
			near(t, settings, v, golden[c.task].Passages, 32)
		}
	}
	for settings, want := range map[string]string{
		`{"passage_adapter": "retrieval.passage"}`:                       `"retrieval.passage"`,
		`{"query_adapter": "code", "passage_adapter": "retrieval"}`:      "one adapter for both",
		`{"pooling": "cls"}`:                                             "pooling",
		`{"max_tokens": 257}`:                                            "257 tokens",
		`{"task": "code"}`:                                               "searchloop.json",
		`{"passage_adapter": "code", "passage_prefix": 3, "max_toke":1}`: "searchloop.json",
	} {
		write(settings)
		if _, err := encoder.Load(dir, encoder.Override{}); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", settings, err)
		}
	}
	write(`{"max_tokens": 9, "dim": 8}`)
	e := load(t, dir, encoder.Override{})
	if s := e.Space(); s.MaxTokens != 9 || s.Dim != 8 || s.PassagePrefix != "Passage: " {
		t.Errorf("space %+v", s)
	}
	long, err := e.Queries(ctx, []string{texts[1], texts[1] + " and more"})
	if err != nil || !slices.Equal(long[:8], long[8:]) {
		t.Errorf("texts that are cut to the same tokens: %v", err)
	}
	s := e.Space()
	s.Content = vectors.Images
	if x, err := encoder.LoadSpace(dir, s); err != nil || x.Space() != s {
		t.Errorf("the space of images: %v", err)
	}
	// A tokenizer that puts marks around a text is another model's.
	path := filepath.Join(dir, "tokenizer.json")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	marked := strings.Replace(string(data), `"post_processor": {"type": "ByteLevel"`, `"post_processor": {"type": "TemplateProcessing"`, 1)
	if err := os.WriteFile(path, []byte(marked), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := encoder.Load(dir, encoder.Override{}); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "TemplateProcessing") {
		t.Errorf("a tokenizer with marks: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := encoder.Load(dir, encoder.Override{}); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "tokenizer.json") {
		t.Errorf("no tokenizer: %v", err)
	}
}
