package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"searchloop/indexer/flat"
	"searchloop/internal/gemm"
	"searchloop/internal/par"
)

type roof struct{ read, sgemm float64 } // GB/s, GFLOP/s

// best is the least time of n runs of f.
func best(n int, f func() error) (time.Duration, error) {
	least := time.Duration(math.MaxInt64)
	for range n {
		start := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		least = min(least, time.Since(start))
	}
	return least, nil
}

// limits measures what the machine allows. Other programs may take their share
// at any time, so it is asked again and again between the searches and the best
// counts, as it does for those.
type limits struct {
	roof
	memory []float32
}

func newLimits() *limits {
	l := &limits{memory: make([]float32, 1<<28)}
	for i := range l.memory {
		l.memory[i] = 1
	}
	return l
}

func (l *limits) again() {
	n := len(l.memory)
	for range 2 {
		for _, ahead := range []int{0, 4096} {
			t, _ := best(1, func() error {
				par.For(n, 1<<12, func(lo, hi int) {
					for ; lo < hi; lo += 1 << 12 {
						read(l.memory[lo:lo+1<<12], ahead)
					}
				})
				return nil
			})
			l.read = max(l.read, 4*float64(n)/t.Seconds()/1e9)
		}
	}
	const m = 1024
	a, b, c := l.memory[:m*m], l.memory[m*m:2*m*m], l.memory[2*m*m:3*m*m]
	t, _ := best(3, func() error { gemm.NT(c, a, b, m, m, m, false); return nil })
	l.sgemm = max(l.sgemm, 2*m*m*m/t.Seconds()/1e9)
	for i := range c {
		c[i] = 1
	}
}

// measured is an item, and whom to compare it with.
type measured struct {
	item
	batch int
	peers []string
	set   *flat.Set
	bytes float64       // of a pass over the vectors
	time  time.Duration // the least
	hits  [][]flat.Hit
}

const (
	topK   = 5
	rounds = 8 // of the small batches; the large ones take part in the first three
)

// sets opens the vectors in every format: float32, half floats, and float32 with a sketch.
func sets(paths map[flat.Format]string) ([3]*flat.Set, error) {
	var all [3]*flat.Set
	var err error
	for i, f := range []flat.Format{flat.Flat, flat.FP16, flat.Flat} {
		if all[i], err = flat.OpenSet([]string{paths[f]}); err != nil {
			return all, err
		}
	}
	return all, all[2].Sketch([]string{paths[flat.SQ8]})
}

// measure searches every format in batches. The searches take turns, so that a
// slow moment of the machine hits all of them.
func measure(ctx context.Context, paths map[flat.Format]string, queries []float32, l *limits) ([]measured, error) {
	open, err := sets(paths)
	if err != nil {
		return nil, err
	}
	var all []measured
	for f, batches := range [][]int{{1, 4, 16, 256}, {1, 4, 16, 256}, {1, 4, 8}} {
		for _, n := range batches {
			m := measured{batch: n, set: open[f], time: math.MaxInt64, bytes: float64(*rows) * float64(*dim) * []float64{4, 2, 1}[f]}
			m.Name, m.Unit = fmt.Sprintf("search %s, batch %d", []string{"float32", "fp16", "int8 sketch + exact"}[f], n), "queries/s"
			if f == 0 {
				m.peers = []string{"faiss as installed", "faiss tuned", "numpy"}
			}
			all = append(all, m)
		}
	}
	for round := range rounds {
		l.again()
		for i := range all {
			m := &all[i]
			if m.batch >= 16 && round >= 3 {
				continue
			}
			t, err := best(1, func() (err error) {
				m.hits, err = m.set.Search(ctx, queries[:m.batch*(*dim)], topK)
				return err
			})
			if err != nil {
				return nil, err
			}
			m.time = min(m.time, t)
		}
	}
	for _, s := range open {
		if err := s.Close(); err != nil {
			return nil, err
		}
	}
	perQuery := 2 * float64(*rows) * float64(*dim)
	exact := map[int]*measured{}
	for i := range all {
		m := &all[i]
		s := m.time.Seconds()
		gb, gf := m.bytes/s/1e9, perQuery*float64(m.batch)/s/1e9
		m.Ours = float64(m.batch) / s
		m.Bound = min(float64(m.batch)*l.read*1e9/m.bytes, l.sgemm*1e9/perQuery)
		m.Note = fmt.Sprintf("%d x %d, k %d: %.1f GB/s = %.0f %% of read bandwidth, %.0f GFLOP/s = %.0f %% of sgemm", *rows, *dim, topK, gb, 100*gb/l.read, gf, 100*gf/l.sgemm)
		if m.peers != nil {
			exact[m.batch] = m
			continue
		}
		if of := exact[m.batch]; of != nil {
			m.Note += fmt.Sprintf(", recall@%d %.4f", topK, recall(m.hits, of.hits))
			m.Peer, m.PeerName, m.Ratio = of.Ours, of.Name, m.Ours/of.Ours
		}
	}
	return all, nil
}

func recall(got, want [][]flat.Hit) float64 {
	var found, n int
	for q := range got {
		for _, h := range want[q] {
			n++
			if slices.ContainsFunc(got[q], func(g flat.Hit) bool { return g.Row == h.Row }) {
				found++
			}
		}
	}
	return float64(found) / float64(n)
}
