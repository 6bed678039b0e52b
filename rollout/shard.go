package rollout

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"

	"searchloop/corpus"
	"searchloop/internal/budget"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/journal"
	"searchloop/internal/manifest"
	"searchloop/internal/shard"
	"searchloop/internal/table"
	"searchloop/rollout/trajectory"
)

// shard makes one shard: plays what is not in the journal, then writes all rows in
// the order of their ids.
func (w *work) shard(ctx context.Context, sh *job.Shard, qs []corpus.Question) error {
	j, err := sh.Journal()
	if err != nil {
		return err
	}
	if err := w.keep(sh, j); err != nil {
		return err
	}
	rows := w.rows(sh.Shard, qs)
	var list []*todo
	for i := range rows {
		done, err := w.finished(j, rows[i].id)
		if err != nil {
			return err
		}
		if rows[i].done = done; !done {
			list = append(list, &rows[i])
		}
	}
	reused := len(rows) - len(list)
	if w.agent.budget, err = w.limits(j, rows); err != nil {
		return err
	}
	if err := w.web.charge(sh); err != nil {
		return err
	}
	s, err := w.sheet(sh, j, rows)
	if err != nil {
		return err
	}
	defer s.close()
	samples, err := sh.Samples(ctx, w.agent.recipe.Rollout.Concurrency)
	if err != nil {
		return err
	}
	if err := w.play(samples, j, s, list, reused); err != nil {
		return err
	}
	if err := w.store.Sync(); err != nil {
		return err
	}
	return s.commit(int64(reused))
}

// todo is a trajectory to be played.
type todo struct {
	q      *corpus.Question
	id     string
	sample int
	done   bool // its end is in the journal
	at     int  // place in the order of ids
}

// rows lists the shard's trajectories by id.
func (w *work) rows(s shard.Spec, qs []corpus.Question) []todo {
	out := make([]todo, 0, w.plan.Sampling.N*len(qs)/s.N)
	for i := range qs {
		q := &qs[i]
		if !s.Owns(q.ID) {
			continue
		}
		for k := range w.plan.Sampling.N {
			out = append(out, todo{q: q, id: q.ID + "#" + strconv.Itoa(k), sample: k})
		}
	}
	slices.SortFunc(out, func(a, b todo) int { return strings.Compare(a.id, b.id) })
	for i := range out {
		out[i].at = i
	}
	return out
}

// row is what is known of a trajectory before it is played.
func (w *work) row(t *todo) trajectory.Row {
	q := t.q
	return trajectory.Row{
		ID: t.id, Run: w.o.Run, Epoch: int32(w.o.Epoch), Question: q.ID, Sample: int32(t.sample), Group: q.ID,
		DataSource: q.DataSource, Category: q.Category, Text: q.Text, Answers: q.Answers,
		Temperature: w.plan.Sampling.Temperature, TopP: w.plan.Sampling.TopP, TopK: int32(w.plan.Sampling.TopK),
		Seed: Seed(w.plan.Seed, w.o.Epoch, q.ID, t.sample, 0), Recipe: w.hash,
	}
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
		if err := enter(j, &record{Row: row, Time: timing{ID: row.ID}}); err != nil {
			return err
		}
	}
	return nil
}

// limits is the budget of a shard, of which finished rows have had their part.
func (w *work) limits(j *journal.Journal, rows []todo) (*budget.Budget, error) {
	if w.o.Limits == (budget.Limits{}) {
		return nil, nil
	}
	var used manifest.Usage
	for i := range rows {
		payload, ok := j.Get(rows[i].id)
		if !ok {
			continue
		}
		var rec record
		if err := json.Unmarshal(payload, &rec); err != nil {
			return nil, fail.New(fail.BadInput, "read journal", j.Path(), "trajectory %s: %w", rows[i].id, err)
		}
		used = used.Add(usage(&rec.Row, rec.Time))
	}
	return budget.New(w.o.Limits, used), nil
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

func enter(j *journal.Journal, rec *record) error {
	b := payloads.Get().(*[]byte)
	defer payloads.Put(b)
	payload, err := rec.append((*b)[:0])
	if err != nil {
		return fail.Wrap(fail.Bug, "journal trajectory", rec.Row.ID, err)
	}
	if *b = payload; cap(payload) > 1<<20 {
		*b = nil // of a rare length
	}
	return j.Append(rec.Row.ID, payload)
}

// payloads are buffers of enter: a journal does not keep what it is given.
var payloads = sync.Pool{New: func() any { return new([]byte) }}

// killsItsProcess is why a trajectory failed that was never played to an end.
const killsItsProcess = "it killed its process twice"

// play runs trajectories side by side, one goroutine each, journals each as it
// ends and hands it to the sheet. When the job is asked to stop, no new one begins and those in flight
// may end within the grace time.
func (w *work) play(samples *job.Samples, j *journal.Journal, s *sheet, list []*todo, reused int) error {
	progress := w.r.Progress("trajectories", int64(len(list)+reused))
	defer progress.Done()
	progress.Skip(int64(reused))
	var mu sync.Mutex
	var tokens int64
	for _, t := range list {
		if !samples.Named(t.id, func(ctx context.Context, deadly bool) error {
			rec := &record{Row: w.row(t), Time: timing{ID: t.id}}
			if deadly {
				rec.Row.Status, rec.Row.Why, rec.Row.LogprobMode = trajectory.Failed, killsItsProcess, trajectory.LogprobNone
			} else if tm, err := w.agent.play(ctx, t.q, &rec.Row); err != nil {
				return err
			} else {
				rec.Time = tm
			}
			if err := enter(j, rec); err != nil {
				return err
			}
			mu.Lock()
			for _, turn := range rec.Row.Turns {
				tokens += int64(turn.Tokens)
			}
			progress.Note("tokens", tokens)
			mu.Unlock()
			if rec.Row.Status == trajectory.Failed {
				progress.Add(0, 1)
			} else {
				progress.Add(1, 0)
			}
			s.ended(t.at, rec)
			return nil
		}) {
			break
		}
	}
	return samples.Wait("roll out")
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
	u.Cost = tm.Cost
	return u
}
