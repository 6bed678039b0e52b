package train

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/fault"
	"searchloop/internal/job"
	"searchloop/internal/ranks"
)

// objective is what an optimizer batch is trained for. The loop calls begin,
// then slopes for every pack of this rank, then merge and finish.
type objective interface {
	// begin sees all rows of the batch before its first pass, those of other ranks
	// too, for denominators, and the trained tokens of rows that are counted there
	// without being run.
	begin(rows []*Sequence, idle []int)
	// slopes sets, for every trained token of the pack, d(loss)/d(log-prob) and
	// d(loss)/d(entropy), divided by what the whole batch is divided by.
	slopes(rows []*Sequence, logp, entropy, dlogp, dentropy []float32)
	// merge joins what slopes saw on all ranks. Collective.
	merge(group ranks.Group)
	// finish fills in the step's line. An error stops the run before the update.
	finish(step int64, line *Line) error
}

// run is a training run: a plan and what carries it out. All ranks of its group
// have the same plan and rows, each a policy of its own; of a step's packs each takes
// every Size()-th. Rank 0 writes the files.
type run struct {
	group               ranks.Group
	kind, identity, dir string
	policy              Policy
	params              []Param
	opt                 *AdamW
	schedule            Schedule
	rows                []*Sequence
	steps               []Step
	budget              int // tokens of a pack, for the fill
	images              *Pictures
	goal                objective
	routes              *routeBook // experts to replay, or nil
	saveEvery           int
	device              *Device
	board               string // folder for TensorBoard's event files; empty: none
	log                 *slog.Logger
	stopping            <-chan struct{}
	note                func(line *Line, took time.Duration) // after every step, or nil

	done    int64
	saved   int64 // step of the state on disk; -1 before there is one
	inARow  int64
	pack    packed
	dl, de  []float32
	batch   []*Sequence
	metrics *metricsLog // nil where another rank writes them
}

// mostSkipped steps in a row without an update are no accident any more.
const mostSkipped = 10

func (r *run) stateDir() string { return filepath.Join(r.dir, StateDir) }

// train carries out the steps that are not done yet and leaves the state of the
// last one. When it is told to stop it ends the present step, saves and returns
// fail.Interrupted.
func (r *run) train(ctx context.Context, j *job.Run) (err error) {
	defer func() {
		if err != nil {
			r.group.Abort(err)
		}
	}()
	defer ranks.Guard(&err)
	size := int64(0)
	r.saved = -1
	c, why, err := resume(r.stateDir(), filepath.Join(r.dir, MetricsName), r.identity, r.params, r.opt)
	if err != nil {
		return err
	}
	if c != nil {
		r.done, r.inARow, size = c.Step, c.InARow, c.Metrics
		r.saved = c.Step
		if l, ok := r.policy.(*adapted); ok {
			l.apply()
		}
		r.log.Info("continuing", "step", c.Step, "of", len(r.steps))
	} else if why != "" {
		r.log.Warn("starting from the beginning", "because", why)
	}
	r.opt.spread() // an optimizer rounds the weights it has masters of
	if r.group.Rank() == 0 {
		if r.metrics, err = openMetrics(r.dir, size); err != nil {
			return err
		}
		defer r.metrics.close()
		end, err := r.watch(j)
		if err != nil {
			return err
		}
		defer end()
	}
	for r.done < int64(len(r.steps)) {
		told := false
		select {
		case <-r.stopping:
			told = true
		default:
		}
		if ranks.Any(r.group, told) {
			if err := r.save(); err != nil {
				return err
			}
			return fail.New(fail.Interrupted, r.kind, r.dir, "stopped after step %d of %d; run again to continue", r.done, len(r.steps))
		}
		if err := r.step(ctx); err != nil {
			return err
		}
		if r.saveEvery > 0 && r.done%int64(r.saveEvery) == 0 {
			if err := r.save(); err != nil {
				return err
			}
		}
	}
	return r.save()
}

// save makes the present step the state on disk, unless it is.
func (r *run) save() error {
	if r.saved == r.done {
		return nil
	}
	r.saved = r.done
	c := Cursor{Kind: r.kind, Run: r.identity, Step: r.done, Steps: int64(len(r.steps)), InARow: r.inARow}
	if r.metrics != nil {
		if err := r.metrics.sync(); err != nil {
			return err
		}
		c.Metrics = r.metrics.size
	}
	return writeState(r.stateDir(), c, r.params, r.opt)
}

// step is one optimizer batch.
func (r *run) step(ctx context.Context) error {
	began := time.Now()
	plan := r.steps[r.done]
	line := &Line{Step: r.done + 1, Steps: int64(len(r.steps)), Pass: plan.Pass, Packs: len(plan.Packs), LR: Number(r.schedule.At(r.done))}
	line.Device, line.DType = r.device.place()
	r.batch = r.batch[:0]
	cost, most := 0.0, 0.0
	for _, p := range plan.Packs {
		before := cost
		for _, i := range p {
			r.batch = append(r.batch, r.rows[i])
			cost += r.rows[i].Cost
			line.Rows++
			line.Tokens += int64(len(r.rows[i].Tokens))
			line.Trained += int64(r.rows[i].Trained)
		}
		most = max(most, cost-before)
	}
	line.Fill = Number(float64(line.Tokens) / float64(r.budget*len(plan.Packs)))
	line.Balance = 1
	if most > 0 {
		line.Balance = Number(cost / most / float64(len(plan.Packs)))
	}
	r.policy.ZeroGrad()
	r.goal.begin(r.batch, plan.Idle)
	rest := r.batch
	for k, p := range plan.Packs {
		if err := ctx.Err(); err != nil {
			return fail.Wrap(fail.Interrupted, r.kind, r.dir, err)
		}
		if k%r.group.Size() == r.group.Rank() {
			if err := r.backward(rest[:len(p)]); err != nil {
				return err
			}
		}
		rest = rest[len(p):]
	}
	r.goal.merge(r.group)
	if err := r.goal.finish(r.done, line); err != nil {
		return err
	}
	l, factors := r.policy.(*adapted)
	if factors {
		l.gather()
	}
	norm, ok := r.opt.Step(float64(line.LR))
	if factors {
		l.apply()
	}
	line.GradNorm, line.Skipped = Number(norm), !ok
	r.done++
	if r.inARow++; ok {
		r.inARow = 0
	}
	if r.metrics != nil {
		if err := r.metrics.add(line); err != nil {
			return err
		}
	}
	if err := fault.Point("train.step"); err != nil {
		return fail.Wrap(fail.Disk, r.kind, r.dir, err)
	}
	if r.inARow >= mostSkipped {
		return fail.WithHint(fail.New(fail.Bound, r.kind, r.dir, "step %d: the gradient was not finite for %d steps in a row", r.done, r.inARow),
			"lower optimizer.lr, or look at the rows of this batch")
	}
	if r.note != nil {
		r.note(line, time.Since(began))
	}
	return nil
}

// backward adds one pack's gradient.
func (r *run) backward(rows []*Sequence) error {
	p := &r.pack
	if err := p.assemble(r.policy, r.images, rows); err != nil {
		return err
	}
	if r.routes != nil {
		var err error
		if p.batch.Routes, err = r.routes.of(rows); err != nil {
			return err
		}
	}
	pass, err := r.policy.Forward(&p.batch)
	if err != nil {
		return err
	}
	defer pass.Release()
	logp, entropy := pass.Score(p.rows, p.targets, p.temperature)
	r.dl, r.de = sized(r.dl, len(logp)), sized(r.de, len(logp))
	r.goal.slopes(rows, logp, entropy, r.dl, r.de)
	pass.Backward(p.rows, p.targets, p.temperature, r.dl, r.de)
	return nil
}

func sized(x []float32, n int) []float32 {
	if cap(x) < n {
		return make([]float32, n)
	}
	return x[:n]
}
