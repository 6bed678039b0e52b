// Command bench measures exact search over 1 M vectors of 768 numbers against the
// machine's own limits and against faiss and numpy on the same vectors. It prints
// a JSON list of {name, unit, ours, peer, peer_name, ratio, bound, note}.
//
//	GOEXPERIMENT=simd go run ./indexer/bench --dir /tmp/bench --python python3
//
// It needs 6 GB of disk in --dir, as much memory, and for the peers a Python with
// faiss-cpu and numpy (peers.py beside this file); run nothing else meanwhile.
// Without --python it measures only itself.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"searchloop/indexer/flat"
)

// item is one line of the report. Ratio is ours over the peer's; bound is what the
// machine's read bandwidth or arithmetic would allow, in the same unit.
type item struct {
	Name     string  `json:"name"`
	Unit     string  `json:"unit"`
	Ours     float64 `json:"ours"`
	Peer     float64 `json:"peer,omitempty"`
	PeerName string  `json:"peer_name,omitempty"`
	Ratio    float64 `json:"ratio,omitempty"`
	Bound    float64 `json:"bound,omitempty"`
	Note     string  `json:"note"`
}

var (
	dir    = flag.String("dir", "/tmp/searchloop-bench", "folder for the vectors; kept, so that a second run does not make them again")
	rows   = flag.Int("rows", 1_000_000, "vectors")
	dim    = flag.Int("dim", 768, "their dimension")
	python = flag.String("python", "", "Python with faiss and numpy, for the peers")
	script = flag.String("script", "indexer/bench/peers.py", "the peers' program")
	out    = flag.String("out", "", "file for the report instead of standard output")
)

func main() {
	flag.Parse()
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	paths, queries, err := vectors(*dir, *rows, *dim)
	if err != nil {
		return err
	}
	l := newLimits()
	l.again()
	ours, err := measure(ctx, paths, queries, l)
	if err != nil {
		return err
	}
	items := []item{{Name: "read bandwidth", Unit: "GB/s", Ours: l.read, Note: "all cores, 1 GiB of memory"},
		{Name: "sgemm 1024", Unit: "GFLOP/s", Ours: l.sgemm, Note: "internal/gemm, all cores"}}
	var peers map[string]float64
	if *python != "" {
		if peers, err = measurePeers(paths); err != nil {
			return err
		}
	}
	for _, m := range ours {
		if len(m.peers) == 0 || len(peers) == 0 {
			items = append(items, m.item)
			continue
		}
		for _, name := range m.peers {
			i := m.item
			i.PeerName, i.Peer = name, peers[fmt.Sprintf("%s b%d", name, m.batch)]
			i.Ratio = i.Ours / i.Peer
			items = append(items, i)
		}
	}
	text, err := json.MarshalIndent(items, "", "  ")
	if err != nil {
		return err
	}
	if *out != "" {
		return os.WriteFile(*out, append(text, '\n'), 0o644)
	}
	fmt.Println(string(text))
	return nil
}

// measurePeers runs peers.py, twice because OpenMP reads its settings once, and
// returns queries/s by "peer bN".
func measurePeers(paths map[flat.Format]string) (map[string]float64, error) {
	all := map[string]float64{}
	for _, mode := range []string{"installed", "tuned"} {
		cmd := exec.Command(*python, *script, mode, paths[flat.Flat], filepath.Join(*dir, "queries.f32"))
		if mode == "tuned" {
			cmd.Env = append(os.Environ(), "OMP_WAIT_POLICY=PASSIVE")
		}
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", *python, *script, err)
		}
		if err := json.Unmarshal(text, &all); err != nil { // adds to what is there
			return nil, err
		}
	}
	return all, nil
}
