//go:build faiss && cgo

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
	"searchloop/internal/fail"
)

// An index by FAISS goes the way of every other: built in shards, opened,
// searched with the effort that index.json or the call says, checked, served.
func TestFAISSIndex(t *testing.T) {
	ctx := context.Background()
	rows := facts(300)
	d := build(t, t.TempDir(), rows, 32, 2)
	queries := []string{"founder of vornavor", "river", "bird of kel"}
	want, err := open(t, d.index).Search(ctx, queries, 10)
	must(t, err)
	for _, factory := range []string{"IVF8,Flat", "IDMap2,IVF8,Flat"} {
		make := func(shards int) string {
			out := filepath.Join(t.TempDir(), "index")
			must(t, indexer.RunIndex(ctx, newRun(t, shards), indexer.IndexOptions{BuildOptions: indexer.BuildOptions{Vectors: d.vectors, Passages: d.passages, Out: out,
				FAISS: indexer.FAISSOptions{Factory: factory, Train: 200, Seed: 3, Effort: faiss.Effort{NProbe: 1}}}}))
			return out
		}
		out := make(3)
		same(t, factory+" built again", files(t, make(3)), files(t, out))
		x := open(t, out)
		if got := x.Describe(); got.Format != indexer.FormatFAISS || got.Factory != factory || got.Effort.NProbe != 1 {
			t.Errorf("index.json: %+v", got)
		}
		few, err := x.Search(ctx, queries, 10)
		must(t, err)
		all, err := x.SearchQueries(ctx, indexer.Texts(queries), 10, faiss.Effort{NProbe: 8})
		must(t, err)
		if reflect.DeepEqual(few, all) {
			t.Error("one list finds what eight find")
		}
		for q := range want {
			for i, h := range want[q] {
				if g := all[q][i]; abs(g.Score-h.Score) > 1e-5 || g.Passage != rows[g.Row] {
					t.Errorf("%s: query %d hit %d: %v, exact %v", factory, q, i, g, h)
				}
			}
		}
		if _, err := x.SearchQueries(ctx, indexer.Texts(queries), 10, faiss.Effort{EfSearch: 8}); fail.KindOf(err) != fail.Usage {
			t.Errorf("a setting of HNSW: %v", err)
		}
		for probe, exact := range map[int]bool{1: false, 8: true} {
			v, err := indexer.Verify(ctx, out, d.vectors, 20, 5, faiss.Effort{NProbe: probe})
			must(t, err)
			if v.Effort.NProbe != probe || (v.Recall == 1) != exact || v.MaxError > 1e-5 {
				t.Errorf("%s: %+v", factory, v)
			}
		}
		if got := open(t, out).Describe().Verified; got == nil || got.Effort.NProbe == 0 {
			t.Errorf("noted: %+v", got)
		}
		if _, err := indexer.Verify(ctx, out, "", 5, 5, faiss.Effort{}); fail.KindOf(err) != fail.Usage || !strings.Contains(err.Error(), "--vectors") {
			t.Errorf("no vectors to compare with: %v", err)
		}
		info, err := indexer.Info(out)
		must(t, err)
		if len(info) != 3 || info[0].Dim != 32 || info[1].Rows != 100 || info[0].Metric != "inner_product" || !strings.HasPrefix(info[0].Format, "Index") {
			t.Errorf("%+v", info)
		}
		// Joined, the shards are one index of all rows.
		whole := filepath.Join(t.TempDir(), "whole.index")
		must(t, indexer.Merge([]string{info[0].Path, info[1].Path, info[2].Path}, whole))
		s, err := faiss.OpenSet([]string{whole}, faiss.Effort{})
		must(t, err)
		if s.Rows() != 300 {
			t.Errorf("%d rows", s.Rows())
		}
		must(t, s.Close())
		// And it can come back as a file of somebody else's.
		back := filepath.Join(t.TempDir(), "back")
		must(t, indexer.Adopt(ctx, newRun(t, 1), indexer.AdoptOptions{File: whole, Passages: d.passages, Encoder: d.encoder, Out: back, Effort: faiss.Effort{NProbe: 8}}))
		again, err := open(t, back).Search(ctx, queries, 10)
		must(t, err)
		for q := range all {
			for i := range all[q] {
				if again[q][i].Row != all[q][i].Row || abs(again[q][i].Score-all[q][i].Score) > 1e-5 {
					t.Errorf("%s adopted: query %d hit %d: %v, was %v", factory, q, i, again[q][i], all[q][i])
				}
			}
		}
		if _, err := indexer.Split(whole, 2, t.TempDir()); fail.KindOf(err) != fail.Usage {
			t.Errorf("split: %v", err)
		}
	}
}

// Nothing is left of a build that cannot be done, and what FAISS would trust is
// checked before it is read.
func TestFAISSRefusals(t *testing.T) {
	ctx := context.Background()
	d := build(t, t.TempDir(), facts(60), 16, 1)
	for want, f := range map[string]indexer.FAISSOptions{
		"factory string":         {Factory: "IVF8,Nonsense"},
		"ef_search means":        {Factory: "IVF4,Flat", Effort: faiss.Effort{EfSearch: 3}},
		"choose a smaller index": {Factory: "IVF100,Flat"},
		"an index that --factor": {Effort: faiss.Effort{NProbe: 3}},
	} {
		out := filepath.Join(t.TempDir(), "index")
		err := indexer.Build(ctx, newRun(t, 1), indexer.BuildOptions{Vectors: d.vectors, Passages: d.passages, Out: out, FAISS: f})
		if fail.KindOf(err) != fail.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if left, _ := filepath.Glob(filepath.Join(out, "*.index")); len(left) > 0 {
			t.Errorf("%s: left %v", want, left)
		}
	}
	out := filepath.Join(t.TempDir(), "index")
	must(t, indexer.Build(ctx, newRun(t, 2), indexer.BuildOptions{Vectors: d.vectors, Passages: d.passages, Out: out, FAISS: indexer.FAISSOptions{Factory: "IVF4,Flat"}}))
	part := filepath.Join(out, "part-00001-of-00002.index")
	good, err := os.ReadFile(part)
	must(t, err)
	flipped := bytes.Clone(good)
	flipped[len(good)/2] ^= 1
	must(t, os.WriteFile(part, flipped, 0o644))
	if _, err := indexer.Open(context.Background(), out); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "SHA-256") {
		t.Errorf("a flipped bit: %v", err)
	}
	// A manifest made with the damage does not notice it; the rows do.
	must(t, os.WriteFile(part, good[:len(good)-9], 0o644))
	reseal(t, out, nil)
	if _, err := indexer.Open(context.Background(), out); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), part) {
		t.Errorf("cut short: %v", err)
	}
	first, err := os.ReadFile(filepath.Join(out, "part-00000-of-00002.index"))
	must(t, err)
	must(t, os.WriteFile(part, first, 0o644))
	edit := func(b []byte) []byte {
		var m map[string]any
		must(t, json.Unmarshal(b, &m))
		m["shards"].([]any)[1].(map[string]any)["rows"] = 29
		m["rows"] = 59
		text, err := json.Marshal(m)
		must(t, err)
		return text
	}
	text, err := os.ReadFile(filepath.Join(out, "index.json"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(out, "index.json"), edit(text), 0o644))
	reseal(t, out, nil)
	if _, err := indexer.Open(context.Background(), out); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "holds 30 vectors") {
		t.Errorf("rows: %v", err)
	}
}
