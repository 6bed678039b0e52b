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
	batch         int
	peers         []string
	bytes, gb, gf float64 // a pass, and the rates
}

const topK = 5

// measure searches every format in batches.
func measure(ctx context.Context, paths map[flat.Format]string, queries []float32, l *limits) ([]measured, error) {
	var all []measured
	exact := map[int][][]flat.Hit{}
	var plain float64 // queries/s of float32, one at a time
	for _, c := range []struct {
		name    string
		format  flat.Format
		batches []int
	}{{"float32", flat.Flat, []int{1, 4, 16, 256}}, {"fp16", flat.FP16, []int{1, 16}}, {"int8 sketch + exact", flat.SQ8, []int{1, 4}}} {
		file := c.format
		if c.format == flat.SQ8 {
			file = flat.Flat
		}
		set, err := flat.OpenSet([]string{paths[file]})
		if err != nil {
			return nil, err
		}
		if c.format == flat.SQ8 {
			if err := set.Sketch([]string{paths[flat.SQ8]}); err != nil {
				return nil, err
			}
		}
		bytes := float64(*rows) * float64(*dim) * []float64{4, 2, 1}[c.format]
		for _, n := range c.batches {
			var hits [][]flat.Hit
			runs := 7
			if n >= 16 {
				runs = 3
			}
			at := 0
			t, err := best(runs, func() (err error) {
				hits, err = set.Search(ctx, queries[at*(*dim):(at+n)*(*dim)], topK)
				return err
			})
			if err != nil {
				return nil, err
			}
			s := t.Seconds()
			gb, gf := bytes/s/1e9, 2*float64(*rows)*float64(*dim)*float64(n)/s/1e9
			m := measured{batch: n, item: item{Name: fmt.Sprintf("search %s, batch %d", c.name, n), Unit: "queries/s", Ours: float64(n) / s}}
			m.bytes, m.gb, m.gf = bytes, gb, gf
			l.again()
			switch {
			case c.format == flat.Flat:
				exact[n] = hits
				m.peers = []string{"faiss as installed", "faiss tuned", "numpy"}
				if n == 1 {
					plain = m.Ours
				}
			default:
				m.Note = fmt.Sprintf(", recall@%d %.4f", topK, recall(hits, exact[n]))
				if n == 1 {
					m.Peer, m.PeerName, m.Ratio = plain, "float32, batch 1", m.Ours/plain
				}
			}
			all = append(all, m)
		}
		if err := set.Close(); err != nil {
			return nil, err
		}
	}
	for i := range all {
		m := &all[i]
		m.Bound = min(float64(m.batch)*l.read*1e9/m.bytes, l.sgemm*1e9/(2*float64(*rows)*float64(*dim)))
		m.Note = fmt.Sprintf("%d x %d, k %d: %.1f GB/s = %.0f %% of read bandwidth, %.0f GFLOP/s = %.0f %% of sgemm", *rows, *dim, topK, m.gb, 100*m.gb/l.read, m.gf, 100*m.gf/l.sgemm) + m.Note
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
