package indexer_test

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"searchloop/indexer"
	"searchloop/internal/fail"
)

// Words decide where vectors do not, an index of words is built once, and ranks
// are joined as the paper says.
func TestHybrid(t *testing.T) {
	ctx := context.Background()
	rows := facts(240)
	d := build(t, t.TempDir(), rows, 16, 2) // so few dimensions that vectors often miss
	dir := t.TempDir()
	var before [][]indexer.Hit
	for range 2 {
		x, err := indexer.Open(context.Background(), d.index)
		must(t, err)
		h, err := x.WithWords(ctx, dir)
		must(t, err)
		queries := []string{"founder of vornavor", "bird of navorvor", "zzz"}
		hits, err := h.Search(ctx, queries, 5)
		must(t, err)
		for i, q := range hits {
			if len(q) != 5 || q[0].Passage != rows[q[0].Row] || q[0].Score < q[4].Score || q[0].Score > 2.0/61+1e-6 {
				t.Errorf("query %d: %+v", i, q)
			}
		}
		if hits[0][0].Row != 24 {
			t.Errorf("founder of vornavor: row %d", hits[0][0].Row)
		}
		// A word that no passage has leaves the ranking of the vectors.
		alone, err := x.Search(ctx, queries[2:], 5)
		must(t, err)
		for r, hit := range hits[2] {
			if hit.Row != alone[0][r].Row || hit.Score != 1/float32(61+r) {
				t.Errorf("rank %d: %+v, by vectors row %d", r, hit, alone[0][r].Row)
			}
		}
		if before != nil && !reflect.DeepEqual(before, hits) {
			t.Error("another answer from the kept index")
		}
		before = hits
		must(t, h.Close())
	}
	kept, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	if len(kept) != 1 {
		t.Fatalf("kept %v", kept)
	}
	must(t, os.RemoveAll(kept[0]))
	must(t, os.WriteFile(kept[0], []byte("no index"), 0o644))
	x := open(t, d.index)
	if _, err := x.WithWords(ctx, dir); fail.KindOf(err) != fail.BadInput {
		t.Errorf("damaged index of words: %v", err)
	}
}
