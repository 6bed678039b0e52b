package nightly

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/manifest"
)

const (
	planFile   = "plan.json"
	resultFile = "result.json"
)

// Plan is what a night evaluates, written before it does.
type Plan struct {
	Schema  int       `json:"schema"` // 1
	Night   string    `json:"night"`  // its folder's name
	Run     string    `json:"run"`
	Begun   time.Time `json:"begun"`
	Epochs  []int     `json:"epochs"`
	Benches []string  `json:"benches"`
	Search  string    `json:"search"` // frozen or live
	// Policies are the digests of the checkpoints by epoch; none of a policy that a server plays.
	Policies map[string]string `json:"policies,omitempty"`
}

// How a night searches. Figures of one kind are compared with figures of that kind.
const (
	Frozen = "frozen"
	Live   = "live"
)

// equal says whether two nights evaluate the same.
func (p *Plan) equal(q *Plan) bool {
	same := slices.Equal(p.Epochs, q.Epochs) && slices.Equal(p.Benches, q.Benches) && p.Search == q.Search
	for e, d := range p.Policies {
		same = same && q.Policies[e] == d
	}
	return same && len(p.Policies) == len(q.Policies)
}

// night is one night's folder.
type night struct {
	Plan
	dir    string
	result *Result // nil: it has not ended
}

// eval is the folder of an evaluation of the night.
func (n *night) eval(bench string, epoch int) string {
	return filepath.Join(n.bench(bench), "epoch-"+strconv.Itoa(epoch))
}

func (n *night) bench(bench string) string { return filepath.Join(n.dir, "evals", bench) }

// nights reads all nights of a run, oldest first. Folders without a plan are none.
func nights(dir string) ([]*night, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fail.Wrap(fail.Disk, "read the nights", dir, err)
	}
	var out []*night
	for _, e := range entries {
		n := &night{dir: filepath.Join(dir, e.Name())}
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		switch err := readJSON(filepath.Join(n.dir, planFile), &n.Plan); {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		}
		r := new(Result)
		switch err := readJSON(filepath.Join(n.dir, resultFile), r); {
		case err == nil:
			n.result = r
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
		out = append(out, n)
	}
	slices.SortStableFunc(out, func(a, b *night) int { return a.Begun.Compare(b.Begun) })
	return out, nil
}

func readJSON(path string, to any) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	return fail.WithHint(fail.Wrap(fail.BadInput, "read a night", path, err), "move its folder away; the other nights and the history stay")
}

// planned is the plan of a new night that begins now.
func planned(o *Options, now time.Time) (*Plan, error) {
	p := &Plan{Schema: 1, Night: o.Night, Run: filepath.Base(filepath.Clean(o.Run)), Begun: now.UTC().Truncate(time.Millisecond),
		Epochs: slices.Compact(slices.Sorted(slices.Values(o.Epochs))), Benches: o.Benches, Search: Frozen}
	if o.Live {
		p.Search = Live
	}
	if o.Served {
		return p, nil
	}
	p.Policies = map[string]string{}
	for _, e := range p.Epochs {
		if e == 0 && o.Start != "" {
			continue // a folder of the user's; the rollouts see what is in it
		}
		dir := checkpoint(o.Run, e)
		if _, err := os.Stat(manifest.Path(dir)); errors.Is(err, fs.ErrNotExist) {
			return nil, fail.WithHint(fail.New(fail.Usage, "begin the night", dir, "there is no such checkpoint"), fmt.Sprintf("make train EPOCH=%d first, or name another by CHECKPOINTS, or a server by POLICY_URL", e))
		}
		m, err := manifest.Open(dir)
		if err != nil {
			return nil, err
		}
		p.Policies[strconv.Itoa(e)] = m.Spec
	}
	return p, nil
}

func checkpoint(run string, epoch int) string {
	return filepath.Join(run, "epoch-"+strconv.Itoa(epoch), "checkpoint")
}

// begin makes the folder of a new night, named after the day it begins.
func begin(dir string, p *Plan, now time.Time) (*night, error) {
	if p.Night == "" {
		day := now.Format(time.DateOnly)
		p.Night = day
		for i := 2; ; i++ {
			if _, err := os.Stat(filepath.Join(dir, p.Night)); errors.Is(err, fs.ErrNotExist) {
				break
			}
			p.Night = fmt.Sprintf("%s.%d", day, i)
		}
	}
	n := &night{Plan: *p, dir: filepath.Join(dir, p.Night)}
	if _, err := os.Stat(filepath.Join(n.dir, planFile)); err == nil {
		return nil, fail.WithHint(fail.New(fail.Usage, "begin the night", n.dir, "a night of this name has ended, of other checkpoints, benchmarks or search"), "name another one")
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return nil, fail.Wrap(fail.Bug, "begin the night", n.dir, err)
	}
	return n, atomicfile.WriteFile(filepath.Join(n.dir, planFile), append(text, '\n'))
}
