//go:build faiss && cgo

package faiss

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"searchloop/indexer/flat"
)

const dim = 32

// units is rows random vectors of length 1.
func units(rows int, seed uint64) []float32 {
	rng := rand.New(rand.NewPCG(seed, 1))
	v := make([]float32, rows*dim)
	for r := range rows {
		var sum float64
		row := v[r*dim : (r+1)*dim]
		for i := range row {
			row[i] = float32(rng.NormFloat64())
			sum += float64(row[i]) * float64(row[i])
		}
		for i := range row {
			row[i] /= float32(math.Sqrt(sum))
		}
	}
	return v
}

// built writes the vectors as an index of so many shards and opens it.
func built(t testing.TB, factory string, v []float32, shards int, e Effort) (*Set, []string) {
	t.Helper()
	trained, err := Train(dim, factory, v)
	must(t, err)
	defer trained.Close()
	rows := len(v) / dim
	var paths []string
	dir := t.TempDir()
	for i := range shards {
		lo, hi := i*rows/shards, (i+1)*rows/shards
		path := filepath.Join(dir, fmt.Sprintf("%d.index", i))
		paths = append(paths, path)
		f, err := os.Create(path)
		must(t, err)
		w, err := trained.Writer(f, int64(lo), int64(hi-lo))
		must(t, err)
		for at := lo; at < hi; at += 700 {
			must(t, w.Write(v[at*dim:min(at+700, hi)*dim]))
		}
		must(t, w.Close())
		must(t, f.Close())
	}
	s, err := OpenSet(paths, e)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s, paths
}

// recall is the share of the exact best rows that the set finds.
func recall(t testing.TB, s *Set, v []float32, e Effort, among flat.Range) float64 {
	t.Helper()
	const n, k = 40, 5
	q := units(n, 99)
	got, err := s.SearchRange(context.Background(), q, k, e, among)
	must(t, err)
	found := 0
	for i := range n {
		scores := map[int64]float64{}
		var rows []int64
		for r := max(among.From, 0); r < min(among.To, int64(len(v)/dim)); r++ {
			for c, x := range v[r*dim : (r+1)*dim] {
				scores[r] += float64(x) * float64(q[i*dim+c])
			}
			rows = append(rows, r)
		}
		slices.SortFunc(rows, func(a, b int64) int {
			if scores[a] > scores[b] {
				return -1
			}
			return 1
		})
		for _, h := range got[i] {
			if slices.Contains(rows[:k], h.Row) {
				found++
			}
			if h.Row < among.From || h.Row >= among.To {
				t.Errorf("row %d is not of the range %v", h.Row, among)
			}
		}
	}
	return float64(found) / (n * k)
}
