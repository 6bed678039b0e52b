// Package judge decides whether the answers of trajectories are right and turns
// that into rewards. A rollouts dataset goes in, a judged dataset comes out, one
// row for each.
//
// An answer that equals an accepted one in normal form is correct. Otherwise an
// LLM judge is asked, when there is one; what it is shown is fenced. A reply that
// is no clear verdict, or a judge that fails, gives a row without a reward: it is
// counted, listed and tried again on request, and never taken for a wrong answer.
// The format of a row is in docs/judged.md.
package judge

import (
	"context"
	"strings"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/llm"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
	"searchloop/internal/retry"
	"searchloop/internal/secret"
	"searchloop/rollout/trajectory"
)

// KeyName is the environment variable of the judge's key.
const KeyName = "JUDGE_API_KEY"

// Options say what is judged and by whom.
type Options struct {
	Rollouts string // rollouts dataset
	Out      string
	URL      string // OpenAI-compatible server of the judge; "" = exact match only
	Model    string // its model; "" = by recipe
}

// params are what the rows depend on beside the rollouts.
type params struct {
	Reward recipe.Reward `json:"reward"`
	Judge  *recipe.Judge `json:"judge,omitempty"` // nil without an LLM judge
	Seed   uint64        `json:"seed,omitempty"`
	URL    string        `json:"judge_url,omitempty"`
}

// Run makes the judged dataset that o describes. It returns an error of kind Bound
// when more rows than the recipe allows have no verdict; the dataset is complete
// even then. A judge that is gone ends the job with an error of kind Service; what
// was judged is kept.
func Run(ctx context.Context, r *job.Run, o Options) error {
	rec, err := r.Recipe()
	if err != nil {
		return err
	}
	if o.Model != "" {
		rec.Judge.Model = o.Model
	}
	p := params{Reward: rec.Reward}
	if o.URL != "" {
		p.Judge, p.Seed, p.URL = &rec.Judge, rec.Seed, address(o.URL)
	}
	d, err := r.Dataset(job.Spec{Dir: o.Out, Schema: trajectory.JudgedSchema, Version: trajectory.Version, Ext: "parquet",
		Inputs: map[string]string{"rollouts": o.Rollouts}, Params: p})
	switch {
	case err != nil:
		return err
	case d.DryRun() && !d.Complete():
		return estimate(r, o, rec.Judge)
	case d.Complete():
		return bound(d.Manifest(), rec.Judge, o.Out)
	}
	w := &work{r: r, o: o, rec: rec}
	if o.URL != "" {
		if w.ask, err = connect(ctx, r, rec, o); err != nil {
			return err
		}
	}
	for _, s := range d.Todo() {
		sh, err := d.Begin(s)
		if err != nil {
			return err
		}
		if sh == nil {
			continue
		}
		if err := w.shard(ctx, sh); err != nil {
			return err
		}
	}
	if err := d.Seal(w.meta()); err != nil {
		return err
	}
	r.Result(w.sum)
	m, err := manifest.Open(o.Out)
	if err != nil {
		return nil // other shards are missing: whoever makes the last one looks at the bound
	}
	return bound(m, rec.Judge, o.Out)
}

// patience is how failures of the judge are waited for; tests shorten it.
var patience retry.Options

func connect(ctx context.Context, r *job.Run, rec *recipe.Recipe, o Options) (*asker, error) {
	c, err := llm.New(llm.Options{Name: "judge", URL: o.URL, Model: rec.Judge.Model, Key: secret.FromEnv(KeyName), KeyName: KeyName,
		Timeout: time.Duration(rec.Judge.TimeoutSec) * time.Second, Conns: max(1, rec.Judge.Concurrency), Log: r.Log, Retry: patience})
	if err != nil {
		return nil, err
	}
	if err := c.Probe(ctx); err != nil {
		return nil, fail.Wrap(fail.Service, "open judge", "", err)
	}
	return newAsker(rec.Judge, rec.Seed, c)
}

// address is a URL without user name and password.
func address(u string) string {
	scheme, rest, ok := strings.Cut(u, "://")
	if i := strings.LastIndex(rest, "@"); ok && i >= 0 {
		return scheme + "://" + rest[i+1:]
	}
	return u
}

// bound holds the share of rows without a verdict against the recipe's limit.
func bound(m *manifest.Manifest, j recipe.Judge, out string) error {
	c := m.Counts
	if c.In == 0 || float64(c.Failed) <= j.MaxFailed*float64(c.In) {
		return nil
	}
	return fail.WithHint(fail.New(fail.Bound, "judge", out, "%d of %d rows have no verdict, more than judge.max_failed = %g", c.Failed, c.In, j.MaxFailed),
		"they have no reward; judge them again with --retry-failed")
}

type work struct {
	r   *job.Run
	o   Options
	rec *recipe.Recipe
	ask *asker // nil: exact match only
	sum Summary
}

func (w *work) meta() any {
	if w.ask == nil {
		return map[string]any{"by": "exact_match"}
	}
	return map[string]any{"by": "judge", "model": w.ask.client.Model(), "prompt": w.ask.hash}
}
