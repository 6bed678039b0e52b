package indexer_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"searchloop/indexer"
	"searchloop/indexer/flat/gpu"
	"searchloop/internal/cuda"
	"searchloop/internal/fail"
)

// An index finds the same wherever it is searched. A GPU that is asked for by name
// and is not there is an error; auto does without.
func TestSearchOnADevice(t *testing.T) {
	rows := facts(120)
	d := build(t, t.TempDir(), rows, 64, 2)
	ctx := context.Background()
	queries := []string{rows[3].Contents, rows[77].Contents}
	want, err := open(t, d.index).Search(ctx, queries, 5)
	must(t, err)
	_, missing := cuda.Open(0)
	for _, device := range []string{"", "cpu", "auto", "cuda", "cuda:0", "gpu"} {
		x, err := indexer.Open(ctx, d.index, indexer.WithDevice(gpu.Options{Device: device, Log: slog.New(slog.DiscardHandler)}))
		if device == "gpu" || missing != nil && (device == "cuda" || device == "cuda:0") {
			if fail.KindOf(err) != fail.Usage {
				t.Errorf("%q: %v", device, err)
			}
			continue
		}
		must(t, err)
		got, err := x.Search(ctx, queries, 5)
		must(t, err)
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("%q, query %d: %v, want %v", device, i, got[i], want[i])
			}
		}
		must(t, x.Close())
	}
}

// What only FAISS searches no GPU does here.
func TestUnable(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for _, device := range []string{"cuda", "cuda:1", "cuda:x"} {
		if err := gpu.Unable(gpu.Options{Device: device, Log: log}, "open index", "dir", "IVF"); fail.KindOf(err) != fail.Usage {
			t.Errorf("%q: %v", device, err)
		}
	}
	for _, device := range []string{"", "cpu", "auto"} {
		if err := gpu.Unable(gpu.Options{Device: device, Log: log}, "open index", "dir", "IVF"); err != nil {
			t.Errorf("%q: %v", device, err)
		}
	}
}
