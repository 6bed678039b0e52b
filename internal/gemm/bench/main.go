//go:build unix

// Command bench measures matrix products of the sizes that models have here
// against numpy's OpenBLAS, on one core each, in turns and in processor time, so
// that a busy machine slows both.
//
//	GOEXPERIMENT=simd go run ./internal/gemm/bench --python .venv/bin/python --out build/bench/gemm.json
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"searchloop/internal/bench"
	"searchloop/internal/gemm"
)

var (
	python = flag.String("python", "", "Python with numpy, for the peer")
	script = flag.String("script", "internal/gemm/bench/peer.py", "the peer's program")
	out    = flag.String("out", "build/bench/gemm.json", "file of the figures")
)

// bound is the share of OpenBLAS's speed that is promised.
const bound = .7

// shape is one product C[m,n] over k.
type shape struct {
	name    string
	form    string // nt: a layer forward; nn: its input's gradient; tn: its weight's
	m, n, k int
}

// The layers of the demo's policy on a pack of 2048 tokens, and of a Qwen3-0.6B
// on 512.
var shapes = []shape{
	{"demo, queries keys values", "nt", 2048, 288, 96}, {"demo, gate and up", "nt", 2048, 480, 96}, {"demo, down", "nt", 2048, 96, 240},
	{"demo, head", "nt", 512, 640, 96}, {"demo, gate and up, input", "nn", 2048, 96, 480}, {"demo, gate and up, weight", "tn", 480, 96, 2048},
	{"0.6B, queries keys values", "nt", 512, 4096, 1024}, {"0.6B, gate and up", "nt", 512, 6144, 1024}, {"0.6B, down", "nt", 512, 1024, 3072},
	{"0.6B, gate and up, input", "nn", 512, 1024, 6144}, {"0.6B, gate and up, weight", "tn", 6144, 1024, 512},
}

func main() {
	flag.Parse()
	runtime.GOMAXPROCS(1)
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var p *peer
	missing := bench.Missing(*python, "numpy")
	if missing == "" {
		var err error
		if p, err = newPeer(); err != nil {
			return err
		}
		defer p.close()
	}
	var rows []bench.Row
	for _, s := range shapes {
		row := bench.Row{Name: fmt.Sprintf("sgemm %s %dx%dx%d (%s)", s.form, s.m, s.n, s.k, s.name), Unit: "GFLOP/s-core", Note: missing}
		work := ours(s)
		for range 5 { // the best of each: what is worse was disturbed
			row.Ours = max(row.Ours, work())
			if p != nil {
				theirs, err := p.measure(s)
				if err != nil {
					return err
				}
				row.Peer = max(row.Peer, theirs)
			}
		}
		if p != nil {
			row.PeerName, row.Bound = p.name, bound
		}
		rows = append(rows, row)
	}
	if err := bench.Table(os.Stdout, rows); err != nil {
		return err
	}
	return bench.Write(*out, rows)
}

// span is how many operations one measurement takes.
const span = 4e9

// ours returns a measurement of one product, in GFLOP per second of processor time.
func ours(s shape) func() float64 {
	r := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = r.Float32() - .5
		}
		return x
	}
	a, b, c := random(s.m*s.k), random(s.n*s.k), make([]float32, s.m*s.n)
	f := map[string]func(c, a, b []float32, m, n, k int, acc bool){"nt": gemm.NT, "nn": gemm.NN, "tn": gemm.TN}[s.form]
	flop := 2 * float64(s.m) * float64(s.n) * float64(s.k)
	times := max(1, int(span/flop))
	return func() float64 {
		began := bench.ProcessorTime()
		for range times {
			f(c, a, b, s.m, s.n, s.k, false)
		}
		return flop * float64(times) / float64((bench.ProcessorTime() - began).Nanoseconds())
	}
}

// peer is a process that measures what it is asked for, line by line.
type peer struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

func newPeer() (*peer, error) {
	p := &peer{cmd: exec.Command(*python, *script)}
	p.cmd.Env = append(os.Environ(), "OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1")
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.lines = bufio.NewScanner(stdout)
	p.name, err = p.line()
	return p, err
}

func (p *peer) line() (string, error) {
	if !p.lines.Scan() {
		return "", fmt.Errorf("%s ended: %v", *script, p.lines.Err())
	}
	return strings.TrimSpace(p.lines.Text()), nil
}

func (p *peer) measure(s shape) (rate float64, err error) {
	if _, err := fmt.Fprintln(p.in, s.form, s.m, s.n, s.k, int64(span)); err != nil {
		return 0, err
	}
	text, err := p.line()
	if err == nil {
		_, err = fmt.Sscan(text, &rate)
	}
	return rate, err
}

func (p *peer) close() {
	p.in.Close()
	p.cmd.Wait()
}
