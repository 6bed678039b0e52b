package encoder_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"searchloop/indexer/encoder"
	"searchloop/indexer/lexical"
	"searchloop/indexer/vectors"
	"searchloop/internal/fail"
)

var texts = []string{"The founder of Vorna is Kelmar.", "The river of Vorna is the Tis, a long and slow river.", "Mundo", "The founder of Mundo is Lenqui."}

func folder(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "encoder")
	if err := lexical.Write(dir, texts, 32, 1); err != nil {
		t.Fatal(err)
	}
	return dir
}

func load(t testing.TB, dir string, o encoder.Override) *encoder.Encoder {
	t.Helper()
	e, err := encoder.Load(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// A text's vector is the same alone, in any company and from any goroutine.
func TestVectorsDoNotDependOnCompany(t *testing.T) {
	e := load(t, folder(t), encoder.Override{})
	ctx := context.Background()
	var many []string
	for range 100 { // more tokens than one forward pass takes
		many = append(many, texts...)
		many = append(many, strings.Repeat("vorna river ", 200))
	}
	all, err := e.Passages(ctx, many)
	if err != nil {
		t.Fatal(err)
	}
	d := e.Space().Dim
	if len(all) != len(many)*d {
		t.Fatalf("%d numbers for %d texts", len(all), len(many))
	}
	var wg sync.WaitGroup
	for _, i := range []int{0, 1, 4, 203, 499} {
		wg.Go(func() {
			one, err := e.Passages(ctx, many[i:i+1])
			if err != nil || !slices.Equal(one, all[i*d:(i+1)*d]) {
				t.Errorf("text %d alone differs from the batch (%v)", i, err)
			}
		})
	}
	wg.Wait()
	if none, err := e.Passages(ctx, nil); err != nil || len(none) != 0 {
		t.Errorf("no texts: %v, %v", none, err)
	}
}

func TestPrefixesAndLimit(t *testing.T) {
	dir := folder(t)
	ctx := context.Background()
	e := load(t, dir, encoder.Override{})
	vorna, other, four := "vorna ", "mundo ", 5
	o := load(t, dir, encoder.Override{QueryPrefix: &vorna, PassagePrefix: &other, MaxTokens: &four})
	a, err := e.Queries(ctx, []string{"river"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := o.Queries(ctx, []string{"river"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := o.Passages(ctx, []string{"river"})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Equal(a, b) || slices.Equal(b, c) {
		t.Error("a prefix changes nothing")
	}
	// Five tokens: [CLS] vorna river of [SEP].
	d, err := o.Queries(ctx, []string{"river of"})
	if err != nil {
		t.Fatal(err)
	}
	cut, err := o.Queries(ctx, []string{"river of founder long slow"})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(d, cut) {
		t.Error("words beyond the limit count")
	}
	if diff := e.Space().Diff(o.Space()); !strings.Contains(diff, "max tokens 256 and 5") || !strings.Contains(diff, "query prefix") {
		t.Errorf("spaces differ in %q", diff)
	}
	for _, n := range []int{-1, 2, 513} {
		if _, err := encoder.Load(dir, encoder.Override{MaxTokens: &n}); fail.KindOf(err) != fail.BadInput {
			t.Errorf("%d tokens: %v", n, err)
		}
	}
}

// The settings of folders that are not ours.
func TestSettingsOfForeignFolders(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  vectors.Space // only what the settings decide
	}{
		"intfloat_e5-base-v2":   {nil, vectors.Space{QueryPrefix: "query: ", PassagePrefix: "passage: ", MaxTokens: 256}},
		"multilingual-E5-small": {map[string]string{"sentence_bert_config.json": `{"max_seq_length": 512, "do_lower_case": false}`}, vectors.Space{QueryPrefix: "query: ", PassagePrefix: "passage: ", MaxTokens: 256}},
		"distilbe5t":            {nil, vectors.Space{MaxTokens: 512}},
		"all-minilm":            {map[string]string{"sentence_bert_config.json": `{"max_seq_length": 128}`}, vectors.Space{MaxTokens: 128}},
		"prompted":              {map[string]string{"config_sentence_transformers.json": `{"prompts": {"query": "ask: ", "document": "doc: "}}`}, vectors.Space{QueryPrefix: "ask: ", PassagePrefix: "doc: ", MaxTokens: 512}},
		"ours-e5":               {map[string]string{"searchloop.json": `{"query_prefix": "q ", "max_tokens": 9}`}, vectors.Space{QueryPrefix: "q ", MaxTokens: 9}},
	} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Rename(folder(t), dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, "searchloop.json")); err != nil {
			t.Fatal(err)
		}
		for file, text := range c.files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		s := load(t, dir, encoder.Override{}).Space()
		if s.QueryPrefix != c.want.QueryPrefix || s.PassagePrefix != c.want.PassagePrefix || s.MaxTokens != c.want.MaxTokens {
			t.Errorf("%s: %q %q %d", name, s.QueryPrefix, s.PassagePrefix, s.MaxTokens)
		}
	}
}

func TestDigest(t *testing.T) {
	dir := folder(t)
	digest := func() string {
		t.Helper()
		d, err := encoder.Digest(dir)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first := digest()
	for _, note := range []string{"README.md", "manifest.json", "pytorch_model.bin"} {
		if err := os.WriteFile(filepath.Join(dir, note), []byte("note"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if digest() != first {
		t.Error("files that decide nothing change the digest")
	}
	for _, name := range lexical.Files {
		path := filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		was := digest()
		if err := os.WriteFile(path, append(data, ' '), 0o644); err != nil {
			t.Fatal(err)
		}
		if digest() == was {
			t.Errorf("%s does not change the digest", name)
		}
	}
	odd := filepath.Join(t.TempDir(), "a[b]*c")
	if err := os.Rename(dir, odd); err != nil {
		t.Fatal(err)
	}
	was := first
	dir = odd
	if digest() == was {
		t.Error("the changed files were not found in a folder with an odd name")
	}
}

func TestLoadSpaceRefuses(t *testing.T) {
	dir := folder(t)
	s := load(t, dir, encoder.Override{}).Space()
	s.QueryPrefix = "ask: " // as the vectors were made; the folder's own setting does not matter
	e, err := encoder.LoadSpace(dir, s)
	if err != nil || e.Space() != s {
		t.Fatalf("%+v, %v", e, err)
	}
	for what, change := range map[string]func(*vectors.Space){
		"encoder": func(s *vectors.Space) { s.Encoder = strings.Repeat("0", 64) },
		"dim":     func(s *vectors.Space) { s.Dim = 31 },
		"pooling": func(s *vectors.Space) { s.Pooling = "cls" },
	} {
		other := s
		change(&other)
		if _, err := encoder.LoadSpace(dir, other); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "searchloop.json"), []byte(`{"query_prefx": "typo"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := encoder.Load(dir, encoder.Override{}); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "query_prefx") {
		t.Errorf("misspelt setting: %v", err)
	}
}
