// Package balance finds out which questions a policy must search for, and draws a
// set of them in which those that it must and those that it need not stand in a
// wanted proportion (MMSearch-R1, section 3).
//
// Questions, rollouts of them and their judgements go in; the drawn questions come
// out, each with its trial, and beside them the trials of all and a report. It
// plays no rollouts and judges no answers. The rules are in docs/curate.md.
package balance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
	"searchloop/internal/table"
	"searchloop/rollout/trajectory"
)

// Options say what is balanced.
type Options struct {
	Questions string   // questions dataset
	Images    []string // its image stores, beside images/ in the dataset
	Rollouts  string   // rollouts of it
	Judged    string   // their judgements
	Out       string   // folder of the drawn questions
}

// Why a question is not among the drawn.
var (
	errUntried  = errors.New("no rollout has a verdict")
	errFew      = errors.New("fewer rollouts with a verdict than wanted")
	errUnsolved = errors.New("set aside: no rollout was right")
	errGuess    = errors.New("set aside: right only without a search, and less often than counts as known")
	errSurplus  = errors.New("not drawn: its side of the mix is full")
)

// TrialsFile and ReportFile are the side parts.
const (
	TrialsFile = "trials.jsonl"
	ReportFile = "balance.json"
)

// Run makes the balanced dataset that o describes.
func Run(ctx context.Context, r *job.Run, o Options) error {
	rec, err := r.Recipe()
	if err != nil {
		return err
	}
	if o.Questions == "" || o.Rollouts == "" || o.Judged == "" {
		return fail.New(fail.Usage, "curate", "", "--questions, --rollouts and --judged are needed")
	}
	d, err := r.Dataset(job.Spec{Dir: o.Out, Schema: corpus.Questions, Version: corpus.QuestionsVersion, Ext: "parquet", Single: true,
		Inputs: map[string]string{"questions": o.Questions, "rollouts": o.Rollouts, "judged": o.Judged},
		Params: struct {
			Curate recipe.Curate     `json:"curate"`
			Seed   uint64            `json:"seed"`
			Tools  map[string]search `json:"tools"`
		}{rec.Curate, rec.Seed, kinds(rec.Tools)}})
	if err != nil || d.Complete() || d.DryRun() {
		return err
	}
	var report *Report
	if err := d.Each(func(sh *job.Shard) (err error) {
		report, err = write(ctx, r, sh, rec, o)
		return err
	}); err != nil {
		return err
	}
	if err := d.Seal(map[string]any{"seed": rec.Seed, "target": map[string]int{"free": rec.Curate.Free, "required": rec.Curate.Required}}); err != nil {
		return err
	}
	if report != nil {
		r.Result(report)
		if !r.JSON {
			report.print(r.Out)
		}
	}
	return nil
}

// tries counts the rollouts of every question.
func tries(ctx context.Context, o Options, of map[string]search) (map[string]*count, error) {
	type verdict struct{ correct, counts bool }
	verdicts := map[string]verdict{}
	for j, err := range trajectory.Judgements(o.Judged) {
		if err != nil {
			return nil, err
		}
		counts := j.Status != trajectory.Failed && j.Verdict != trajectory.Unparsable && j.Verdict != trajectory.JudgeError
		verdicts[j.ID] = verdict{j.Correct, counts}
	}
	out := map[string]*count{}
	for row, err := range trajectory.Rollouts(o.Rollouts) {
		if err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, fail.Wrap(fail.Interrupted, "curate", o.Rollouts, err)
		}
		v, ok := verdicts[row.ID]
		if !ok {
			return nil, &fail.Error{Kind: fail.BadInput, Op: "join rollouts and verdicts", Path: o.Judged, Sample: row.ID,
				Err: errors.New("no verdict for this trajectory"), Hint: "judge the rollouts in " + o.Rollouts + " again"}
		}
		c := out[row.Question]
		if c == nil {
			c = new(count)
			out[row.Question] = c
		}
		if c.trial.Policy == "" {
			c.trial.Policy = row.Policy
		}
		if !v.counts {
			continue
		}
		found, asked := searched(row.Turns, of)
		c.add(v.correct, found, asked)
	}
	return out, nil
}

// write labels all questions, draws, and writes the part with its side files.
func write(ctx context.Context, r *job.Run, sh *job.Shard, rec *recipe.Recipe, o Options) (*Report, error) {
	counts, err := tries(ctx, o, kinds(rec.Tools))
	if err != nil {
		return nil, err
	}
	all, err := label(o.Questions, counts, rec.Curate)
	if err != nil {
		return nil, err
	}
	c := rec.Curate
	var sides [2][]*corpus.Tried // free, required
	for _, q := range all {
		if q.why == nil {
			sides[bit(q.Trial.Need != corpus.NeedNone)] = append(sides[bit(q.Trial.Need != corpus.NeedNone)], &q.Tried)
		}
	}
	free, required := targets(c, len(sides[0]), len(sides[1]))
	drawn := draw(sides[0], free, c.Strata(), rec.Seed)
	for id := range draw(sides[1], required, c.Strata(), rec.Seed) {
		drawn[id] = true
	}
	if len(drawn) == 0 {
		return nil, fail.WithHint(fail.New(fail.BadInput, "curate", o.Rollouts, "no question can be drawn: %d are search-free, %d need a search, %d are neither",
			len(sides[0]), len(sides[1]), len(all)-len(sides[0])-len(sides[1])), "play more questions, or change curate.free and curate.required")
	}
	from, err := corpus.OpenImages(o.Questions, o.Images...)
	if err != nil {
		return nil, err
	}
	store, err := corpus.OpenImages(o.Out)
	if err != nil {
		return nil, err
	}
	part, err := sh.Part()
	if err != nil {
		return nil, err
	}
	extra, err := sh.Extra(TrialsFile)
	if err != nil {
		return nil, err
	}
	lines, out := json.NewEncoder(extra), table.NewWriter[corpus.Tried](part)
	report := newReport(c)
	for i, q := range all {
		if q.why == nil && !drawn[q.ID] {
			q.why = errSurplus
		}
		report.add(q)
		if q.why != nil {
			sh.Reject(o.Questions, int64(i+1), q.ID, q.why)
		} else if err := errors.Join(q.Move(store, from), out.Write(q.Tried)); err != nil {
			return nil, err
		}
		if err := lines.Encode(lineOf(q)); err != nil {
			return nil, fail.Wrap(fail.Disk, "write trials", o.Out, err)
		}
	}
	if err := errors.Join(out.Close(), store.Sync()); err != nil {
		return nil, fail.Wrap(fail.Disk, "write questions", o.Out, err)
	}
	report.finish()
	side, err := sh.Extra(ReportFile)
	if err == nil {
		enc := json.NewEncoder(side)
		enc.SetIndent("", "  ")
		err = enc.Encode(report)
	}
	if err != nil {
		return nil, fail.Wrap(fail.Disk, "write report", o.Out, err)
	}
	return report, sh.Commit(out.Rows(), manifest.Counts{In: int64(len(all)), OK: out.Rows()})
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// labelled is a question with its trial, and why it cannot be drawn.
type labelled struct {
	corpus.Tried
	why error
}

// label reads the questions and gives each its trial.
func label(dir string, counts map[string]*count, c recipe.Curate) ([]*labelled, error) {
	m, err := manifest.Open(dir)
	if err == nil {
		err = m.Require(dir, corpus.Questions, corpus.QuestionsVersion)
	}
	if err != nil {
		return nil, err
	}
	var all []*labelled
	known := 0
	for q, err := range table.ReadDataset[corpus.Question](dir) {
		if err != nil {
			return nil, err
		}
		l := &labelled{Tried: corpus.Tried{Question: q, Trial: &corpus.Trial{Need: corpus.NeedUnknown}}, why: errUntried}
		all = append(all, l)
		n := counts[q.ID]
		if n == nil {
			continue
		}
		known++
		t := n.label(c.MinFree)
		switch l.Trial, l.why = &t, nil; {
		case t.Rollouts == 0:
			l.why = errUntried
		case int(t.Rollouts) < c.Rollouts:
			l.why = fmt.Errorf("%w: %d of %d", errFew, t.Rollouts, c.Rollouts)
		case t.Correct == 0:
			l.why = errUnsolved
		case t.Need == corpus.NeedUnknown:
			l.why = errGuess
		}
	}
	if known < len(counts) {
		return nil, fail.WithHint(fail.New(fail.BadInput, "curate", dir, "the rollouts are of %d questions, %d of them are not here", len(counts), len(counts)-known),
			"give the questions that were played")
	}
	return all, nil
}
