package indexer_test

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"searchloop/indexer"
	"searchloop/indexer/flat"
	"searchloop/internal/fail"
)

// A file that came from elsewhere becomes an index like one built here; what does
// not belong together is refused.
func TestAdopt(t *testing.T) {
	ctx := context.Background()
	d := build(t, t.TempDir(), facts(90), 32, 2)
	info, err := indexer.Info(d.index)
	must(t, err)
	file := filepath.Join(t.TempDir(), "published.index")
	must(t, indexer.Merge([]string{info[0].Path, info[1].Path, info[2].Path}, file))
	adopt := func(file, passages, encoder string) (string, error) {
		out := filepath.Join(t.TempDir(), "index")
		return out, indexer.RunIndex(ctx, newRun(t, 3), indexer.IndexOptions{Adopt: file, Encoder: encoder, BuildOptions: indexer.BuildOptions{Passages: passages, Out: out}})
	}
	out, err := adopt(file, d.passages, d.encoder)
	must(t, err)
	queries := []string{"founder of vornavor", "river"}
	want, err := open(t, d.index).Search(ctx, queries, 10)
	must(t, err)
	got, err := open(t, out).Search(ctx, queries, 10)
	must(t, err)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("adopted: %v, built here: %v", got, want)
	}

	wide := build(t, t.TempDir(), facts(90), 16, 1)
	more := build(t, t.TempDir(), facts(93), 32, 1)
	swapped := filepath.Join(t.TempDir(), "swapped.index")
	must(t, indexer.Merge([]string{info[1].Path, info[0].Path, info[2].Path}, swapped))
	cut := filepath.Join(t.TempDir(), "cut.index")
	b, err := os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(cut, b[:len(b)-3], 0o644))
	// Whose vectors a published file holds is told from its head.
	of := func(dim int) string {
		path := filepath.Join(t.TempDir(), "published.index")
		w, err := os.Create(path)
		must(t, err)
		defer w.Close()
		x, err := flat.Header{Dim: dim, Rows: 90}.Writer(w)
		must(t, err)
		must(t, x.Write(make([]float32, 90*dim)))
		must(t, x.Close())
		return path
	}
	for what, c := range map[string][3]string{
		"dimension 1024: e5-large-v2, multilingual-e5-large, bge-large-en-v1.5 and jina-clip-v2": {of(1024), d.passages, d.encoder},
		"dimension 2048: jina-embeddings-v4":                                                     {of(2048), d.passages, d.encoder},
		"an encoder of dimension 32":                                                             {file, d.passages, wide.encoder},
		"there are 93 passages":                                                                  {file, more.passages, d.encoder},
		"the vector there":                                                                       {swapped, d.passages, d.encoder},
		"cut short":                                                                              {cut, d.passages, d.encoder},
		"--adopt goes with":                                                                      {file, d.passages, ""},
		"no such file":                                                                           {filepath.Join(d.index, "x"), d.passages, d.encoder},
	} {
		out, err := adopt(c[0], c[1], c[2])
		if k := fail.KindOf(err); err == nil || k != fail.BadInput && k != fail.Usage || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := indexer.Open(context.Background(), out); err == nil {
			t.Errorf("%s: left an index", what)
		}
	}
}
