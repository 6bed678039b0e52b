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
	"cmp"
	"context"
	"encoding/json"
	"os"
	"strings"
	"time"

	"searchloop/internal/board"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
	"searchloop/rollout/trajectory"
)

// KeyName is the environment variable of the judge's key.
const KeyName = "JUDGE_API_KEY"

// Options say what is judged and by whom.
type Options struct {
	Rollouts string // rollouts dataset
	Out      string
	URL      string   // OpenAI-compatible server of the judge, or @FILE with its address; "" = the recipe's panel, or exact match only
	Model    string   // its model; "" = by recipe
	Images   []string // image stores of the questions, when judges are shown images
	Cache    string   // store of verdicts given before (package kv); "" = none
	Record   string   // folder that takes what the judges say, or:
	Replay   string   // folder that answers in their place
	Labels   string   // verdicts by people, to say how far they agree; may be ""

	TensorBoard string // folder for event files; empty: none are written

	Follow   bool          // the rollout may still run: its rows are judged as they end
	Patience time.Duration // how long a followed rollout may show no new row; 0: an hour
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
	if o.URL != "" && len(rec.Judge.Panel) > 0 {
		return fail.WithHint(fail.New(fail.Usage, "judge", "", "a judge is given, and the recipe has a panel"), "leave --judge-url out, or add --set judge.panel=[]")
	}
	o.URL = cmp.Or(o.URL, rec.Judge.URL)
	p := params{Reward: rec.Reward}
	asked := o.URL != "" || len(rec.Judge.Panel) > 0
	if asked {
		p.Judge, p.Seed, p.URL = &rec.Judge, rec.Seed, address(o.URL)
	}
	w := &work{r: r, o: o, rec: rec}
	defer w.close()
	if o.Follow && !r.DryRunFlag {
		if err := w.keepUp(ctx, asked); err != nil {
			return err
		}
	}
	d, err := r.Dataset(job.Spec{Dir: o.Out, Schema: trajectory.JudgedSchema, Version: trajectory.Version, Ext: "parquet",
		Inputs: map[string]string{"rollouts": o.Rollouts}, Params: p})
	switch {
	case err != nil:
		return err
	case d.DryRun() && !d.Complete():
		return estimate(r, o, rec.Judge)
	case d.Complete():
		return w.finish(d.Manifest())
	}
	if asked {
		if err := w.seat(ctx); err != nil {
			return err
		}
	}
	if err := d.Each(func(sh *job.Shard) error { return w.shard(ctx, sh) }); err != nil {
		return err
	}
	if err := d.Seal(w.meta()); err != nil {
		return err
	}
	if w.panel != nil {
		w.sum.FromCache = int(w.panel.kept.reused.Load())
	}
	m, err := manifest.Open(o.Out)
	if err != nil {
		r.Result(w.sum)
		return nil // other shards are missing: whoever makes the last one looks at the whole
	}
	if err := w.show(d.Digest(), m); err != nil {
		return err
	}
	return w.finish(m)
}

// show shows the finished dataset as one step, that of its epoch. Rows that other
// processes made are read for it.
func (w *work) show(digest string, m *manifest.Manifest) error {
	if !board.Wanted(w.o.TensorBoard) {
		return nil
	}
	rollouts, err := manifest.Open(w.o.Rollouts)
	if err != nil {
		return err
	}
	var about struct{ Epoch int64 }
	_ = json.Unmarshal(rollouts.Meta, &about) // rollouts that say no epoch are of 0
	all := w.sum
	if int64(all.Rows) != m.Rows() {
		all = Summary{FromCache: w.sum.FromCache}
		for j, err := range trajectory.Judgements(w.o.Out) {
			if err != nil {
				return err
			}
			all.add(&j)
		}
	}
	board.Show(board.Options{Job: "judge", Dataset: w.o.Out, ID: digest, Dir: w.o.TensorBoard, Step: about.Epoch, Log: w.r.Log}, all)
	return nil
}

// finish looks at the whole dataset: how far those who judge agree, and whether too
// many rows have no verdict.
func (w *work) finish(m *manifest.Manifest) error {
	if j := w.rec.Judge; w.o.Labels != "" || len(j.Panel) > 0 || j.CheckExact {
		var err error
		if w.sum.Agreement, err = Agree(w.o.Out, w.o.Labels); err != nil {
			return err
		}
	}
	for _, a := range w.sum.Agreement {
		w.r.Log.Info("agreement", "of", a.A, "and", a.B, "counted", a.Counted, "agree", a.Agree, "kappa", a.Kappa)
	}
	if w.sum.Rows > 0 || len(w.sum.Agreement) > 0 {
		w.r.Result(w.sum)
	}
	return bound(m, w.rec.Judge, w.o.Out)
}

// address is a URL without user name and password. Servers that are found by a file
// are here today and there tomorrow: what they say depends on their model alone.
func address(u string) string {
	if strings.HasPrefix(u, "@") {
		return ""
	}
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
	r     *job.Run
	o     Options
	rec   *recipe.Recipe
	panel *panel // nil: exact match only, or not seated yet
	sum   Summary
	leave func() // what the panel opened
}

// seat connects to the judges, once.
func (w *work) seat(ctx context.Context) (err error) {
	if w.panel != nil {
		return nil
	}
	o := w.o
	if dir := verdicts(o.Out); o.Cache == "" && (o.Follow || exists(dir)) {
		o.Cache = dir // of this run, or of one that followed and was interrupted
	}
	w.panel, w.leave, err = seat(ctx, w.r, w.rec, o)
	return err
}

func (w *work) close() {
	if w.leave != nil {
		w.leave()
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (w *work) meta() any {
	if w.panel == nil {
		return map[string]any{"by": "exact_match"}
	}
	return map[string]any{"by": "judge", "model": w.panel.names(), "prompt": w.panel.judges[0].hash}
}
