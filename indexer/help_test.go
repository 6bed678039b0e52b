package indexer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"searchloop/corpus"
	"searchloop/indexer"
	"searchloop/indexer/lexical"
	"searchloop/internal/atomicfile"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/shard"
	"searchloop/internal/table"
)

// newRun is a run with --shards, without a process.
func newRun(t testing.TB, shards int) *job.Run {
	t.Helper()
	r := job.Testing(t)
	r.Shards = shards
	return r
}

// writePassages makes a passages dataset of some parts.
func writePassages(t testing.TB, dir string, rows []corpus.Passage, parts int) string {
	t.Helper()
	m := &manifest.Manifest{Schema: "passages", Version: 1}
	for i := range parts {
		s := shard.Spec{I: i, N: parts}
		lo, hi := s.Range(int64(len(rows)))
		var b bytes.Buffer
		w := table.NewWriter[corpus.Passage](&b)
		must(t, w.Write(rows[lo:hi]...))
		must(t, w.Close())
		must(t, atomicfile.WriteFile(filepath.Join(dir, s.Name("part", "parquet")), b.Bytes()))
		p, err := manifest.PartOf(dir, s.Name("part", "parquet"), hi-lo, false)
		must(t, err)
		m.Parts = append(m.Parts, p)
	}
	_, err := m.Write(filepath.Join(dir, manifest.File))
	must(t, err)
	return dir
}

// reseal writes a dataset's manifest anew after a test changed its files: the
// damage then looks as if the job had made it.
func reseal(t testing.TB, dir string, change func(*manifest.Manifest)) {
	t.Helper()
	m, err := manifest.Read(filepath.Join(dir, manifest.File))
	must(t, err)
	for i, p := range m.Parts {
		m.Parts[i], err = manifest.PartOf(dir, p.Name, p.Rows, p.Side)
		must(t, err)
	}
	if change != nil {
		change(m)
	}
	text, err := json.Marshal(m)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, manifest.File), text, 0o644))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// facts are passages in which the words of a query decide.
func facts(n int) []corpus.Passage {
	syllables := []string{"vor", "na", "kel", "mar", "tis", "do", "len", "qui"}
	name := func(i int) string { return syllables[i%8] + syllables[i/8%8] + syllables[i/64%8] }
	var out []corpus.Passage
	for i := range n {
		what := []string{"founder", "river", "bird"}[i%3]
		out = append(out, corpus.Passage{ID: fmt.Sprintf("p%d", i), Contents: fmt.Sprintf("%q\nThe %s of %s is %s.", name(i/3), what, name(i/3), name(i*7+200))})
	}
	return out
}

// tree is a set of datasets, from passages to index.
type tree struct{ passages, encoder, vectors, index string }

func newTree(root string) tree {
	return tree{filepath.Join(root, "passages"), filepath.Join(root, "encoder"), filepath.Join(root, "vectors"), filepath.Join(root, "index")}
}

// build makes everything from rows.
func build(t testing.TB, root string, rows []corpus.Passage, dim, shards int) tree {
	t.Helper()
	d := newTree(root)
	writePassages(t, d.passages, rows, 2)
	ctx := context.Background()
	must(t, lexical.Fit(ctx, newRun(t, 1), lexical.Options{Passages: []string{d.passages}, Out: d.encoder, Dim: dim, Seed: 1}))
	must(t, indexer.Embed(ctx, newRun(t, shards), indexer.EmbedOptions{Encoder: d.encoder, Passages: d.passages, Out: d.vectors}))
	must(t, indexer.Build(ctx, newRun(t, shards+1), indexer.BuildOptions{Vectors: d.vectors, Passages: d.passages, Out: d.index}))
	return d
}

func open(t testing.TB, dir string, o ...indexer.Option) *indexer.Index {
	t.Helper()
	x, err := indexer.Open(context.Background(), dir, o...)
	must(t, err)
	t.Cleanup(func() { x.Close() })
	return x
}
