// Package lesson chooses trajectories to learn from: the best right one of every
// question, or all right ones, within limits of length and repetition, no two the
// same. Rollouts and judgements go in; the chosen rows come out as a rollouts
// dataset, and beside it as conversations in the forms of ShareGPT and ms-swift.
// It plays nothing and trains nothing. See docs/curate.md.
package lesson

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
	"searchloop/internal/table"
	"searchloop/rollout/tool"
	"searchloop/rollout/trajectory"
)

// Options say what is chosen from.
type Options struct {
	Rollouts string
	Judged   string
	Images   []string // image stores, beside images/ in the rollouts
	Out      string
}

// Prefixes of the side parts.
const (
	ShareGPT = "sharegpt"
	Swift    = "ms-swift"
)

// Run makes the dataset that o describes.
func Run(ctx context.Context, r *job.Run, o Options) error {
	rec, err := r.Recipe()
	if err != nil {
		return err
	}
	if o.Rollouts == "" || o.Judged == "" {
		return fail.New(fail.Usage, "choose lessons", "", "--rollouts and --judged are needed")
	}
	tools, err := tool.Functions(rec)
	if err != nil {
		return err
	}
	d, err := r.Dataset(job.Spec{Dir: o.Out, Schema: trajectory.RolloutsSchema, Version: trajectory.Version, Ext: "parquet",
		Inputs: map[string]string{"rollouts": o.Rollouts, "judged": o.Judged},
		Params: struct {
			Lessons recipe.Lessons  `json:"lessons"`
			Tools   json.RawMessage `json:"tools,omitempty"`
		}{rec.Lessons, tools}})
	if err != nil || d.Complete() || d.DryRun() {
		return err
	}
	w := &work{r: r, o: o, rule: rec.Lessons, tools: tools, sum: Summary{Refused: map[string]int{}}}
	if w.verdicts, err = readVerdicts(o.Judged); err != nil {
		return err
	}
	if w.from, err = corpus.OpenImages(o.Rollouts, o.Images...); err != nil {
		return err
	}
	if w.store, err = corpus.OpenImages(o.Out); err != nil {
		return err
	}
	if err := d.Each(func(sh *job.Shard) error { return w.shard(ctx, sh) }); err != nil {
		return err
	}
	if err := d.Seal(map[string]any{"lessons": rec.Lessons}); err != nil {
		return err
	}
	if w.sum.Rows > 0 {
		r.Result(w.sum)
	}
	return nil
}

// Summary is what a run chose, over the shards that it made.
type Summary struct {
	Rows      int            `json:"rows"`
	Chosen    int            `json:"chosen"`
	Questions int            `json:"questions"` // of the chosen
	Refused   map[string]int `json:"refused"`   // by reason
	NoForm    int            `json:"no_form"`   // chosen, but not expressible as a conversation
}

type work struct {
	r           *job.Run
	o           Options
	rule        recipe.Lessons
	tools       json.RawMessage
	verdicts    map[string]verdict
	store, from *corpus.ImageStore
	sum         Summary
}

// verdict is what choosing needs of a judgement.
type verdict struct {
	correct, scored bool
	reward          float64
}

func readVerdicts(dir string) (map[string]verdict, error) {
	out := map[string]verdict{}
	for j, err := range trajectory.Judgements(dir) {
		if err != nil {
			return nil, err
		}
		out[j.ID] = verdict{j.Correct, j.Scored, j.Reward}
	}
	return out, nil
}

// shard chooses among the questions that the shard owns, and writes: once over the
// rows to choose, once more to write them.
func (w *work) shard(ctx context.Context, sh *job.Shard) error {
	c := newChooser(w.rule)
	n := int64(0)
	for row, err := range trajectory.Rollouts(w.o.Rollouts) {
		if err != nil {
			return err
		}
		if err := errors.Join(ctx.Err(), w.r.Interrupted()); err != nil {
			return fail.Wrap(fail.Interrupted, "choose lessons", w.o.Rollouts, err)
		}
		n++
		if !sh.Shard.Owns(row.Question) {
			continue
		}
		v, ok := w.verdicts[row.ID]
		if !ok {
			return &fail.Error{Kind: fail.BadInput, Op: "join rollouts and verdicts", Path: w.o.Judged, Row: n, Sample: row.ID,
				Err: errors.New("no verdict for this trajectory"), Hint: "judge the rollouts in " + w.o.Rollouts + " again"}
		}
		c.look(&row, v)
	}
	c.choose()
	return w.write(ctx, sh, c)
}

func (w *work) write(ctx context.Context, sh *job.Shard, c *chooser) error {
	part, err := sh.Part()
	if err != nil {
		return err
	}
	var forms []form
	for _, name := range []string{ShareGPT, Swift} {
		to, err := sh.Extra(sh.Shard.Name(name, "jsonl"))
		if err != nil {
			return err
		}
		forms = append(forms, form{name, lines(to)})
	}
	out := table.NewWriter[trajectory.Row](part)
	in, n := int64(0), int64(0)
	questions := map[string]bool{}
	for row, err := range trajectory.Rollouts(w.o.Rollouts) {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fail.Wrap(fail.Interrupted, "write lessons", w.o.Out, err)
		}
		n++
		if !sh.Shard.Owns(row.Question) {
			continue
		}
		in++
		if why := c.why[row.ID]; why != "" {
			reason, _, _ := strings.Cut(why, ":") // the rest is details
			w.sum.Refused[reason]++
			sh.Reject(w.o.Rollouts, n, row.ID, errors.New(why))
			continue
		}
		questions[row.Question] = true
		cells, err := w.share(&row)
		if err != nil {
			return err
		}
		if err := out.Write(row); err != nil {
			return fail.Wrap(fail.Disk, "write lessons", w.o.Out, err)
		}
		if why := unsayable(&row); why != "" {
			w.sum.NoForm++
			w.r.Log.Warn("no conversation for a chosen row: "+why, "row", row.ID)
			continue
		}
		for _, f := range forms {
			if err := f.write(&row, cells, w.tools); err != nil {
				return fail.Wrap(fail.Disk, "write lessons", w.o.Out, err)
			}
		}
	}
	if err := errors.Join(out.Close(), w.store.Sync()); err != nil {
		return fail.Wrap(fail.Disk, "write lessons", w.o.Out, err)
	}
	w.sum.Rows += int(in)
	w.sum.Chosen += int(out.Rows())
	w.sum.Questions += len(questions)
	return sh.Commit(out.Rows(), manifest.Counts{In: in, OK: out.Rows()})
}

// share puts the images of a row into the dataset's store; cells are their paths
// below it.
func (w *work) share(row *trajectory.Row) (map[string]string, error) {
	cells := map[string]string{}
	for i := range row.Turns {
		for _, id := range row.Turns[i].Images {
			if cells[id] != "" {
				continue
			}
			cell, err := w.store.Share(w.from, id)
			if err != nil {
				return nil, fail.Wrap(fail.BadInput, "share the images of a row", row.ID, err)
			}
			cells[id] = "images/" + cell
		}
	}
	return cells, nil
}

func lines(to io.Writer) *json.Encoder {
	e := json.NewEncoder(to)
	e.SetEscapeHTML(false)
	return e
}
