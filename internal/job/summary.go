package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/secret"
	"searchloop/internal/shard"
)

// Summary is how a run ended: <Dir>.summary.json beside the dataset folder, with
// the shard in its name when the process made one of many. make turns every exit
// code into 2; the real one is here. It is no part of the data and no make target.
type Summary struct {
	Job       string          `json:"job"`
	Dataset   string          `json:"dataset"`
	Shard     string          `json:"shard,omitempty"`
	Exit      int             `json:"exit"`
	Kind      string          `json:"kind"` // "complete", or the kind of the error
	Error     string          `json:"error,omitempty"`
	Hint      string          `json:"hint,omitempty"`
	Resumable bool            `json:"resumable"` // the same command again goes on from here
	Counts    manifest.Counts `json:"counts"`
	Usage     *manifest.Usage `json:"usage,omitempty"`
	Seconds   float64         `json:"seconds"`
	Program   string          `json:"program"`
	Ended     time.Time       `json:"ended"`
	Result    any             `json:"result,omitempty"`
}

// SummaryPath is where the process leaves its summary that makes shard s, first of
// all, of the dataset in dir.
func SummaryPath(dir string, s shard.Spec) string {
	if s.N == 1 {
		return dir + ".summary.json"
	}
	return dir + "." + s.Name("summary", "json")
}

// summarise writes the summary of every dataset of the run.
func (r *Run) summarise(runErr error) error {
	r.mu.Lock()
	datasets, result := append([]*Dataset(nil), r.datasets...), r.result
	r.mu.Unlock()
	var errs []error
	for _, d := range datasets {
		if r.DryRunFlag {
			break
		}
		s := Summary{Job: r.Name, Dataset: d.spec.Dir, Exit: fail.ExitCode(runErr), Kind: "complete", Counts: d.counts,
			Seconds: time.Since(r.began).Seconds(), Program: r.Name + " " + Version, Ended: time.Now().UTC(), Result: result}
		if d.complete != nil {
			s.Counts = d.complete.Counts
		}
		if !d.usage.IsZero() {
			s.Usage = &d.usage
		}
		path := SummaryPath(d.spec.Dir, shard.Spec{N: 1})
		if d.only != nil && d.n > 1 {
			s.Shard = fmt.Sprintf("%s/%d", shard.Ranges(d.only), d.n)
			path = SummaryPath(d.spec.Dir, shard.Spec{I: d.only[0], N: d.n})
		}
		if runErr != nil {
			k := fail.KindOf(runErr)
			s.Kind, s.Error = k.String(), secret.Scrub(runErr.Error()) // also below, but that may be given up
			s.Resumable = k == fail.Interrupted || k == fail.Killed || k == fail.Service || k == fail.Disk
			var e *fail.Error
			if errors.As(runErr, &e) {
				s.Hint = secret.Scrub(e.Hint)
			}
		}
		text, err := json.MarshalIndent(s, "", "  ")
		if err != nil {
			s.Result = fmt.Sprintf("%v", result)
			text, _ = json.MarshalIndent(s, "", "  ")
		}
		clean := []byte(secret.Scrub(string(text)))
		if string(clean) != string(text) && !json.Valid(clean) { // a secret of digits stood where a number did
			s.Result = nil
			text, _ = json.MarshalIndent(s, "", "  ")
			clean = text
		}
		errs = append(errs, atomicfile.WriteFile(path, append(clean, '\n')))
		_ = atomicfile.Sweep(filepath.Dir(path)) // a summary of a killed run
	}
	return errors.Join(errs...)
}
