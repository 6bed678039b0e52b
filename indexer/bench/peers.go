package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"searchloop/internal/bench"
)

// The peers. Installed and tuned are the system's own faiss; pip's are reported.
const (
	installed    = "faiss as installed"
	tuned        = "faiss tuned"
	pipInstalled = "faiss-cpu of pip"
	pipTuned     = "faiss-cpu of pip, tuned"
	numpy        = "numpy"
)

// peer is one of them: where its figures are, and its version or why there are none.
type peer struct {
	way   string // name in peers.py's answer
	rates map[string]float64
	note  string
}

// askPeers runs peers.py by both Pythons, each twice because OpenMP reads its
// settings once.
func askPeers(index string) (map[string]peer, error) {
	all := map[string]peer{}
	for _, p := range []struct{ python, mode, name, way string }{
		{*system, "installed", installed, "installed"}, {*system, "tuned", tuned, "tuned"},
		{*python, "installed", pipInstalled, "installed"}, {*python, "tuned", pipTuned, "tuned"},
	} {
		if missing := bench.Missing(p.python, "faiss", "numpy"); missing != "" {
			all[p.name] = peer{note: missing}
			continue
		}
		if p.python == *system && p.name != installed && p.name != tuned {
			all[p.name] = peer{note: "peer not measured: --python is the system's own"}
			continue
		}
		cmd := exec.Command(p.python, *script, p.mode, index, filepath.Join(*dir, "queries.f32"))
		if p.mode == "tuned" {
			cmd.Env = append(os.Environ(), "OMP_WAIT_POLICY=PASSIVE")
		}
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", p.python, *script, err)
		}
		var answer map[string]any
		if err := json.Unmarshal(text, &answer); err != nil {
			return nil, err
		}
		rates := map[string]float64{}
		for k, v := range answer {
			if n, ok := v.(float64); ok {
				rates[k] = n
			}
		}
		note := fmt.Sprintf("faiss %v", answer["version"])
		all[p.name] = peer{p.way, rates, note}
		if p.mode == "installed" { // the newest numpy that there is
			all[numpy] = peer{"numpy", rates, "numpy beside " + note}
		}
	}
	if all[numpy].rates == nil {
		all[numpy] = peer{note: all[installed].note}
	}
	return all, nil
}
