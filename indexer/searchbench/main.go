//go:build cuda

// Command searchbench measures exact search on a GPU beside PyTorch's product and topk
// on the same card in the same run, and beside FAISS's flat index where it is installed,
// over random half floats made there. Medians; ours are wall times of whole searches,
// queries and hits copied, those of PyTorch are of its kernels, and FAISS's are of
// searches whose queries and hits stay on the card.
//
//	go run -tags cuda ./indexer/searchbench --python python3 --out build/bench/gpu-search.json
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"time"

	"searchloop/indexer/flat"
	"searchloop/indexer/flat/gpu"
	"searchloop/internal/bench"
	"searchloop/internal/fail"
)

var (
	python = flag.String("python", "", "Python with torch, for the peer")
	script = flag.String("script", "indexer/searchbench/peer.py", "the peer's program")
	out    = flag.String("out", "build/bench/gpu-search.json", "file of the figures")
	rows   = flag.Int64("rows", 20_000_000, "vectors")
	dim    = flag.Int("dim", 768, "numbers of a vector")
	times  = flag.Int("times", 9, "searches of a figure")
	only   = flag.String("only", "", "measure what this pattern matches")
)

func main() {
	flag.Parse()
	err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(fail.ExitCode(err))
}

const k = 5

// measured is a search of a batch of queries; bound is the least ratio to the peer.
type measured struct {
	scan     string
	portable bool // by the kernels of every GPU
	batch    int
	bound    float64
}

var cases = []measured{{"stored", false, 1, 0}, {"stored", false, 8, 0}, {"stored", false, 64, 2}, {"stored", false, 128, 0}, {"stored", false, 512, 3}, {"stored", false, 1024, 0},
	{"stored", true, 8, 0}, {"stored", true, 512, 0}, {"int8", false, 1, 0}, {"int8", false, 64, 0}, {"int8", false, 512, 0}}

func (c measured) name() string {
	switch {
	case c.scan == "int8":
		return fmt.Sprintf("search int8 rescored, batch %d", c.batch)
	case c.portable:
		return fmt.Sprintf("search fp16, batch %d, mma.sync", c.batch)
	}
	return fmt.Sprintf("search fp16, batch %d", c.batch)
}

func run() error {
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fail.Wrap(fail.Usage, "read --only", *only, err)
	}
	if !slices.ContainsFunc(cases, func(c measured) bool { return pattern.MatchString(c.name()) }) {
		return bench.Write(*out, nil)
	}
	r, err := gpu.NewRandom(0, *rows, *dim, 1)
	if err != nil {
		return err
	}
	d := r.Device
	bytesOf := float64(*rows) * float64(*dim) * 2
	// What the memory gives: a copy, bytes read and written.
	p := d.Alloc(8 << 30)
	ceiling := 8 * float64(1<<30) / median(*times, func() error { d.Copy(p, p+4<<30, 4<<30); d.Wait(); return nil }, &err)
	d.Free(p)
	note := fmt.Sprintf("%d vectors of %d, k %d; %s", *rows, *dim, k, d.Name)
	all := []bench.Row{{Name: "copy of 4 GiB, beside search", Unit: "GB/s", Ours: ceiling / 1e9, Note: "bytes read and written"}}
	found := map[int][][]flat.Hit{}
	seconds := map[int]float64{}
	exact, hits := 0, 0
	for _, c := range cases {
		name := c.name()
		if !pattern.MatchString(name) {
			continue
		}
		if err := r.As(c.scan, c.portable); err != nil {
			return err
		}
		q := noise(c.batch)
		var got [][]flat.Hit
		t := median(*times, func() (err error) { got, err = r.Search(q, k); return err }, &err)
		if err != nil {
			return err
		}
		kind := fmt.Sprintf("%.2f of a copy's bandwidth; ", bytesOf/t/ceiling)
		switch {
		case c.scan == "int8":
			kind = fmt.Sprintf("%.2f times our fp16; ", seconds[c.batch]/t)
		case !c.portable:
			found[c.batch], seconds[c.batch] = got, t
		}
		for i, list := range found[c.batch] { // every way finds the same
			if !c.portable && c.scan != "int8" {
				break
			}
			hits += k
			for j := range list {
				if got[i][j] == list[j] {
					exact++
				}
			}
		}
		all = append(all, bench.Row{Name: name, Unit: "ms/op", Ours: 1e3 * t, Bound: c.bound, Note: kind + note})
		fmt.Fprintf(os.Stderr, "%s: %.3f ms\n", name, 1e3*t)
	}
	if err != nil {
		return err
	}
	if err := r.Close(); err != nil {
		return err
	}
	if hits > 0 {
		all = append(all, bench.Row{Name: "hits equal among kernels", Unit: "share", Ours: float64(exact) / float64(hits), Note: fmt.Sprintf("%d of %d hits, rows and scores; fp16, mma.sync, int8", exact, hits)})
	}
	all = peers(all)
	if err := bench.Write(*out, all); err != nil {
		return err
	}
	if err := bench.Table(os.Stdout, all); err != nil {
		return err
	}
	if exact < hits {
		err = errors.Join(err, fail.New(fail.Bound, "measure", "hits", "%d of %d are equal", exact, hits))
	}
	for _, row := range all {
		if row.Below() {
			err = errors.Join(err, fail.New(fail.Bound, "measure", row.Name, "%.3g times the peer; %.3g is promised", row.Ratio(), row.Bound))
		}
	}
	return err
}

func noise(n int) []float32 {
	rng := rand.New(rand.NewPCG(uint64(n), 2))
	q := make([]float32, n**dim)
	for i := range q {
		q[i] = float32(rng.NormFloat64())
	}
	return q
}

// median is the median seconds of n runs of f, after two that are not counted. An
// error ends them.
func median(n int, f func() error, failed *error) float64 {
	var all []float64
	for i := 0; i < n+2 && *failed == nil; i++ {
		begin := time.Now()
		*failed = f()
		all = append(all, time.Since(begin).Seconds())
	}
	if *failed != nil {
		return 1
	}
	all = all[2:]
	slices.Sort(all)
	return all[n/2]
}

// peers fills in what torch needs for the same, and adds rows beside FAISS.
func peers(all []bench.Row) []bench.Row {
	why := bench.Missing(*python, "torch")
	if why == "" {
		cmd := exec.Command(*python, *script, fmt.Sprint(*rows), fmt.Sprint(*dim), fmt.Sprint(k))
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		if err != nil {
			why = "peer not measured: " + err.Error()
		}
		for line := range bytes.Lines(text) {
			var v struct {
				Name, Peer, Missing string
				Value               float64
			}
			if json.Unmarshal(line, &v) != nil {
				continue
			}
			if v.Missing != "" {
				all = append(all, bench.Row{Name: "search fp16 beside " + v.Name, Note: "peer not measured: " + v.Missing})
			}
			i := slices.IndexFunc(all, func(r bench.Row) bool { return r.Name == v.Name })
			switch {
			case i < 0:
			case all[i].Peer == 0:
				all[i].Peer, all[i].PeerName = v.Value, v.Peer
			default: // of another peer
				row := all[i]
				row.Name, row.Peer, row.PeerName, row.Bound = row.Name+", beside FAISS", v.Value, v.Peer, 1
				all = append(all, row)
			}
		}
	}
	for i := range all {
		if all[i].Peer == 0 && why != "" {
			all[i].Note += "; " + why
		}
	}
	return all
}
