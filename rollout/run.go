package rollout

import (
	"context"

	"searchloop/corpus"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/tape"
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
	o.servers(rec)
	if rec, err = o.openPython(ctx, r, rec); err != nil {
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
	switch {
	case err != nil:
		return err
	case d.DryRun() && !d.Complete():
		return estimate(r, rec, o, p)
	case d.Complete():
		return bound(d.Manifest(), o.Out)
	}
	defer roomy()() // from here on: while the questions are read the heap grows to many times its size
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
	qs, err := choose(o.Questions, all, p, epoch, n)
	if err != nil {
		return err
	}

	if o.tape, err = tape.Open(o.Record, o.Replay); err != nil {
		return err
	}
	web, err := openWeb(ctx, r, rec, o)
	if err != nil {
		return err
	}
	defer web.close()
	box, store, closeTools, err := openTools(ctx, r, rec, o, web, qs)
	if err != nil {
		return err
	}
	defer closeTools()
	policy, closePolicy, err := openPolicy(ctx, r, rec, o)
	if err != nil {
		return err
	}
	defer closePolicy()

	over, err := openBridge(rec, o.Questions, qs)
	if err != nil {
		return err
	}
	w := &work{r: r, o: o, plan: p, store: store, web: web, hash: p.hash(),
		agent: &agent{recipe: rec, protocol: talks, sampling: p.Sampling, epoch: o.Epoch, strict: o.Mode == Train, policy: policy, tools: box, images: store, bridge: over}}
	if err := d.Each(func(sh *job.Shard) error { return w.shard(ctx, sh, qs) }); err != nil {
		return err
	}
	if err := d.Seal(w.meta()); err != nil {
		return err
	}
	r.Result(w.sum)
	w.sum.warn(r.Log)
	m, err := manifest.Open(o.Out)
	if err != nil {
		return nil // other shards are missing: whoever makes the last one looks at the bound
	}
	if err := w.sum.show(r, &o, d.Digest(), m); err != nil {
		return err
	}
	return bound(m, o.Out)
}

// work is the making of the dataset's shards.
type work struct {
	r     *job.Run
	o     Options
	plan  plan
	store *corpus.ImageStore
	web   *web // nil without live search
	agent *agent
	hash  string
	sum   Summary
}

// meta is what the manifest says beside the numbers.
func (w *work) meta() any {
	return map[string]any{"run": w.o.Run, "epoch": w.o.Epoch, "mode": w.o.Mode, "recipe": w.hash, "sampling": w.plan.Sampling}
}
