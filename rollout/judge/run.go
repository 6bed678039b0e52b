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
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/journal"
	"searchloop/internal/llm"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
	"searchloop/internal/retry"
	"searchloop/internal/secret"
	"searchloop/internal/table"
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
	case err != nil || d.DryRun():
		return err
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

// row is what judging needs of a rollout row: no tokens.
type row struct {
	ID        string            `parquet:"id"`
	Question  string            `parquet:"question"`
	Group     string            `parquet:"group"`
	Text      string            `parquet:"text"`
	Answers   []string          `parquet:"answers,list"`
	Status    string            `parquet:"status,dict"`
	Answer    string            `parquet:"answer"`
	HasAnswer bool              `parquet:"has_answer"`
	Turns     []trajectory.Turn `parquet:"turns,list"`
}

// shard judges the rows whose question it owns. Only what the LLM judge said is
// journaled: everything else is computed again in no time.
func (w *work) shard(ctx context.Context, sh *job.Shard) error {
	defer sh.Discard()
	j, err := sh.Journal()
	if err != nil {
		return err
	}
	if err := w.keep(sh, j); err != nil {
		return err
	}
	m, err := manifest.Open(w.o.Rollouts)
	if err == nil {
		err = m.Require(w.o.Rollouts, trajectory.RolloutsSchema, trajectory.Version)
	}
	if err != nil {
		return err
	}
	progress := w.r.Progress("verdicts", m.Rows()/int64(sh.Shard.N))
	defer progress.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var first error
	var list []trajectory.Judged
	var reused int64
	add := func(jr trajectory.Judged, err error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			if first == nil || fail.KindOf(first) == fail.Interrupted {
				first = err
			}
			cancel(err)
		default:
			list = append(list, jr)
			if missing(&jr) {
				progress.Add(0, 1)
			} else {
				progress.Add(1, 0)
			}
		}
	}
	slots := make(chan struct{}, max(1, w.rec.Judge.Concurrency))
	var wg sync.WaitGroup
	for in, err := range table.ReadDataset[row](w.o.Rollouts) {
		if err != nil {
			add(trajectory.Judged{}, err)
		}
		if w.r.Stopped() || ctx.Err() != nil {
			break
		}
		if !sh.Shard.Owns(in.Question) {
			continue
		}
		if done, ok, err := w.journaled(j, in.ID); ok || err != nil {
			add(done, err)
			reused++
			continue
		}
		t := &trajectory.Row{ID: in.ID, Question: in.Question, Group: in.Group, Text: in.Text, Answers: in.Answers, Status: in.Status,
			Answer: in.Answer, HasAnswer: in.HasAnswer, Turns: in.Turns}
		if v, by := w.exact(t); v != "" {
			add(w.judged(t, v, by, ""))
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			add(w.askFor(ctx, j, t))
		})
	}
	wg.Wait()
	switch {
	case first != nil:
		return first
	case ctx.Err() != nil:
		return fail.Wrap(fail.Interrupted, "judge", w.o.Out, context.Cause(ctx))
	case w.r.Stopped():
		return w.r.Interrupted()
	}
	return w.write(sh, list, reused)
}

// askFor gets the judge's verdict on a row and journals what becomes of it.
func (w *work) askFor(ctx context.Context, j *journal.Journal, t *trajectory.Row) (trajectory.Judged, error) {
	v, reply, err := w.ask.ask(ctx, t)
	if err != nil {
		return trajectory.Judged{}, err
	}
	jr, err := w.judged(t, v, "judge", reply)
	if err != nil {
		return jr, err
	}
	if missing(&jr) {
		w.r.Log.Warn("no verdict", "row", t.ID, "why", v)
	}
	return jr, enter(j, jr)
}

func enter(j *journal.Journal, jr trajectory.Judged) error {
	payload, err := json.Marshal(jr)
	if err != nil {
		return fail.Wrap(fail.Bug, "journal verdict", jr.ID, err)
	}
	return j.Append(jr.ID, payload)
}

// journaled finds a row judged before. One without a verdict counts as judged
// unless it is to be tried again.
func (w *work) journaled(j *journal.Journal, id string) (jr trajectory.Judged, ok bool, err error) {
	payload, ok := j.Get(id)
	if !ok {
		return jr, false, nil
	}
	if err := json.Unmarshal(payload, &jr); err != nil {
		return jr, false, fail.New(fail.BadInput, "read journal", j.Path(), "row %s: %w", id, err)
	}
	return jr, !w.r.RetryFailed || !missing(&jr), nil
}

// keep takes the judge's verdicts of a finished part over into the journal, when
// rows without one are to be judged again.
func (w *work) keep(sh *job.Shard, j *journal.Journal) error {
	path := sh.Previous()
	if path == "" {
		return nil
	}
	for jr, err := range table.Read[trajectory.Judged](path) {
		if err != nil {
			return err
		}
		if _, ok := j.Get(jr.ID); ok || jr.By != "judge" || missing(&jr) {
			continue
		}
		if err := enter(j, jr); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) write(sh *job.Shard, list []trajectory.Judged, reused int64) error {
	slices.SortFunc(list, func(a, b trajectory.Judged) int { return strings.Compare(a.ID, b.ID) })
	part, err := sh.Part()
	if err != nil {
		return err
	}
	c := manifest.Counts{In: int64(len(list)), Reused: reused}
	for i := range list {
		w.sum.add(&list[i])
		if missing(&list[i]) {
			c.Failed++
		} else {
			c.OK++
		}
	}
	out := table.NewWriter[trajectory.Judged](part)
	if err := errors.Join(out.Write(list...), out.Close()); err != nil {
		return fail.Wrap(fail.Disk, "write verdicts", w.o.Out, err)
	}
	return sh.Commit(out.Rows(), c)
}
