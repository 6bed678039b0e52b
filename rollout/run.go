package rollout

import (
	"context"

	"searchloop/corpus"
	"searchloop/internal/job"
	"searchloop/rollout/protocol"
)

// Run makes the rollouts dataset that o describes. An interrupted run continues
// where it stopped: finished trajectories are in the journal. It returns an error
// of kind Service when the policy or a search service is gone, Interrupted when it
// was asked to stop, Bound when every trajectory failed.
func Run(ctx context.Context, r *job.Run, o Options) error {
	rec, err := r.Recipe()
	if err != nil {
		return err
	}
	p, err := o.plan(rec)
	if err != nil {
		return err
	}
	talks, err := protocol.New(rec.Protocol)
	if err != nil {
		return err
	}
	spec, err := o.spec(p, rec)
	if err != nil {
		return err
	}
	d, err := r.Dataset(spec)
	if err != nil || d.Complete() {
		return err
	}
	if d.DryRun() {
		return estimate(r, rec, o, p)
	}
	all, err := readQuestions(o.Questions)
	if err != nil {
		return err
	}
	epoch := o.Epoch
	if o.Mode == Eval {
		epoch = 0 // the same questions whichever epoch's policy is evaluated
	}
	n := p.Questions
	if o.Limit > 0 && (n == 0 || o.Limit < n) {
		n = o.Limit
	}
	qs := Draw(all, rec.Seed, epoch, n)

	box, store, closeTools, err := openTools(ctx, r, rec, o, qs)
	if err != nil {
		return err
	}
	defer closeTools()
	policy, closePolicy, err := openPolicy(ctx, r, rec, o)
	if err != nil {
		return err
	}
	defer closePolicy()

	w := &work{r: r, o: o, plan: p, store: store, hash: p.hash(),
		agent: &agent{recipe: rec, protocol: talks, sampling: p.Sampling, epoch: o.Epoch, strict: o.Mode == Train, policy: policy, tools: box, images: store}}
	for _, s := range d.Todo() {
		sh, err := d.Begin(s)
		if err != nil {
			return err
		}
		if sh == nil {
			continue
		}
		if err := w.shard(ctx, sh, qs); err != nil {
			return err
		}
	}
	if err := d.Seal(w.meta()); err != nil {
		return err
	}
	r.Result(w.sum)
	return w.sum.verdict(r.Log, o.Out)
}

// work is the making of the dataset's shards.
type work struct {
	r     *job.Run
	o     Options
	plan  plan
	store *corpus.ImageStore
	agent *agent
	hash  string
	sum   Summary
}

// meta is what the manifest says beside the numbers.
func (w *work) meta() any {
	return map[string]any{"run": w.o.Run, "epoch": w.o.Epoch, "mode": w.o.Mode, "recipe": w.hash, "sampling": w.plan.Sampling}
}
