package main

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"time"
	"unsafe"

	"searchloop/indexer/flat"
	"searchloop/internal/bench"
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
	memory []float32 // 1 GiB of ones
	mapped []float32 // the vectors that are searched: reading them costs what their pages cost
}

// readStep is what all cores read of at a time.
const readStep = 1 << 12

func newLimits(f *flat.File) (*limits, error) {
	l := &limits{memory: make([]float32, 1<<28)}
	huge(l.memory)
	for i := range l.memory {
		l.memory[i] = 1
	}
	b := f.Stored(0, f.Rows)
	b = b[-uintptr(unsafe.Pointer(&b[0]))%64:]
	l.mapped = unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4/readStep*readStep)
	return l, l.again(2)
}

// again measures the reading some times and the products.
func (l *limits) again(times int) error {
	for range times {
		for _, from := range [][]float32{l.mapped, l.memory} {
			for _, ahead := range []int{0, 4096} {
				t, err := best(1, func() error {
					par.For(len(from), readStep, func(lo, hi int) { read(from[lo:hi], ahead) })
					return nil
				})
				if err != nil {
					return err
				}
				l.read = max(l.read, 4*float64(len(from))/t.Seconds()/1e9)
			}
		}
	}
	const m = 1024
	a, b, c := l.memory[:m*m], l.memory[m*m:2*m*m], l.memory[2*m*m:3*m*m]
	t, err := best(3, func() error { gemm.NT(c, a, b, m, m, m, false); return nil })
	l.sgemm = max(l.sgemm, 2*m*m*m/t.Seconds()/1e9)
	for i := range c {
		c[i] = 1
	}
	return err
}

// promised are the least ratios by peer and batch.
var promised = map[string]map[int]float64{
	installed:        {1: 4},
	tuned:            {16: 1.5, 256: 0.95},
	"read bandwidth": {1: 0.8},
	"sgemm":          {256: 0.7},
}

// formats are the ways of storing the vectors, float32 first, and the least gain
// over it that each promises for a single query.
var formats = []struct {
	name    string
	bytes   float64 // of a number, as a small batch reads it
	batches []int
	gain    float64
}{
	{"float32", 4, []int{1, 4, 16, 256}, 0},
	{"fp16", 2, []int{1, 4, 16, 256}, 1.8},
	{"int8 sketch + exact", 1, []int{1, 4, 8}, 3},
}

// measured is a row, and whom to compare it with.
type measured struct {
	bench.Row
	batch int
	peers []string
	// bounds are the ratios promised to these.
	bounds map[string]float64
	set    *flat.Set
	bytes  float64       // of a pass over the vectors
	time   time.Duration // the least
	hits   [][]flat.Hit
	gain   float64 // promised over float32
}

const (
	topK   = 5
	rounds = 8 // of the small batches, each four times; the large ones take part once in the first three
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
// slow moment of the machine hits all of them, and so do the peers over the file at
// path, each after some rounds.
func measure(ctx context.Context, open [3]*flat.Set, path string, queries []float32, pattern *regexp.Regexp, l *limits) ([]measured, map[string]peer, error) {
	var all []measured
	var compared []int // batches
	for i, f := range formats {
		for _, n := range f.batches {
			m := measured{batch: n, set: open[i], time: math.MaxInt64, bytes: float64(*rows) * float64(*dim) * f.bytes, gain: f.gain}
			m.Name, m.Unit = fmt.Sprintf("search %s, batch %d", f.name, n), "queries/s"
			if !pattern.MatchString(m.Name) {
				continue
			}
			if i == 0 {
				m.peers, m.bounds = []string{installed, tuned, pipInstalled, pipTuned, numpy}, map[string]float64{installed: promised[installed][n], tuned: promised[tuned][n]}
				compared = append(compared, n)
			}
			all = append(all, m)
		}
	}
	theirs := map[string]peer{}
	peers := peerRuns()
	for round := range rounds {
		if err := l.again(2); err != nil {
			return nil, nil, err
		}
		for i := range all {
			m := &all[i]
			times := 4
			if m.batch >= 16 {
				times = 1
			}
			if m.batch >= 16 && round >= 3 {
				continue
			}
			t, err := best(times, func() (err error) {
				m.hits, err = m.set.Search(ctx, queries[:m.batch*(*dim)], topK)
				return err
			})
			if err != nil {
				return nil, nil, err
			}
			m.time = min(m.time, t)
		}
		if round%2 == 0 && len(compared) > 0 {
			if err := peers[round/2].ask(path, compared, theirs); err != nil {
				return nil, nil, err
			}
		}
	}
	perQuery := 2 * float64(*rows) * float64(*dim)
	exact := map[int]*measured{}
	for i := range all {
		m := &all[i]
		s := m.time.Seconds()
		gb, gf := m.bytes/s/1e9, perQuery*float64(m.batch)/s/1e9
		m.Ours = float64(m.batch) / s
		m.Note = fmt.Sprintf("%d x %d, k %d: %.1f GB/s = %.0f %% of read bandwidth, %.0f GFLOP/s = %.0f %% of sgemm", *rows, *dim, topK, gb, 100*gb/l.read, gf, 100*gf/l.sgemm)
		if m.peers != nil {
			exact[m.batch] = m
			m.PeerName, m.Peer = l.queries(m.bytes/float64(m.batch), perQuery)
			m.Bound = promised[m.PeerName][m.batch]
			continue
		}
		if of := exact[m.batch]; of != nil {
			m.Note += fmt.Sprintf(", recall@%d %.4f", topK, recall(m.hits, of.hits))
			m.PeerName, m.Peer = of.Name, of.Ours
			if m.batch == 1 {
				m.Bound = m.gain
			}
		}
	}
	return all, theirs, nil
}

// queries is the limit that is reached first, in queries/s: reading the vectors,
// or multiplying.
func (r roof) queries(bytes, flop float64) (string, float64) {
	read, sgemm := r.read*1e9/bytes, r.sgemm*1e9/flop
	if sgemm < read {
		return "sgemm", sgemm
	}
	return "read bandwidth", read
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
