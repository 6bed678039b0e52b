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

// peerRun is one run of peers.py.
type peerRun struct{ python, mode, name string }

// peerRuns are its runs: by both Pythons, each twice because OpenMP reads its
// settings once.
func peerRuns() [rounds / 2]peerRun {
	return [...]peerRun{{*system, "installed", installed}, {*system, "tuned", tuned}, {*python, "installed", pipInstalled}, {*python, "tuned", pipTuned}}
}

// ask measures these batches and adds the peers that it measured to all, or why
// they are not there.
func (p peerRun) ask(index string, batches []int, all map[string]peer) error {
	no := func(why string) error {
		all[p.name] = peer{note: why}
		if p.mode == "installed" && all[numpy].rates == nil {
			all[numpy] = all[p.name]
		}
		return nil
	}
	if missing := bench.Missing(p.python, "faiss", "numpy"); missing != "" {
		return no(missing)
	}
	if p.python == *system && p.name != installed && p.name != tuned {
		return no("peer not measured: --python is the system's own")
	}
	args := []string{*script, p.mode, index, filepath.Join(*dir, "queries.f32")}
	for _, n := range batches {
		args = append(args, fmt.Sprint(n))
	}
	cmd := exec.Command(p.python, args...)
	if p.mode == "tuned" {
		cmd.Env = append(os.Environ(), "OMP_WAIT_POLICY=PASSIVE")
	}
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s %s: %w", p.python, *script, err)
	}
	var answer map[string]any
	if err := json.Unmarshal(text, &answer); err != nil {
		return err
	}
	rates := map[string]float64{}
	for k, v := range answer {
		if n, ok := v.(float64); ok {
			rates[k] = n
		}
	}
	note := fmt.Sprintf("faiss %v", answer["version"])
	all[p.name] = peer{p.mode, rates, note}
	if p.mode == "installed" { // the newest numpy that there is
		all[numpy] = peer{"numpy", rates, "numpy beside " + note}
	}
	return nil
}
