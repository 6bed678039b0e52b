package indexer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"searchloop/indexer"
	"searchloop/indexer/faiss"
	"searchloop/indexer/flat"
	"searchloop/internal/fail"
	"searchloop/internal/manifest"
)

// An index of half floats, and one with sketches, find what the plain one finds.
func TestFormatsOfBuild(t *testing.T) {
	ctx := context.Background()
	d := build(t, t.TempDir(), facts(90), 32, 2)
	queries := []string{"founder of vornavor", "river", "bird of kel"}
	want, err := open(t, d.index).Search(ctx, queries, 90)
	must(t, err)
	for name, o := range map[string]indexer.IndexOptions{"fp16": {Format: "fp16"}, "sketch": {BuildOptions: indexer.BuildOptions{Sketch: true}}} {
		out := filepath.Join(t.TempDir(), "index")
		o.Vectors, o.Passages, o.Out = d.vectors, d.passages, out
		must(t, indexer.RunIndex(ctx, newRun(t, 3), o))
		got, err := open(t, out).Search(ctx, queries, 90)
		must(t, err)
		for q := range want {
			if name == "sketch" && !reflect.DeepEqual(got[q], want[q]) {
				t.Errorf("query %d: hits with sketches differ", q)
			}
			if got[q][0].Row != want[q][0].Row || abs(got[q][0].Score-want[q][0].Score) > 1e-3 {
				t.Errorf("%s: query %d: %v, float32 finds %v", name, q, got[q][0], want[q][0])
			}
		}
		run := newRun(t, 1)
		var text bytes.Buffer
		run.Out = &text
		must(t, indexer.RunIndex(ctx, run, indexer.IndexOptions{Verify: out, Sample: 20, K: 5, BuildOptions: indexer.BuildOptions{Vectors: d.vectors}}))
		var v indexer.Verification
		must(t, json.Unmarshal(text.Bytes(), &v))
		if v.Queries != 20 || v.K != 5 || v.Recall < 0.99 || v.MaxError > 1e-3 || name == "sketch" && (v.Recall != 1 || v.MaxError > 1e-6) {
			t.Errorf("%s: %+v", name, v)
		}
		before, err := manifest.Open(out)
		must(t, err)
		if noted := open(t, out).Describe().Verified; noted == nil || *noted != v {
			t.Errorf("%s: index.json says %+v", name, noted)
		}
		_, err = indexer.Verify(ctx, out, "", 5, 2, faiss.Effort{})
		must(t, err)
		after, err := manifest.Open(out)
		must(t, err)
		if after.Digest() != before.Digest() || after.Content() == before.Content() {
			t.Errorf("%s: a second note changed the digest, or nothing", name)
		}
	}
}

func TestSearchRange(t *testing.T) {
	ctx := context.Background()
	x := open(t, build(t, t.TempDir(), facts(60), 16, 2).index)
	q := make([]float32, 16)
	q[0] = 1
	all, err := x.SearchVectors(ctx, q, 60)
	must(t, err)
	some, err := x.SearchRange(ctx, q, 60, flat.Range{From: 15, To: 35})
	must(t, err)
	var want []indexer.Hit
	for _, h := range all[0] {
		if h.Row >= 15 && h.Row < 35 {
			want = append(want, h)
		}
	}
	if len(want) != 20 || !reflect.DeepEqual(some[0], want) {
		t.Errorf("%d hits of the range, want %d", len(some[0]), len(want))
	}
}

func abs(x float32) float32 { return max(x, -x) }

func TestMergeAndSplit(t *testing.T) {
	ctx := context.Background()
	d := build(t, t.TempDir(), facts(91), 16, 2) // three shards
	info, err := indexer.Info(d.index)
	must(t, err)
	var paths []string
	for i, f := range info {
		paths = append(paths, f.Path)
		if f.Dim != 16 || f.Format != "flat" || f.Metric != "inner_product" || (f.Dataset != nil) != (i == 0) {
			t.Errorf("info of shard %d: %+v", i, f)
		}
	}
	if len(info) != 3 || info[0].Dataset.Rows != 91 || info[0].Dataset.Space.Encoder == "" {
		t.Fatalf("info: %+v", info)
	}
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole.index")
	run := func(o indexer.IndexOptions) error { return indexer.RunIndex(ctx, newRun(t, 1), o) }
	must(t, run(indexer.IndexOptions{Merge: paths, BuildOptions: indexer.BuildOptions{Out: whole}}))
	a, err := flat.OpenSet([]string{whole})
	must(t, err)
	defer a.Close()
	b, err := flat.OpenSet(paths)
	must(t, err)
	defer b.Close()
	if a.Rows() != 91 {
		t.Fatalf("merged file has %d rows", a.Rows())
	}
	for r := range a.Rows() {
		if !reflect.DeepEqual(a.Row(r), b.Row(r)) {
			t.Fatalf("row %d changed", r)
		}
	}
	// Cut as it was before, the parts are the shards to the byte.
	must(t, run(indexer.IndexOptions{Split: whole, Parts: 3, BuildOptions: indexer.BuildOptions{Out: filepath.Join(dir, "parts")}}))
	for _, p := range paths {
		want, err := os.ReadFile(p)
		must(t, err)
		got, err := os.ReadFile(filepath.Join(dir, "parts", filepath.Base(p)))
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: the part differs from the shard", p)
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, "cut"), []byte("IxFI"), 0o644))
	for what, o := range map[string]indexer.IndexOptions{
		"--out is missing":       {Merge: paths},
		"92 parts":               {Split: whole, Parts: 92, BuildOptions: indexer.BuildOptions{Out: dir}},
		"exclude each other":     {Split: whole, Verify: dir},
		"--passages is missing":  {BuildOptions: indexer.BuildOptions{Vectors: "x"}},
		"shorter than":           {Info: []string{filepath.Join(dir, "cut")}},
		"only flat files":        {Format: "fp16", BuildOptions: indexer.BuildOptions{Vectors: "x", Passages: "x", Out: "x", Sketch: true}},
		"make the index with":    {Verify: dir},
		"0 parts of 91":          {Split: whole, BuildOptions: indexer.BuildOptions{Out: dir}},
		"shorter than the heade": {Merge: []string{whole, filepath.Join(dir, "cut")}, BuildOptions: indexer.BuildOptions{Out: filepath.Join(dir, "never")}},
	} {
		if err := run(o); err == nil || !strings.Contains(err.Error(), what) || fail.KindOf(err) == fail.Bug {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "never")); err == nil {
		t.Error("a merge that failed left a file")
	}
}
