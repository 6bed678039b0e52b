package flat

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"searchloop/internal/fail"
)

// shards writes v as files cut at the given rows and opens them as one set.
func shards(t testing.TB, dim int, v []float32, cuts ...int) *Set {
	t.Helper()
	var paths []string
	at := 0
	for _, c := range append(cuts, len(v)/dim) {
		paths = append(paths, write(t, dim, v[at*dim:c*dim]))
		at = c
	}
	s, err := OpenSet(paths)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// brute is the definition of the search, in float64.
func brute(v, q []float32, dim, k int) []Hit {
	type hit struct {
		row   int64
		score float64
	}
	var all []hit
	for r := 0; r*dim < len(v); r++ {
		var sum float64
		for c := range dim {
			sum += float64(v[r*dim+c]) * float64(q[c])
		}
		all = append(all, hit{int64(r), sum})
	}
	slices.SortStableFunc(all, func(a, b hit) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return 0
	})
	var out []Hit
	for _, h := range all[:min(k, len(all))] {
		out = append(out, Hit{h.row, float32(h.score)})
	}
	return out
}

// Small integers have exact float32 products and many equal scores: the result
// must be the brute force's to the last bit and the last tie, for any sharding,
// dimension, k and number of queries.
func TestSearchIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct{ rows, dim, queries, k int }{
		{1, 1, 1, 1}, {5, 3, 2, 5}, {37, 8, 1, 4}, {1000, 5, 3, 1000}, {1000, 128, 17, 10},
		{4097, 33, 5, 3}, {20000, 16, 300, 7}, {3000, 768, 2, 3000},
	} {
		v := make([]float32, c.rows*c.dim)
		for i := range v {
			v[i] = float32(rng.IntN(7) - 3)
		}
		q := make([]float32, c.queries*c.dim)
		for i := range q {
			q[i] = float32(rng.IntN(7) - 3)
		}
		sets := []*Set{shards(t, c.dim, v)}
		if c.rows > 4 {
			sets = append(sets, shards(t, c.dim, v, 1, c.rows/3, c.rows/3, c.rows-1)) // one shard is empty
		}
		for n, s := range sets {
			got, err := s.Search(context.Background(), q, c.k)
			if err != nil {
				t.Fatal(err)
			}
			for i := range c.queries {
				if want := brute(v, q[i*c.dim:(i+1)*c.dim], c.dim, c.k); !slices.Equal(got[i], want) {
					t.Fatalf("%+v set %d query %d:\n got %v\nwant %v", c, n, i, head(got[i]), head(want))
				}
			}
		}
	}
}

func head(h []Hit) []Hit { return h[:min(10, len(h))] }

// Real-valued unit vectors: scores within float32 rounding of the float64 ones,
// and bit-identical alone, in a batch, and in another sharding.
func TestScoresOfRealVectors(t *testing.T) {
	const rows, dim, queries, k = 2000, 96, 20, 25
	rng := rand.New(rand.NewPCG(3, 4))
	v, q := units(rng, rows, dim), units(rng, queries, dim)
	whole, cut := shards(t, dim, v), shards(t, dim, v, 17, 1000)
	batch, err := whole.Search(context.Background(), q, k)
	if err != nil {
		t.Fatal(err)
	}
	for i := range queries {
		one := q[i*dim : (i+1)*dim]
		for _, s := range []*Set{whole, cut} {
			alone, err := s.Search(context.Background(), one, k)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(alone[0], batch[i]) {
				t.Fatalf("query %d alone differs from the batch", i)
			}
		}
		for n, want := range brute(v, one, dim, k) {
			got := batch[i][n]
			if math.Abs(float64(got.Score-want.Score)) > 1e-6 {
				t.Errorf("query %d rank %d: %v, want %v", i, n, got, want)
			}
		}
	}
}

func units(rng *rand.Rand, rows, dim int) []float32 {
	v := make([]float32, rows*dim)
	for r := range rows {
		var sum float64
		row := v[r*dim : (r+1)*dim]
		for c := range row {
			row[c] = float32(rng.NormFloat64())
			sum += float64(row[c]) * float64(row[c])
		}
		for c := range row {
			row[c] /= float32(math.Sqrt(sum))
		}
	}
	return v
}

func TestSearchBounds(t *testing.T) {
	ctx := context.Background()
	s := shards(t, 2, []float32{1, 0, 0, 1, 1, 1}, 1)
	for k, want := range map[int]int{0: 0, 1: 1, 3: 3, 4: 3, math.MaxInt: 3} {
		hits, err := s.Search(ctx, []float32{1, 2}, k)
		if err != nil || len(hits) != 1 || len(hits[0]) != want {
			t.Errorf("k %d: %v, %v", k, hits, err)
		}
	}
	if hits, err := s.Search(ctx, nil, 3); err != nil || len(hits) != 0 {
		t.Errorf("no queries: %v, %v", hits, err)
	}
	empty := shards(t, 2, nil)
	if hits, err := empty.Search(ctx, []float32{1, 2}, 3); err != nil || len(hits) != 1 || len(hits[0]) != 0 {
		t.Errorf("empty index: %v, %v", hits, err)
	}
	for name, bad := range map[string]struct {
		q []float32
		k int
	}{
		"other dimension": {[]float32{1, 2, 3}, 1},
		"NaN":             {[]float32{1, float32(math.NaN())}, 1},
		"negative k":      {[]float32{1, 2}, -1},
	} {
		if _, err := s.Search(ctx, bad.q, bad.k); fail.KindOf(err) != fail.BadInput {
			t.Errorf("%s: %v", name, err)
		}
	}
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Search(stopped, []float32{1, 2}, 1); fail.KindOf(err) != fail.Interrupted {
		t.Errorf("cancelled: %v", err)
	}
}

func TestShardOfAnotherDimension(t *testing.T) {
	a, b := write(t, 2, []float32{1, 2}), write(t, 3, []float32{1, 2, 3})
	_, err := OpenSet([]string{a, b})
	if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), b) || !strings.Contains(err.Error(), "rebuild") {
		t.Fatal(err)
	}
}

// A NaN in a file that somebody else wrote is an error with its row, not a lost hit.
func TestNaNInTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nan.index")
	b, err := os.ReadFile(write(t, 2, []float32{1, 2, 3, 4, 5, 6}))
	if err != nil {
		t.Fatal(err)
	}
	copy(b[HeaderSize+2*4:], []byte{0, 0, 0xc0, 0x7f})
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := OpenSet([]string{path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, k := range []int{1, 3} {
		_, err = s.Search(context.Background(), []float32{1, 1}, k)
		if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "row 2") {
			t.Errorf("k %d: %v", k, err)
		}
	}
}

// Late in a search of many queries most scores are not looked at one by one: what is
// no number must be found all the same.
func TestNaNAmongManyQueries(t *testing.T) {
	const rows, dim, queries = 20_000, 64, 100
	rng := rand.New(rand.NewPCG(9, 10))
	path := write(t, dim, units(rng, rows, dim))
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{0, 0, 0xc0, 0x7f}, HeaderSize+(rows-3)*dim*4); err != nil {
		t.Fatal(err)
	}
	s, err := OpenSet([]string{path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.Search(context.Background(), units(rng, queries, dim), 5)
	if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), fmt.Sprintf("row %d", rows-2)) {
		t.Error(err)
	}
}

func TestSearchFromManyGoroutines(t *testing.T) {
	const rows, dim = 5000, 64
	rng := rand.New(rand.NewPCG(5, 6))
	v, q := units(rng, rows, dim), units(rng, 32, dim)
	s := shards(t, dim, v, 2000)
	want, err := s.Search(context.Background(), q, 5)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			for range 5 {
				got, err := s.Search(context.Background(), q[g*dim:(g+1)*dim], 5)
				if err != nil || !slices.Equal(got[0], want[g]) {
					t.Errorf("goroutine %d: %v, %v", g, got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkSearch(b *testing.B) {
	for _, c := range []struct{ rows, dim, queries int }{{400, 128, 1}, {400, 128, 16}, {100000, 768, 1}, {100000, 768, 16}, {100000, 768, 256}} {
		b.Run(fmt.Sprintf("rows=%d/dim=%d/queries=%d", c.rows, c.dim, c.queries), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(7, 8))
			s := shards(b, c.dim, units(rng, c.rows, c.dim))
			q := units(rng, c.queries, c.dim)
			b.SetBytes(int64(c.rows) * int64(c.dim) * 4)
			for b.Loop() {
				if _, err := s.Search(context.Background(), q, 5); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(c.queries)*float64(b.N)/b.Elapsed().Seconds(), "queries/s")
		})
	}
}
