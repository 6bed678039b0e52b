//go:build faiss && cgo

package faiss

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"searchloop/indexer/flat"
	"searchloop/internal/fail"
)

// Every kind finds the exact best when it tries hard enough, in two shards as in
// one file joined from them, and in a range of rows where it has ranges.
func TestKinds(t *testing.T) {
	v := units(2000, 7)
	for _, c := range []struct {
		factory        string
		most           Effort
		low, high      float64 // recall without and with that effort: at most, at least
		ranges, joined bool
	}{
		{"Flat", Effort{}, 1, 1, true, true},
		{"SQ8", Effort{}, 1, .95, true, true},
		{"IDMap2,Flat", Effort{}, 1, 1, true, true},
		{"IDMap,SQ8", Effort{}, 1, .95, true, true},
		{"PCA32,Flat", Effort{}, 1, .95, true, true},
		{"IVF16,Flat", Effort{NProbe: 16}, .5, 1, true, true},
		{"IVF16,SQfp16", Effort{NProbe: 16}, .5, .99, true, true},
		{"IDMap,IVF16,Flat", Effort{NProbe: 16}, .5, 1, true, true},
		{"IVF16_HNSW8,Flat", Effort{NProbe: 16}, .5, 1, true, true},
		{"IVF16,SQ8,RFlat", Effort{NProbe: 16}, .5, .99, true, false},
		{"IVF16,PQ8x4fs", Effort{NProbe: 16}, .4, .2, false, false},
		{"HNSW8,Flat", Effort{EfSearch: 400}, .95, .98, false, false},
		{"IDMap2,HNSW8,Flat", Effort{EfSearch: 400}, .95, .98, false, false},
	} {
		t.Run(c.factory, func(t *testing.T) {
			s, paths := built(t, c.factory, v, 2, Effort{})
			if r := recall(t, s, v, Effort{}, flat.All); r > c.low {
				t.Errorf("recall %v as it is, expected less", r)
			}
			if r := recall(t, s, v, c.most, flat.All); r < c.high {
				t.Errorf("recall %v with %+v", r, c.most)
			}
			if r := recall(t, s, v, Effort{}, flat.All); r > c.low {
				t.Errorf("one search's effort stayed: recall %v", r)
			}
			among := flat.Range{From: 500, To: 1500}
			if c.ranges {
				if r := recall(t, s, v, c.most, among); r < c.high {
					t.Errorf("recall %v in a range", r)
				}
			} else if _, err := s.SearchRange(context.Background(), v[:dim], 3, Effort{}, among); fail.KindOf(err) != fail.Usage {
				t.Errorf("a range: %v", err)
			}
			whole := filepath.Join(t.TempDir(), "whole.index")
			f, err := os.Create(whole)
			must(t, err)
			defer f.Close()
			if err := Merge(paths, f); c.joined != (err == nil) {
				t.Fatalf("merge: %v", err)
			}
			if !c.joined {
				return
			}
			j, err := OpenSet([]string{whole}, c.most)
			must(t, err)
			defer j.Close()
			q := units(20, 3)
			want, err := s.SearchRange(context.Background(), q, 9, c.most, flat.All)
			must(t, err)
			got, err := j.SearchRange(context.Background(), q, 9, Effort{}, flat.All)
			must(t, err)
			for i := range want {
				if !slices.EqualFunc(got[i], want[i], func(a, b flat.Hit) bool { return a.Row == b.Row && max(a.Score-b.Score, b.Score-a.Score) < 1e-5 }) {
					t.Errorf("query %d: the joined index finds %v, its shards %v", i, got[i], want[i])
				}
			}
		})
	}
}

// A shard's bytes do not depend on what was built before it.
func TestSameBytes(t *testing.T) {
	v := units(600, 5)
	for _, f := range []string{"HNSW8,Flat", "IVF8,SQ8"} {
		_, a := built(t, f, v, 2, Effort{})
		_, b := built(t, f, v, 2, Effort{})
		alone, err := Train(dim, f, v)
		must(t, err)
		defer alone.Close()
		var second bytes.Buffer
		w, err := alone.Writer(&second, 300, 300)
		must(t, err)
		must(t, w.Write(v[300*dim:]))
		must(t, w.Close())
		for i := range a {
			x, err := os.ReadFile(a[i])
			must(t, err)
			y, err := os.ReadFile(b[i])
			must(t, err)
			if !bytes.Equal(x, y) || i == 1 && !bytes.Equal(x, second.Bytes()) {
				t.Errorf("%s: shard %d has other bytes", f, i)
			}
		}
	}
}

// Searches of different efforts side by side get what each gets alone.
func TestEffortsSideBySide(t *testing.T) {
	v := units(1500, 2)
	for _, f := range []string{"IVF16,Flat", "HNSW8,Flat"} {
		s, _ := built(t, f, v, 2, Effort{})
		q := units(4, 11)
		effort := func(n int) Effort {
			if f[0] == 'H' {
				return Effort{EfSearch: 1 + 40*n}
			}
			return Effort{NProbe: 1 + 5*n}
		}
		want := make([][][]flat.Hit, 4)
		for n := range want {
			var err error
			want[n], err = s.SearchRange(context.Background(), q, 10, effort(n), flat.All)
			must(t, err)
		}
		if reflect.DeepEqual(want[0], want[3]) {
			t.Errorf("%s: effort makes no difference", f)
		}
		var wg sync.WaitGroup
		for n := range 8 {
			wg.Go(func() {
				for range 30 {
					got, err := s.SearchRange(context.Background(), q, 10, effort(n%4), flat.All)
					if err != nil || !reflect.DeepEqual(got, want[n%4]) {
						t.Errorf("%s: effort %d: other hits (%v)", f, n%4, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

func TestEdges(t *testing.T) {
	v := units(50, 1)
	s, paths := built(t, "IVF4,Flat", v, 2, Effort{NProbe: 4})
	ctx := context.Background()
	got, err := s.SearchRange(ctx, v[:2*dim], 1000, Effort{}, flat.All)
	must(t, err)
	if len(got) != 2 || len(got[0]) != 50 || got[0][0].Row != 0 || got[1][0].Row != 1 {
		t.Errorf("k 1000 of 50 rows: %d hits", len(got[0]))
	}
	for _, k := range []int{0, 3} {
		for _, q := range [][]float32{nil, v[:dim]} {
			hits, err := s.SearchRange(ctx, q, k, Effort{}, flat.All)
			if err != nil || len(hits) != len(q)/dim || len(hits) == 1 && len(hits[0]) != k {
				t.Errorf("k %d, %d numbers: %v, %v", k, len(q), hits, err)
			}
		}
	}
	nan := append([]float32(nil), v[:dim]...)
	nan[3] /= 0
	nan[3] -= nan[3]
	stopped, stop := context.WithCancel(ctx)
	stop()
	for what, err := range map[string]error{
		"not whole query vectors": second(s.SearchRange(ctx, v[:dim+1], 3, Effort{}, flat.All)),
		"NaN":                     second(s.SearchRange(ctx, nan, 3, Effort{}, flat.All)),
		"k is -1":                 second(s.SearchRange(ctx, v[:dim], -1, Effort{}, flat.All)),
		"ef_search means nothing": second(s.SearchRange(ctx, v[:dim], 3, Effort{EfSearch: 5}, flat.All)),
		"nprobe means nothing":    second(s.SearchRange(ctx, v[:dim], 3, Effort{NProbe: -5}, flat.All)),
		"canceled":                second(s.SearchRange(stopped, v[:dim], 3, Effort{}, flat.All)),
		"no index file":           second(OpenSet(nil, Effort{})),
		"no such file":            second(OpenSet([]string{filepath.Join(t.TempDir(), "x")}, Effort{})),
		"means nothing to this":   second(OpenSet(paths, Effort{EfSearch: 3})),
		"factory string":          second(Train(dim, "IVF4,Nonsense", v)),
		"choose a smaller index":  second(Train(dim, "IVF400,Flat", v[:3*dim])),
		"there are none":          second(Train(dim, "IVF4,Flat", nil)),
		"a vector holds NaN":      second(Train(dim, "IVF1,Flat", nan)),
		"of different kinds":      Merge([]string{paths[0], other(t, "Flat", v)}, new(bytes.Buffer)),
		"coarse quantizers":       Merge([]string{paths[0], other(t, "IVF4,Flat", units(50, 2))}, new(bytes.Buffer)),
		"dimension":               second(OpenSet([]string{paths[0], wide(t)}, Effort{})),
	} {
		if err == nil || !strings.Contains(err.Error(), what) || fail.KindOf(err) == fail.Bug {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.Close() // and once more at the end: no double free
}

func other(t *testing.T, factory string, v []float32) string {
	_, paths := built(t, factory, v, 1, Effort{})
	return paths[0]
}

func wide(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "wide")
	var b bytes.Buffer
	w, err := flat.NewWriter(&b, dim+1, 0)
	must(t, err)
	must(t, w.Close())
	must(t, os.WriteFile(path, b.Bytes(), 0o644))
	return path
}

// A file that was cut anywhere is refused, and so are ids that are no rows.
func TestDamage(t *testing.T) {
	v := units(60, 1)
	dir := t.TempDir()
	for _, f := range []string{"IVF4,Flat", "IDMap2,Flat", "HNSW8,Flat", "IVF4,SQ8", "PCA32,SQ8"} {
		whole, err := os.ReadFile(other(t, f, v))
		must(t, err)
		path := filepath.Join(dir, "cut.index")
		for n := 0; n < len(whole); n += max(1, len(whole)/150) {
			must(t, os.WriteFile(path, whole[:n], 0o644))
			if s, err := OpenSet([]string{path}, Effort{}); err == nil {
				s.Close()
				t.Errorf("%s: %d of %d bytes were opened", f, n, len(whole))
			} else if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v", f, err)
			}
		}
	}
	mapped, err := os.ReadFile(other(t, "IDMap,Flat", v))
	must(t, err)
	for what, id := range map[string]byte{"twice": 3, "not one of the rows 0 to 59": 200} {
		b := bytes.Clone(mapped)
		b[len(b)-8] = id // of the last row, which was 59
		path := filepath.Join(dir, "ids.index")
		must(t, os.WriteFile(path, b, 0o644))
		if _, err := OpenSet([]string{path}, Effort{}); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), what) {
			t.Errorf("id %d: %v", id, err)
		}
	}
	trained, err := Train(dim, "Flat", nil)
	must(t, err)
	defer trained.Close()
	w, err := trained.Writer(new(bytes.Buffer), 0, 3)
	must(t, err)
	must(t, w.Write(v[:2*dim]))
	if err := w.Close(); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "2 vectors of the 3") {
		t.Errorf("a vector is missing: %v", err)
	}
	w, err = trained.Writer(full{}, 0, 2000)
	must(t, err)
	must(t, w.Write(units(2000, 1)))
	if err := w.Close(); fail.KindOf(err) != fail.Disk || !strings.Contains(err.Error(), "no room") {
		t.Errorf("a full disk: %v", err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, fmt.Errorf("no room") }
