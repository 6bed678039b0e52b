package train

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"searchloop/internal/board"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/ranks"
	"searchloop/internal/recipe"
	"searchloop/internal/shard"
	"searchloop/internal/tensor"
)

// kit is what the jobs take from the packages of models; tests bring their own.
type kit struct {
	load     func(dir string, freezeVision bool) (Policy, error)
	loadOn   func(on tensor.Trainer, dir string, freezeVision bool) (Policy, error) // into a device's memory
	pictures func(dir string) (PatchReader, error)
	renderer func(dir string) (r Renderer, ids int, err error) // ids: size of the tokenizer, 0 when unknown
}

// open makes the device ready and returns the kit that loads policies there.
func (k kit) open(d *Device) (kit, error) {
	if d.onHost() {
		return k, nil
	}
	if err := d.open(); err != nil {
		return k, err
	}
	load := k.loadOn
	k.load = func(dir string, freezeVision bool) (Policy, error) { return load(d.be, dir, freezeVision) }
	return k, nil
}

// folder begins the dataset of a checkpoint: the lock, and --fresh. part is nil
// when there is nothing to do for this process; otherwise the caller discards it
// at the end, which gives the lock back.
func folder(r *job.Run, s job.Spec) (d *job.Dataset, part *job.Shard, err error) {
	s.Schema, s.Version, s.Single = Checkpoint, CheckpointVersion, true
	d, err = r.Dataset(s)
	if err != nil || d.Complete() || d.DryRun() {
		return d, nil, err
	}
	part, err = d.Begin(shard.Spec{I: 0, N: 1})
	if err != nil || part == nil || !r.Fresh {
		return d, part, err
	}
	if err := startOver(d.Dir()); err != nil {
		part.Discard()
		return d, nil, err
	}
	return d, part, nil
}

// startOver removes the training state and the computed log-probs.
func startOver(dir string) error {
	for _, sub := range []string{StateDir, workName} {
		entries, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fail.Wrap(fail.Disk, "start over", dir, err)
		}
		for _, e := range entries {
			if filepath.Ext(e.Name()) == ".lock" {
				continue // this process holds it
			}
			if err := os.Remove(filepath.Join(dir, sub, e.Name())); err != nil {
				return fail.Wrap(fail.Disk, "start over", dir, err)
			}
		}
	}
	return nil
}

// workName is the folder for what a finished dataset does not need; job removes
// it when the dataset is sealed.
const workName = ".work"

// newRun prepares the loop.
func newRun(r *job.Run, d *job.Dataset, kind string, o recipe.Optimizer, policy Policy, rows []*Sequence, steps []Step, budget, saveEvery int, images *Pictures, goal objective) (*run, error) {
	params := policy.Params()
	group := ranks.Local(1)[0]
	opt, err := newAdamW(o, params, group)
	if err != nil {
		return nil, err
	}
	if p, ok := policy.(interface {
		exact(params []Param, set func(i int, x []float32)) error
	}); ok {
		if err := p.exact(params, func(i int, x []float32) { opt.write(i, x, nil, nil) }); err != nil {
			return nil, err
		}
	}
	schedule, err := NewSchedule(o, int64(len(steps)))
	if err != nil {
		return nil, err
	}
	return &run{
		group: group, kind: kind, identity: d.Digest(), dir: d.Dir(), policy: policy, params: params, opt: opt, schedule: schedule,
		rows: rows, steps: steps, budget: budget, images: images, goal: goal, saveEvery: saveEvery, log: r.Log, stopping: r.Stopping(),
	}, nil
}

// watch shows the run's progress and writes timings.jsonl and events. The returned function
// ends both.
func (r *run) watch(j *job.Run) (end func(), err error) {
	total := int64(0)
	for _, s := range r.steps {
		for _, p := range s.Packs {
			total += int64(len(p))
		}
	}
	timings, err := openTimings(r.dir)
	if err != nil {
		return nil, err
	}
	shown, err := board.Open(board.Options{Job: r.kind, Dataset: r.dir, ID: r.identity, Dir: r.board, Step: r.done + 1, Log: r.log})
	if err != nil {
		timings.close()
		return nil, err
	}
	p := j.Progress(r.kind+" rows", total)
	before := int64(0)
	for _, s := range r.steps[:r.done] {
		for _, pack := range s.Packs {
			before += int64(len(pack))
		}
	}
	p.Skip(before)
	r.note = func(line *Line, took time.Duration) {
		p.Add(line.Rows, 0)
		p.Note("step", line.Step)
		p.Note("loss", short(float64(line.Loss)))
		if line.Update != nil {
			p.Note("reward", short(float64(line.RewardMean)))
			p.Note("kl", short(float64(line.KL)))
		}
		rate := float64(line.Tokens) / took.Seconds()
		p.Note("tok/s", int64(rate))
		timings.add(line, took, rate)
		if shown == nil {
			return
		}
		if values, err := points(r.kind, line, took); err == nil {
			shown.Add(line.Step, time.Now(), values)
		}
	}
	return func() {
		p.Done()
		timings.close()
		shown.Close()
	}, nil
}
