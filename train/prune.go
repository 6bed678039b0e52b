package train

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/fault"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
)

// PruneOptions say which checkpoints of a run keep everything.
type PruneOptions struct {
	Run      string // folder with epoch-N/checkpoint
	KeepLast int    // newest epochs, at least 1: the next epoch goes on from it
	KeepBest int    // best epochs by the measure
	Bench    string // the measure is the accuracy on this benchmark; empty: the mean reward
	Weights  bool   // the others lose their weights too, not only their training state
}

// Pruned is what became of one checkpoint.
type Pruned struct {
	Epoch   int     `json:"epoch"`
	Measure *Number `json:"measure,omitempty"` // accuracy or mean reward; absent: not measured
	Kept    string  `json:"kept,omitempty"`    // why it keeps everything
	Files   int     `json:"files"`             // that went, or would go
	Bytes   int64   `json:"bytes"`
}

const opPrune = "prune checkpoints"

// Prune removes the training state (and the weights) of old epochs. The manifest
// says first that a file is pruned, then the file goes: a run killed in between
// is taken up by the next. The digest of a checkpoint does not see it, and the
// manifest keeps its time, so that nothing made from the checkpoint becomes stale.
//
// An epoch without a measure is kept while best ones are asked for: nobody can
// tell yet. The reference of a kept epoch keeps its weights.
func Prune(r *job.Run, o PruneOptions) error {
	if o.KeepLast < 1 || o.KeepBest < 0 {
		return fail.New(fail.Usage, opPrune, "", "--keep-last %d and --keep-best %d: want at least 1 and 0", o.KeepLast, o.KeepBest)
	}
	epochs, err := checkpoints(o.Run)
	if err != nil {
		return err
	}
	if len(epochs) == 0 {
		return fail.WithHint(fail.New(fail.BadInput, opPrune, o.Run, "no finished epoch-N/checkpoint"), "name the folder of a run, as runs/demo")
	}
	if err := measure(epochs, o); err != nil {
		return err
	}
	keep(epochs, o)
	by := fmt.Sprintf("prune --keep-last %d --keep-best %d", o.KeepLast, o.KeepBest)
	var out []Pruned
	for i := range epochs {
		e := &epochs[i]
		if e.Kept == "" {
			if err := e.prune(by, o.Weights && !reference(epochs, e), r.DryRunFlag); err != nil {
				return err
			}
		}
		if !r.JSON {
			fmt.Fprintln(r.Out, e)
		}
		out = append(out, e.Pruned)
	}
	r.Result(out)
	return nil
}

// checkpoint is one finished epoch of a run.
type checkpoint struct {
	Pruned
	dir      string
	manifest *manifest.Manifest
}

func (c *checkpoint) String() string {
	measure := "not measured"
	if c.Measure != nil {
		measure = short(float64(*c.Measure))
	}
	if c.Kept != "" {
		return fmt.Sprintf("epoch %d (%s): kept, %s", c.Epoch, measure, c.Kept)
	}
	return fmt.Sprintf("epoch %d (%s): %d files, %d bytes pruned", c.Epoch, measure, c.Files, c.Bytes)
}

// checkpoints are those with a manifest, by epoch.
func checkpoints(run string) ([]checkpoint, error) {
	entries, err := os.ReadDir(run)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, opPrune, run, err)
	}
	var out []checkpoint
	for _, entry := range entries {
		text, ok := strings.CutPrefix(entry.Name(), "epoch-")
		n, err := strconv.Atoi(text)
		if !ok || err != nil || n < 0 {
			continue
		}
		dir := filepath.Join(run, entry.Name(), "checkpoint")
		m, err := manifest.Read(manifest.Path(dir))
		if errors.Is(err, fs.ErrNotExist) {
			continue // unfinished: not ours to touch
		}
		if err == nil {
			err = m.Require(dir, Checkpoint, CheckpointVersion)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, checkpoint{Pruned: Pruned{Epoch: n}, dir: dir, manifest: m})
	}
	slices.SortFunc(out, func(a, b checkpoint) int { return cmp.Compare(a.Epoch, b.Epoch) })
	return out, nil
}

// measure fills in how good the policies are: by an evaluation, or by the reward
// of the rollouts that the next epoch was trained on.
func measure(epochs []checkpoint, o PruneOptions) error {
	for i := range epochs {
		e := &epochs[i]
		var err error
		if o.Bench != "" {
			var m struct {
				Accuracy *struct{ Mean *Number }
			}
			err = readJSON(filepath.Join(o.Run, "evals", o.Bench, fmt.Sprintf("epoch-%d", e.Epoch), "metrics.json"), &m)
			if m.Accuracy != nil {
				e.Measure = m.Accuracy.Mean
			}
		} else if i+1 < len(epochs) && epochs[i+1].Epoch == e.Epoch+1 {
			var s struct {
				Reward struct {
					N    int64
					Mean *Number
				}
			}
			err = readJSON(filepath.Join(epochs[i+1].dir, statsName), &s)
			if s.Reward.N > 0 {
				e.Measure = s.Reward.Mean
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func readJSON(path string, to any) error {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	return fail.Wrap(fail.BadInput, opPrune, path, err)
}

// keep says which epochs keep everything, and why.
func keep(epochs []checkpoint, o PruneOptions) {
	for i := max(0, len(epochs)-o.KeepLast); i < len(epochs); i++ {
		epochs[i].Kept = "among the last"
	}
	if o.KeepBest == 0 {
		return
	}
	var measured []*checkpoint
	for i := range epochs {
		switch e := &epochs[i]; {
		case e.Measure != nil:
			measured = append(measured, e)
		case e.Kept == "":
			e.Kept = "not measured yet"
		}
	}
	slices.SortFunc(measured, func(a, b *checkpoint) int {
		return cmp.Or(cmp.Compare(*b.Measure, *a.Measure), cmp.Compare(b.Epoch, a.Epoch))
	})
	for _, e := range measured[:min(o.KeepBest, len(measured))] {
		e.Kept = "among the best"
	}
}

// reference says whether a kept epoch was trained with c as its reference.
func reference(epochs []checkpoint, c *checkpoint) bool {
	digest := c.manifest.Digest()
	for i := range epochs {
		for _, in := range epochs[i].manifest.Inputs {
			if epochs[i].Kept != "" && in.Name == "reference" && in.SHA256 == digest {
				return true
			}
		}
	}
	return false
}

// prune marks the parts in the manifest and removes their files.
func (c *checkpoint) prune(by string, weights, dry bool) error {
	var gone []string
	for i := range c.manifest.Parts {
		p := &c.manifest.Parts[i]
		if state := strings.HasPrefix(p.Name, StateDir+"/state-"); !state && !(weights && isWeights(p.Name)) {
			continue
		}
		file := filepath.Join(c.dir, filepath.FromSlash(p.Name))
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) && p.Pruned != "" {
			continue
		}
		if p.Pruned == "" {
			p.Pruned = by
		}
		gone = append(gone, file)
		c.Files++
		c.Bytes += p.Bytes
	}
	if dry || len(gone) == 0 {
		return nil
	}
	at := manifest.Path(c.dir)
	info, err := os.Stat(at)
	if err != nil {
		return fail.Wrap(fail.Disk, opPrune, at, err)
	}
	if _, err := c.manifest.Write(at); err != nil {
		return err
	}
	if err := os.Chtimes(at, time.Time{}, info.ModTime()); err != nil {
		return fail.Wrap(fail.Disk, opPrune, at, err)
	}
	if err := fault.Point("train.prune"); err != nil {
		return fail.Wrap(fail.Disk, opPrune, c.dir, err)
	}
	for _, file := range gone {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fail.Wrap(fail.Disk, opPrune, file, err)
		}
	}
	return atomicfile.SyncDir(c.dir)
}

// isWeights: of the policy itself, not of an adapter beside it.
func isWeights(name string) bool { return path.Dir(name) == "." && path.Ext(name) == ".safetensors" }

// refusePruned is an error when the dataset's part of that name was pruned.
func refusePruned(dir, name string) error {
	m, err := manifest.Read(manifest.Path(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, p := range m.Parts {
		if p.Name == name && p.Pruned != "" {
			return p.Verify(dir)
		}
	}
	return nil
}
