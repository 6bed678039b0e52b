package flat

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"searchloop/internal/fail"
)

// stored writes v as files of head h cut at the given rows.
func stored(t testing.TB, h Header, v []float32, cuts ...int) (paths []string) {
	t.Helper()
	dir, at := t.TempDir(), 0
	for i, c := range append(cuts, len(v)/h.Dim) {
		p := filepath.Join(dir, string(rune('a'+i)))
		if err := os.WriteFile(p, encoded(t, h, v[at*h.Dim:c*h.Dim]), 0o644); err != nil {
			t.Fatal(err)
		}
		paths, at = append(paths, p), c
	}
	return paths
}

func openSet(t testing.TB, paths []string) *Set {
	t.Helper()
	s, err := OpenSet(paths)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// A search by way of sketches is the search without, whatever the vectors are
// like: far apart, near one another, equal.
func TestSketch(t *testing.T) {
	const rows, dim = 3000, 48
	rng := rand.New(rand.NewPCG(8, 9))
	spread := units(rng, rows, dim)
	near := slices.Clone(spread)
	for i := range near {
		near[i] = spread[i%dim] + near[i]*1e-3
	}
	equal := slices.Clone(spread)
	for r := range rows {
		copy(equal[r*dim:], spread[r%7*dim:][:dim])
	}
	q := append(units(rng, 5, dim), spread[:dim]...)
	for name, v := range map[string][]float32{"spread": spread, "near": near, "equal": equal, "zero": make([]float32, rows*dim)} {
		plain := openSet(t, stored(t, Header{Dim: dim}, v, 700, 701, 2000))
		s := openSet(t, stored(t, Header{Dim: dim}, v, 700, 701, 2000))
		if err := s.Sketch(stored(t, Header{Dim: dim, Format: SQ8}, v, 700, 701, 2000)); err != nil {
			t.Fatal(err)
		}
		for _, k := range []int{1, 5, 700, rows} {
			for _, among := range []Range{All, {650, 2100}, {701, 703}} {
				want, err := plain.SearchRange(context.Background(), q, k, among)
				if err != nil {
					t.Fatal(err)
				}
				got, err := s.SearchRange(context.Background(), q, k, among)
				if err != nil {
					t.Fatal(err)
				}
				for i := range want {
					if !slices.Equal(got[i], want[i]) {
						t.Fatalf("%s, k %d, rows %v, query %d: with sketches\n%v\nwithout\n%v", name, k, among, i, got[i], want[i])
					}
				}
			}
		}
	}
}

func TestSketchRefuses(t *testing.T) {
	v := units(rand.New(rand.NewPCG(1, 1)), 40, 16)
	files := stored(t, Header{Dim: 16}, v, 10)
	for name, paths := range map[string][]string{
		"one too few":  stored(t, Header{Dim: 16, Format: SQ8}, v),
		"other cut":    stored(t, Header{Dim: 16, Format: SQ8}, v, 11),
		"other format": stored(t, Header{Dim: 16, Format: FP16}, v, 10),
		"absent":       {"absent", "absent"},
	} {
		if err := openSet(t, files).Sketch(paths); fail.KindOf(err) != fail.BadInput {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := OpenSet(append(files, stored(t, Header{Dim: 16, Format: FP16}, v)...))
	if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "format fp16") {
		t.Errorf("shards of two formats: %v", err)
	}
}

// In every format and metric: the scores of a query alone, in a batch and with
// other shards are the same to the bit, half floats score as the float32 values
// they are, and a range searches only its rows.
func TestFormats(t *testing.T) {
	const rows, dim, k = 900, 40, 12
	rng := rand.New(rand.NewPCG(10, 11))
	v, q := units(rng, rows, dim), units(rng, 30, dim)
	for _, h := range []Header{{}, {Metric: L2}, {Format: FP16}, {Format: FP16, Metric: L2}, {Format: SQ8}, {Format: SQ8, Metric: L2}} {
		h.Dim = dim
		whole := openSet(t, stored(t, h, v))
		all, err := whole.Search(context.Background(), q, k)
		if err != nil {
			t.Fatal(err)
		}
		var values []float32
		for r := range int64(rows) {
			values = append(values, whole.Row(r)...)
		}
		exact := openSet(t, stored(t, Header{Dim: dim, Metric: h.Metric}, values))
		want, err := exact.Search(context.Background(), q, k)
		if err != nil {
			t.Fatal(err)
		}
		if h.Format == FP16 {
			cut := openSet(t, stored(t, h, v, 1, 333))
			for i := range all {
				one, err := cut.Search(context.Background(), q[i*dim:(i+1)*dim], k)
				if err != nil || !slices.Equal(one[0], all[i]) {
					t.Fatalf("%v %v query %d: alone and cut %v, %v", h.Format, h.Metric, i, one[0], err)
				}
			}
		}
		for i := range all {
			for n, hit := range all[i] {
				if d := hit.Score - want[i][n].Score; d > 1e-5 || d < -1e-5 || h.Format != SQ8 && hit != want[i][n] {
					t.Fatalf("%v %v query %d rank %d: %v, the values themselves give %v", h.Format, h.Metric, i, n, hit, want[i][n])
				}
			}
		}
		part, err := whole.SearchRange(context.Background(), q, rows, Range{100, 150})
		if err != nil || len(part[0]) != 50 {
			t.Fatalf("%v: range: %d hits, %v", h, len(part[0]), err)
		}
		for _, hit := range part[3] {
			if hit.Row < 100 || hit.Row >= 150 {
				t.Errorf("row %d is not in the range", hit.Row)
			}
		}
	}
	s := openSet(t, stored(t, Header{Dim: dim}, v))
	for _, r := range []Range{{5, 5}, {9, 2}, {rows, rows + 9}, {-5, 0}} {
		if hits, err := s.SearchRange(context.Background(), q[:dim], 3, r); err != nil || len(hits) != 1 || len(hits[0]) != 0 {
			t.Errorf("range %v: %v, %v", r, hits, err)
		}
	}
}
