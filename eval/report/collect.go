// Package report makes one self-contained HTML page of a run: curves over epochs,
// results by category, and trajectories that can be read turn by turn with their
// images, observations and rewards. It reads the run folder and the image stores
// and writes one file; it computes no metric of its own.
package report

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"searchloop/eval"
	"searchloop/internal/fail"
	"searchloop/internal/table"
	"searchloop/rollout/trajectory"
)

// Epoch is what the run folder holds of one epoch.
type Epoch struct {
	Run     string // name of the run
	folder  string // of the run: two may have one name
	N       int
	Eval    *eval.Metrics // of the policy that came out of the epoch, nil when not evaluated
	Reward  float64       // mean over scored training rollouts of the epoch
	Scored  int           // how many those were; 0 in epoch 0
	Took    *eval.Timings // what the evaluation took
	Updates []Update      // of the epoch's training, in order
	samples []played
	scores  []eval.Sample // of all samples, shown or not
}

// Update is one line of a checkpoint's metrics.jsonl: numbers by name.
type Update map[string]float64

// played is one evaluated trajectory with its judgement and its score.
type played struct {
	row    trajectory.Row
	judged trajectory.Judged
	sample eval.Sample
}

// Collect reads the epochs of run that have anything to show, in order. At most
// samples trajectories of each evaluation are kept: the same questions in each.
func Collect(run, bench string, samples int) ([]Epoch, error) {
	numbers, err := epochNumbers(run, bench)
	if err != nil {
		return nil, err
	}
	var out []Epoch
	for _, n := range numbers {
		e := Epoch{Run: filepath.Base(filepath.Clean(run)), folder: filepath.Clean(run), N: n}
		dir := filepath.Join(run, "epoch-"+strconv.Itoa(n))
		if err := e.readReward(filepath.Join(dir, "judged")); err != nil {
			return nil, err
		}
		if e.Updates, err = readUpdates(filepath.Join(dir, "checkpoint", "metrics.jsonl")); err != nil {
			return nil, err
		}
		if err := e.readEval(filepath.Join(run, "evals", bench, "epoch-"+strconv.Itoa(n)), samples); err != nil {
			return nil, err
		}
		if e.Eval != nil || e.Scored > 0 || len(e.Updates) > 0 {
			out = append(out, e)
		}
	}
	if len(out) == 0 {
		return nil, fail.WithHint(fail.New(fail.BadInput, "collect the report", run, "nothing is judged or evaluated in this run"), "make judge or make eval first")
	}
	return out, nil
}

func epochNumbers(run, bench string) ([]int, error) {
	var found []int
	for _, dir := range []string{run, filepath.Join(run, "evals", bench)} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fail.Wrap(fail.BadInput, "collect the report", dir, err)
		}
		for _, e := range entries {
			number, is := strings.CutPrefix(e.Name(), "epoch-")
			if n, err := strconv.Atoi(number); is && err == nil {
				found = append(found, n)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

func finished(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "manifest.json"))
	return err == nil
}

func (e *Epoch) readReward(judged string) error {
	if !finished(judged) {
		return nil
	}
	sum := 0.0
	for j, err := range table.ReadDataset[trajectory.Judged](judged) {
		if err != nil {
			return err
		}
		if j.Scored {
			sum += j.Reward
			e.Scored++
		}
	}
	e.Reward = sum / float64(max(e.Scored, 1))
	return nil
}

func (e *Epoch) readEval(dir string, samples int) error {
	if !finished(dir) {
		return nil
	}
	m, err := eval.ReadMetrics(dir)
	if err != nil {
		return err
	}
	e.Eval = m
	if e.scores, err = eval.ReadSamples(dir); err != nil {
		return fail.WithHint(err, "evaluate again")
	}
	if e.Took, err = eval.ReadTimings(dir); err != nil {
		return err
	}
	scores := map[string]eval.Sample{}
	for _, s := range e.scores {
		scores[s.ID] = s
	}
	verdicts := map[string]trajectory.Judged{}
	for j, err := range table.ReadDataset[trajectory.Judged](filepath.Join(dir, "judged")) {
		if err != nil {
			return err
		}
		verdicts[j.ID] = j
	}
	for row, err := range table.ReadDataset[trajectory.Row](filepath.Join(dir, "rollouts")) {
		if err != nil {
			return err
		}
		row.TokenIDs, row.LossMask, row.Logprobs = nil, nil, nil // not shown; they are most of a row
		e.samples = append(e.samples, played{row, verdicts[row.ID], scores[row.ID]})
		if len(e.samples) == samples {
			break
		}
	}
	slices.SortFunc(e.samples, func(a, b played) int { return cmp.Compare(a.row.ID, b.row.ID) })
	return nil
}

// readUpdates reads the numbers of a metrics.jsonl; a missing file has none, and a
// torn last line of a run that is still going is left out.
func readUpdates(path string) ([]Update, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, "read training metrics", path, err)
	}
	defer f.Close()
	var out []Update
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var fields map[string]any
		if json.Unmarshal(lines.Bytes(), &fields) != nil {
			continue
		}
		u := Update{}
		for k, v := range fields {
			if x, ok := v.(float64); ok {
				u[k] = x
			}
		}
		out = append(out, u)
	}
	return out, fail.Wrap(fail.BadInput, "read training metrics", path, lines.Err())
}
