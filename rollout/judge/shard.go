package judge

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/journal"
	"searchloop/internal/manifest"
	"searchloop/internal/table"
	"searchloop/rollout/trajectory"
)

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
	samples, err := sh.Samples(ctx, w.rec.Judge.Concurrency)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var list []trajectory.Judged
	var reused int64
	add := func(jr trajectory.Judged, err error) error {
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		list = append(list, jr)
		if missing(&jr) {
			progress.Add(0, 1)
		} else {
			progress.Add(1, 0)
		}
		return nil
	}
	for in, err := range table.ReadDataset[row](w.o.Rollouts) {
		if err != nil {
			samples.Fail(err)
		}
		if samples.Over() {
			break
		}
		if !sh.Shard.Owns(in.Question) {
			continue
		}
		if done, ok, err := w.journaled(j, in.ID); ok || err != nil {
			if err := add(done, err); err != nil {
				samples.Fail(err)
			}
			reused++
			continue
		}
		t := &trajectory.Row{ID: in.ID, Question: in.Question, Group: in.Group, Text: in.Text, Answers: in.Answers, Status: in.Status,
			Answer: in.Answer, HasAnswer: in.HasAnswer, Turns: in.Turns}
		v, by := w.exact(t)
		if v != "" && (v != trajectory.Correct || w.panel == nil || !w.panel.check) {
			if err := add(w.judged(t, v, by, "")); err != nil {
				samples.Fail(err)
			}
			continue
		}
		samples.Named(t.ID, func(ctx context.Context, deadly bool) error {
			if deadly {
				return add(w.judged(t, trajectory.JudgeError, "judge", "judging this row has killed its process twice"))
			}
			return add(w.askFor(ctx, j, t, v))
		})
	}
	if err := samples.Wait("judge"); err != nil {
		return err
	}
	return w.write(sh, list, reused)
}

// askFor gets the judges' verdict on a row and journals what becomes of it. exact
// is the verdict of a row that matches exactly: it stays, whatever they say.
func (w *work) askFor(ctx context.Context, j *journal.Journal, t *trajectory.Row, exact string) (trajectory.Judged, error) {
	r, opinions, err := w.panel.decide(ctx, t)
	if err != nil {
		return trajectory.Judged{}, err
	}
	by := "judge"
	if exact != "" {
		r, by = ruling{Verdict: exact}, "exact_match"
	}
	jr, err := w.judged(t, r.Verdict, by, r.Reply)
	if err != nil {
		return jr, err
	}
	if len(opinions) > 1 || exact != "" || w.panel.check {
		jr.Opinions = opinions
	}
	if missing(&jr) {
		w.r.Log.Warn("no verdict", "row", t.ID, "why", r.Verdict)
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
		if _, ok := j.Get(jr.ID); ok || jr.By != "judge" && len(jr.Opinions) == 0 || missing(&jr) {
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
