// Command bench measures exact search over 1 M vectors of 768 numbers against the
// machine's own limits and against faiss and numpy on the same vectors.
//
//	GOEXPERIMENT=simd go run ./indexer/bench --python .venv/bin/python --out build/bench/indexer.json
//
// It needs 6 GB of disk in --dir, as much memory, and for the peers two Pythons
// (peers.py beside this file): the system's own with its faiss, which is what
// "faiss as installed" means, and one with the newest faiss-cpu and numpy. Built
// with the tag faiss it measures the way through go-faiss too. Run nothing else
// meanwhile. --only 'float32, batch 1$' takes a minute instead of eight.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"

	"searchloop/indexer/flat"
	"searchloop/internal/bench"
)

var (
	dir    = flag.String("dir", "build/bench/vectors", "folder for the vectors; kept, so that a second run does not make them again")
	rows   = flag.Int("rows", 1_000_000, "vectors")
	dim    = flag.Int("dim", 768, "their dimension")
	python = flag.String("python", "", "Python with faiss-cpu and numpy, for the peers")
	system = flag.String("system-python", "/usr/bin/python3", "the system's own Python, with the faiss that it installs")
	script = flag.String("script", "indexer/bench/peers.py", "the peers' program")
	out    = flag.String("out", "build/bench/indexer.json", "file of the figures")
	only   = flag.String("only", "", "measure the searches whose names match this pattern")
)

func main() {
	flag.Parse()
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	paths, queries, err := vectors(*dir, *rows, *dim)
	if err != nil {
		return err
	}
	open, err := sets(paths)
	if err != nil {
		return err
	}
	l, err := newLimits(open[0].Files()[0])
	if err != nil {
		return err
	}
	ours, theirs, err := measure(ctx, open, paths[flat.Flat], queries, pattern, l)
	if err != nil {
		return err
	}
	rows := []bench.Row{{Name: "read bandwidth", Unit: "GB/s", Ours: l.read, Note: "all cores; the best of the mapped float32 file and 1 GiB of memory in huge pages"},
		{Name: "sgemm 1024", Unit: "GFLOP/s", Ours: l.sgemm, Note: "internal/gemm, all cores"}}
	for _, s := range open {
		if err := s.Close(); err != nil {
			return err
		}
	}
	if ours, err = throughFAISS(ctx, paths[flat.Flat], queries, pattern, ours); err != nil {
		return err
	}
	for _, m := range ours {
		if m.PeerName != "" || m.peers == nil {
			rows = append(rows, m.Row)
		}
		for _, name := range m.peers {
			p := theirs[name]
			r := m.Row
			r.PeerName, r.Peer, r.Bound = name, p.rates[fmt.Sprintf("%s b%d", p.way, m.batch)], m.bounds[name]
			r.Note += "; " + p.note
			rows = append(rows, r)
		}
	}
	return bench.Write(*out, rows)
}
