package eval

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/stat"
)

// Timings is timings.json: what an evaluation took.
type Timings struct {
	Seconds  Spread         `json:"seconds"` // of a trajectory
	Policy   Spread         `json:"policy_seconds"`
	Tools    Spread         `json:"tool_seconds"`
	Rollouts manifest.Usage `json:"rollouts"` // what the policy's server and the providers were asked for
	Judge    manifest.Usage `json:"judge"`
}

// Spread is how long trajectories took.
type Spread struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	Max  float64 `json:"max"`
}

// timing is a line of a rollout's timings-*.jsonl.
type timing struct {
	Seconds float64 `json:"seconds"`
	Policy  float64 `json:"policy_seconds"`
	Tools   float64 `json:"tool_seconds"`
}

func writeTimings(to io.Writer, rollouts, judged string) error {
	var t Timings
	for _, x := range []struct {
		dir string
		to  *manifest.Usage
	}{{rollouts, &t.Rollouts}, {judged, &t.Judge}} {
		m, err := manifest.Open(x.dir)
		if err != nil {
			return err
		}
		if m.Usage != nil {
			*x.to = *m.Usage
		}
	}
	files, _ := filepath.Glob(filepath.Join(rollouts, "timings-*.jsonl"))
	var all, policy, tools []float64
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			return fail.Wrap(fail.BadInput, "read timings", path, err)
		}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for n := int64(1); lines.Scan(); n++ {
			var one timing
			if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
				f.Close()
				return &fail.Error{Kind: fail.BadInput, Op: "read timings", Path: path, Row: n, Err: err}
			}
			all, policy, tools = append(all, one.Seconds), append(policy, one.Policy), append(tools, one.Tools)
		}
		f.Close()
		if err := lines.Err(); err != nil {
			return fail.Wrap(fail.BadInput, "read timings", path, err)
		}
	}
	t.Seconds, t.Policy, t.Tools = spread(all), spread(policy), spread(tools)
	e := json.NewEncoder(to)
	e.SetIndent("", "  ")
	return fail.Wrap(fail.Disk, "write timings", "", e.Encode(t))
}

func spread(xs []float64) (s Spread) {
	if len(xs) == 0 {
		return s
	}
	slices.Sort(xs)
	for _, x := range xs {
		s.Mean += x / float64(len(xs))
	}
	return Spread{s.Mean, stat.Percentile(xs, 0.5), stat.Percentile(xs, 0.95), xs[len(xs)-1]}
}

// ReadTimings reads what an evaluation took; nil of one made before there were
// timings.
func ReadTimings(dir string) (*Timings, error) {
	path := filepath.Join(dir, TimingsFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	t := new(Timings)
	if err == nil {
		err = json.Unmarshal(text, t)
	}
	return t, fail.Wrap(fail.BadInput, "read timings", path, err)
}
