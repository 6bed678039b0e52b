package encoder_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"searchloop/indexer/encoder"
	"searchloop/indexer/vectors"
	"searchloop/internal/fail"
	"searchloop/internal/picture"
)

const models = "../../internal/model/"

// assemble makes a folder of files from others.
func assemble(t testing.TB, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(f)), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// clip is a tiny Jina-CLIP with a tokenizer, and what public implementations make
// of some texts and images.
func clip(t testing.TB) (dir string, texts []string, ofTexts [][]float64, pictures []*picture.Picture, ofImages [][]float64) {
	t.Helper()
	raw, err := os.ReadFile(models + "eva/testdata/clip.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Images []struct {
			PNG    []byte
			Vector []float64
		}
		Texts []struct {
			Text   string
			Vector []float64
		}
	}
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	for _, x := range golden.Texts {
		texts, ofTexts = append(texts, x.Text), append(ofTexts, x.Vector)
	}
	for _, x := range golden.Images {
		p, err := picture.Decode(x.PNG)
		if err != nil {
			t.Fatal(err)
		}
		pictures, ofImages = append(pictures, p), append(ofImages, x.Vector)
	}
	at := models + "eva/testdata/clip/"
	return assemble(t, at+"config.json", at+"model.safetensors", at+"preprocessor_config.json", "../../internal/token/testdata/xlmr/tokenizer.json"),
		texts, ofTexts, pictures, ofImages
}

// near says how far got is from the first dim numbers of want, brought to length 1.
func near(t testing.TB, what string, got []float32, want [][]float64, dim int) {
	t.Helper()
	if len(got) != len(want)*dim {
		t.Fatalf("%s: %d numbers for %d vectors of %d", what, len(got), len(want), dim)
	}
	for i, w := range want {
		var sq, worst float64
		for _, x := range w[:dim] {
			sq += x * x
		}
		for j, x := range w[:dim] {
			worst = max(worst, math.Abs(x/math.Sqrt(sq)-float64(got[i*dim+j])))
		}
		if !(worst < 2e-6) {
			t.Errorf("%s %d, %d numbers: greatest difference %g", what, i, dim, worst)
		}
	}
}

// Both towers give the vectors of the public implementations, whole and cut.
func TestJinaClip(t *testing.T) {
	dir, texts, ofTexts, pictures, ofImages := clip(t)
	ctx := context.Background()
	for _, dim := range []int{16, 8, 4} {
		e := load(t, dir, encoder.Override{Dim: &dim})
		if s := e.Space(); s.Dim != dim || s.MaxTokens != 78 || s.QueryPrefix != "" || s.Content != "" || !e.ReadsImages() {
			t.Errorf("space %+v", s)
		}
		q, err := e.Queries(ctx, texts)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "query", q, ofTexts, dim)
		if p, err := e.Passages(ctx, texts); err != nil || !slices.Equal(p, q) {
			t.Errorf("passages differ from queries, %v", err)
		}
		many := slices.Concat(pictures, pictures) // more than one forward pass takes
		v, err := e.Images(ctx, many)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "image", v, slices.Concat(ofImages, ofImages), dim)
	}
	for _, dim := range []int{-1, 5, 32} {
		if _, err := encoder.Load(dir, encoder.Override{Dim: &dim}); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "[4 8 16]") {
			t.Errorf("%d numbers: %v", dim, err)
		}
	}
	s := load(t, dir, encoder.Override{}).Space()
	s.Content = vectors.Images
	if e, err := encoder.LoadSpace(dir, s); err != nil || e.Space() != s {
		t.Errorf("the space of images: %v", err)
	}
	wide := &picture.Picture{W: 201, H: 1, Pix: make([]uint8, 3*201)}
	e := load(t, dir, encoder.Override{})
	if _, err := e.Images(ctx, []*picture.Picture{pictures[0], wide}); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "row 2") {
		t.Errorf("a strip: %v", err)
	}
	text := load(t, folder(t), encoder.Override{})
	if _, err := text.Images(ctx, pictures); fail.KindOf(err) != fail.BadInput || text.ReadsImages() {
		t.Errorf("an encoder of texts: %v", err)
	}
	s = text.Space()
	s.Content = vectors.Images
	if _, err := encoder.LoadSpace(text.Dir(), s); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "content") {
		t.Errorf("images with an encoder of texts: %v", err)
	}
}

// The settings that are only in config.json, and what belongs together in a folder.
func TestJinaSettings(t *testing.T) {
	dir, texts, _, _, _ := clip(t)
	edit := func(name, old, with string) {
		t.Helper()
		path := filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		if err == nil && !strings.Contains(string(data), old) {
			t.Fatalf("%s has no %s", name, old)
		}
		if err == nil {
			err = os.WriteFile(path, []byte(strings.Replace(string(data), old, with, 1)), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(want string) {
		t.Helper()
		if _, err := encoder.Load(dir, encoder.Override{}); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	before := load(t, dir, encoder.Override{})
	edit("preprocessor_config.json", `"size": 22`, `"size": 24`)
	refused("24")
	edit("preprocessor_config.json", `"size": 24`, `"size": [22, 22]`)
	if after := load(t, dir, encoder.Override{}); after.Space().Encoder == before.Space().Encoder {
		t.Error("the preparation of images is no part of the encoder's identity")
	}
	edit("config.json", `"truncate_dim": null`, `"truncate_dim": 8`)
	edit("config.json", `"default_instruction_task": null`, `"default_instruction_task": "retrieval.query"`)
	s := load(t, dir, encoder.Override{}).Space()
	if s.Dim != 8 || s.QueryPrefix != "Represent the query for retrieving evidence documents: " || s.PassagePrefix != s.QueryPrefix {
		t.Errorf("space %+v", s)
	}
	edit("config.json", `"default_instruction_task": "retrieval.query"`, `"default_instruction_task": "other"`)
	refused("other")

	// jina-embeddings-v3: queries and passages have their own adapters and instructions.
	v3 := models + "bert/testdata/jina/"
	dir = assemble(t, v3+"config.json", v3+"model.safetensors", "../../internal/token/testdata/xlmr/tokenizer.json")
	refused("the tokenizer has")
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(`{"pre_tokenizer":{"type":"Metaspace","replacement":"▁"},
		"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["▁t",-1],["▁q",-1],["▁r",-1.5],["e",-2]]}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	e := load(t, dir, encoder.Override{})
	if s := e.Space(); s.QueryPrefix != "Represent the query for retrieving evidence documents: " || s.PassagePrefix != "Represent the document for retrieval: " || s.MaxTokens != 38 {
		t.Errorf("space %+v", s)
	}
	none := ""
	e = load(t, dir, encoder.Override{QueryPrefix: &none, PassagePrefix: &none})
	q, err := e.Queries(context.Background(), texts)
	if err != nil {
		t.Fatal(err)
	}
	p, err := e.Passages(context.Background(), texts)
	if err != nil || slices.Equal(p, q) {
		t.Errorf("queries and passages have one adapter, %v", err)
	}
}
