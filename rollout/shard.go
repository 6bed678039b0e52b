package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/journal"
	"searchloop/internal/manifest"
	"searchloop/internal/shard"
	"searchloop/internal/table"
	"searchloop/rollout/trajectory"
)

// record is a journal payload.
type record struct {
	Row  trajectory.Row
	Time timing
}

// shard makes one shard: plays what is not in the journal, then writes all rows in
// the order of their ids.
func (w *work) shard(ctx context.Context, sh *job.Shard, qs []corpus.Question) error {
	defer sh.Discard()
	j, err := sh.Journal()
	if err != nil {
		return err
	}
	if err := w.keep(sh, j); err != nil {
		return err
	}
	rows := w.rows(sh.Shard, qs)
	var todo []todo
	for _, t := range rows {
		done, err := w.finished(j, t.row.ID)
		if err != nil {
			return err
		}
		if !done {
			todo = append(todo, t)
		}
	}
	reused := len(rows) - len(todo)
	if err := w.play(ctx, j, todo, reused); err != nil {
		return err
	}
	if err := w.store.Sync(); err != nil {
		return err
	}
	return w.write(sh, j, rows, int64(reused))
}

// todo is a trajectory to be played.
type todo struct {
	q   *corpus.Question
	row trajectory.Row
}

// rows lists the shard's trajectories by id, with all that is known before they
// are played. All samples of a question are in one shard.
func (w *work) rows(s shard.Spec, qs []corpus.Question) []todo {
	var out []todo
	for i := range qs {
		q := &qs[i]
		if !s.Owns(q.ID) {
			continue
		}
		for k := range w.plan.Sampling.N {
			out = append(out, todo{q, trajectory.Row{
				ID: fmt.Sprintf("%s#%d", q.ID, k), Run: w.o.Run, Epoch: int32(w.o.Epoch), Question: q.ID, Sample: int32(k), Group: q.ID,
				DataSource: q.DataSource, Category: q.Category, Text: q.Text, Answers: q.Answers,
				Temperature: w.plan.Sampling.Temperature, TopP: w.plan.Sampling.TopP, TopK: int32(w.plan.Sampling.TopK),
				Seed: Seed(w.plan.Seed, w.o.Epoch, q.ID, k, 0), Recipe: w.hash,
			}})
		}
	}
	slices.SortFunc(out, func(a, b todo) int { return strings.Compare(a.row.ID, b.row.ID) })
	return out
}

// keep takes the good rows of a finished part over into the journal, when its
// failed ones are to be played again.
func (w *work) keep(sh *job.Shard, j *journal.Journal) error {
	path := sh.Previous()
	if path == "" {
		return nil
	}
	for row, err := range table.Read[trajectory.Row](path) {
		if err != nil {
			return err
		}
		if _, ok := j.Get(row.ID); ok || row.Status == trajectory.Failed {
			continue
		}
		if err := enter(j, record{Row: row, Time: timing{ID: row.ID}}); err != nil {
			return err
		}
	}
	return nil
}

// finished says whether the journal has a trajectory's end. A failure counts as
// one unless failures are to be tried again.
func (w *work) finished(j *journal.Journal, id string) (bool, error) {
	payload, ok := j.Get(id)
	if !ok || !w.r.RetryFailed {
		return ok, nil
	}
	var rec record
	if err := json.Unmarshal(payload, &rec); err != nil {
		return false, fail.New(fail.BadInput, "read journal", j.Path(), "trajectory %s: %w", id, err)
	}
	return rec.Row.Status != trajectory.Failed, nil
}

func enter(j *journal.Journal, rec record) error {
	payload, err := json.Marshal(rec)
	if err != nil {
		return fail.Wrap(fail.Bug, "journal trajectory", rec.Row.ID, err)
	}
	return j.Append(rec.Row.ID, payload)
}

// play runs trajectories side by side, one goroutine each, and journals each as
// it ends. When the job is asked to stop, no new one begins and those in flight
// may end within the grace time.
func (w *work) play(ctx context.Context, j *journal.Journal, list []todo, reused int) error {
	progress := w.r.Progress("trajectories", int64(len(list)+reused))
	defer progress.Done()
	progress.Skip(int64(reused))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, max(1, w.agent.recipe.Rollout.Concurrency))
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	var tokens int64
	stop := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		// Of a failure and of the cancellations it causes, the failure is told.
		if first == nil || fail.KindOf(first) == fail.Interrupted && fail.KindOf(err) != fail.Interrupted {
			first = err
		}
		cancel(err)
	}
	for i := range list {
		if w.r.Stopped() || ctx.Err() != nil {
			break
		}
		select {
		case <-w.r.Stopping():
		case <-ctx.Done():
		case slots <- struct{}{}:
			t := &list[i]
			wg.Go(func() {
				defer func() { <-slots }()
				tm, err := w.agent.play(ctx, t.q, &t.row)
				if err == nil {
					err = enter(j, record{t.row, tm})
				}
				if err != nil {
					stop(err)
					return
				}
				mu.Lock()
				for _, turn := range t.row.Turns {
					tokens += int64(turn.Tokens)
				}
				progress.Note("tokens", tokens)
				mu.Unlock()
				if t.row.Status == trajectory.Failed {
					progress.Add(0, 1)
				} else {
					progress.Add(1, 0)
				}
				t.row = trajectory.Row{ID: t.row.ID} // it is in the journal now
			})
		}
	}
	wg.Wait()
	if first != nil {
		return first
	}
	if err := ctx.Err(); err != nil {
		return fail.Wrap(fail.Interrupted, "roll out", "", context.Cause(ctx))
	}
	return w.r.Interrupted()
}

// usage counts what the policy server was asked for.
func usage(row *trajectory.Row, tm timing) manifest.Usage {
	u := manifest.Usage{Requests: int64(tm.Calls)}
	for _, t := range row.Turns {
		if t.Role == "assistant" {
			u.CompletionTokens += int64(t.Tokens)
		}
	}
	u.PromptTokens = tm.Prompt
	u.Retries = u.Requests - int64(tm.Turns)
	return u
}

// write puts the journal's rows into the part and their timings beside it.
func (w *work) write(sh *job.Shard, j *journal.Journal, rows []todo, reused int64) error {
	part, err := sh.Part()
	if err != nil {
		return err
	}
	extra, err := sh.Extra(sh.Shard.Name("timings", "jsonl"))
	if err != nil {
		return err
	}
	times := json.NewEncoder(extra)
	out := table.NewWriter[trajectory.Row](part)
	c := manifest.Counts{In: int64(len(rows)), Reused: reused}
	policy, used := "", manifest.Usage{}
	for _, t := range rows {
		payload, ok := j.Get(t.row.ID)
		var rec record
		err := json.Unmarshal(payload, &rec)
		if !ok || err != nil {
			return fail.New(fail.BadInput, "read journal", j.Path(), "trajectory %s is missing or damaged", t.row.ID)
		}
		if err := rec.Row.Check(); err != nil {
			return &fail.Error{Kind: fail.Bug, Op: "check row", Sample: t.row.ID, Err: err}
		}
		if p := rec.Row.Policy; p != "" {
			if policy != "" && p != policy {
				return fail.WithHint(fail.New(fail.BadInput, "roll out", w.o.Out, "two policies answered: %.16s and %.16s", policy, p),
					"the server was given other weights during the run; use --fresh")
			}
			policy = p
		}
		if rec.Row.Status == trajectory.Failed {
			c.Failed++
		} else {
			c.OK++
		}
		w.sum.add(&rec.Row)
		used = used.Add(usage(&rec.Row, rec.Time))
		if err := errors.Join(out.Write(rec.Row), times.Encode(rec.Time)); err != nil {
			return fail.Wrap(fail.Disk, "write rollouts", w.o.Out, err)
		}
	}
	if err := out.Close(); err != nil {
		return fail.Wrap(fail.Disk, "write rollouts", w.o.Out, err)
	}
	sh.Use(used)
	return sh.Commit(out.Rows(), c)
}
