package card

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"os"
	"strings"

	"searchloop/corpus"
	"searchloop/corpus/stats"
	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/stat"
	"searchloop/internal/table"
	"searchloop/rollout/judge"
	"searchloop/rollout/trajectory"
	"searchloop/synth/vqa"
)

// task is what a person looks at on the labelling page.
type task struct {
	ID       string         `json:"id"`
	Question string         `json:"question"`
	Truth    string         `json:"truth"`
	Answer   string         `json:"answer,omitempty"` // of a trajectory
	Evidence string         `json:"evidence,omitempty"`
	Source   string         `json:"source,omitempty"`
	Pictures []template.URL `json:"pictures"`
}

// labelView is the data of the labelling page. What is asked differs: whether a
// question may go into the set, or whether an answer is right.
type labelView struct {
	Style   template.CSS
	Title   string
	Ask     string
	Digest  string
	Lines   bool // save JSON lines {id, correct}, as judge --labels reads them
	Tasks   []task
	Buttons [3]string
}

func (v labelView) write(path string) error {
	var out bytes.Buffer
	v.Style = template.CSS(stats.Style + styleCSS)
	if err := pages.ExecuteTemplate(&out, "label", v); err != nil {
		return fail.Wrap(fail.Bug, "make a labelling page", path, err)
	}
	return atomicfile.WriteFile(path, out.Bytes())
}

// questionsPage asks about the questions of a sample, and about as many as a
// quarter of it that the checker refused: only so can it be seen how far a person
// agrees with it. Which is which is not shown.
func questionsPage(o Options, f *Figures, sample []row, store *corpus.ImageStore) error {
	v := labelView{Title: o.In, Digest: f.Digest, Ask: "Is this question clear, is its answer right and the only one, and does it take the image?", Buttons: [3]string{"accept", "reject", "unsure"}}
	list := newPick[row](o.N+o.N/4, o.Seed+1)
	for _, q := range sample {
		list.add(q.ID, q)
	}
	refused := newPick[row](o.N/4, o.Seed)
	if f.Funnel != nil {
		all, err := vqa.Outcomes(o.In)
		if err != nil {
			return err
		}
		for _, x := range all {
			if x.RefusedByChecker() {
				refused.add(x.Row.ID, row{ID: x.Row.ID, Text: x.Row.Text, Answers: x.Row.Answers, ImageIDs: x.Row.ImageIDs, Synth: x.Row.Synth})
			}
		}
	}
	for _, q := range refused.sorted() {
		list.add(q.ID, q)
	}
	for _, q := range list.sorted() {
		s := show(q, store, 640*480)
		t := task{ID: q.ID, Question: q.Text, Truth: strings.Join(q.Answers, " / "), Pictures: s.Pictures}
		if q.Synth != nil {
			t.Evidence, t.Source = q.Synth.Evidence, q.Synth.PageTitle
		}
		v.Tasks = append(v.Tasks, t)
	}
	return v.write(o.Page)
}

// answersPage asks whether answers of trajectories are right: those that were
// judged, and not only by exact match.
func answersPage(ctx context.Context, o Options) error {
	judged := map[string]bool{}
	for j, err := range trajectory.Judgements(o.Judged) {
		if err != nil {
			return err
		}
		if j.Verdict == trajectory.Correct || j.Verdict == trajectory.Incorrect {
			judged[j.ID] = true
		}
	}
	m, err := manifest.Open(o.Judged)
	if err != nil {
		return err
	}
	store, err := corpus.OpenImages(o.Rollouts, o.Images...)
	if err != nil {
		return err
	}
	list := newPick[trajectory.Row](o.N, o.Seed)
	for r, err := range trajectory.Rollouts(o.Rollouts) {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fail.Wrap(fail.Interrupted, "make a labelling page", o.Rollouts, err)
		}
		if judged[r.ID] {
			r.TokenIDs, r.LossMask, r.Logprobs = nil, nil, nil
			list.add(r.ID, r)
		}
	}
	v := labelView{Title: o.Rollouts, Digest: m.Digest(), Lines: true, Ask: "Does the answer say the same as the truth?", Buttons: [3]string{"right", "wrong", "unsure"}}
	for _, r := range list.sorted() {
		t := task{ID: r.ID, Question: r.Text, Truth: strings.Join(r.Answers, " / "), Answer: r.Answer}
		for _, turn := range r.Turns {
			if turn.Role != "user" {
				continue
			}
			for _, id := range turn.Images {
				if u := thumbnail(id, nil, store, 640*480); u != "" {
					t.Pictures = append(t.Pictures, u)
				}
			}
			break
		}
		v.Tasks = append(v.Tasks, t)
	}
	if len(v.Tasks) == 0 {
		return fail.New(fail.BadInput, "make a labelling page", o.Judged, "no answer was judged")
	}
	return v.write(o.Page)
}

// Labels is what a person said of a sample.
type Labels struct {
	N          int         `json:"n"`        // accepted or rejected
	Accepted   int         `json:"accepted"` // of the questions of the set
	Of         int         `json:"of"`       // questions of the set that were looked at
	Rate       float64     `json:"rate"`     // acceptance of the set
	Low        float64     `json:"low"`      // its 95 % interval (Wilson)
	High       float64     `json:"high"`
	Unsure     int         `json:"unsure"`
	Notes      []Count     `json:"notes"` // why questions were rejected
	ByType     []Share     `json:"by_type"`
	Checker    judge.Table `json:"checker"`       // [checker][person], 1 is accepted
	CheckAgree float64     `json:"checker_agree"` // share
	Kappa      float64     `json:"checker_kappa"` // 0 when there is none
}

// Share is an acceptance rate.
type Share struct {
	Name         string `json:"name"`
	Accepted, Of int64
}

// saved is the file that the labelling page saves.
type saved struct {
	Digest string `json:"dataset"`
	Labels []struct {
		ID     string `json:"id"`
		Accept *bool  `json:"accept"` // null: unsure
		Note   string `json:"note"`
	} `json:"labels"`
}

func readLabels(o Options, m *manifest.Manifest) (*Labels, error) {
	bad := func(id string, format string, args ...any) error {
		return &fail.Error{Kind: fail.BadInput, Op: "read labels", Path: o.Labels, Sample: id, Err: fmt.Errorf(format, args...), Hint: "give the file that the labelling page of this dataset saved"}
	}
	text, err := os.ReadFile(o.Labels)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, "read labels", o.Labels, err)
	}
	var in saved
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, bad("", "%w", err)
	}
	if in.Digest != m.Digest() {
		return nil, bad("", "the labels are of another dataset, or of an older state of it")
	}
	kept, refused, err := known(o.In, m)
	if err != nil {
		return nil, err
	}
	out := &Labels{}
	notes, seen := tally{}, map[string]bool{}
	types := map[string]*Share{}
	for _, l := range in.Labels {
		kind, isKept := kept[l.ID]
		if seen[l.ID] || !isKept && !refused[l.ID] {
			return nil, bad(l.ID, "a question that is labelled twice, or not in the dataset")
		}
		seen[l.ID] = true
		if l.Accept == nil {
			out.Unsure++
			continue
		}
		out.N++
		out.Checker.Add(isKept, *l.Accept)
		if !isKept {
			continue
		}
		if types[kind] == nil {
			types[kind] = &Share{Name: kind}
		}
		out.Of++
		types[kind].Of++
		if *l.Accept {
			out.Accepted++
			types[kind].Accepted++
		} else {
			notes[strings.TrimSpace(l.Note)]++
		}
	}
	if out.N == 0 {
		return nil, bad("", "nothing is accepted or rejected")
	}
	share := stat.Interval{High: 1}
	if out.Of > 0 {
		share = stat.Wilson(out.Accepted, out.Of)
	}
	out.Rate, out.Low, out.High = share.Mean, share.Low, share.High
	t := out.Checker
	out.CheckAgree = float64(t[0][0]+t[1][1]) / float64(out.N)
	if k := t.Kappa(); k == k {
		out.Kappa = k
	}
	table, _ := notes.table("")
	out.Notes = table.Rows
	counts := tally{}
	for k, s := range types {
		counts[k] = s.Of
	}
	byType, _ := counts.table("")
	for _, c := range byType.Rows {
		out.ByType = append(out.ByType, *types[c.Name])
	}
	return out, nil
}

// known are the ids that can be labelled: those of the set with their types, and
// those that the checker refused.
func known(dir string, m *manifest.Manifest) (kept map[string]string, refused map[string]bool, err error) {
	kept, refused = map[string]string{}, map[string]bool{}
	for q, err := range table.ReadDataset[row](dir) {
		if err != nil {
			return nil, nil, err
		}
		kept[q.ID] = q.Category
	}
	if _, ok := m.Side(vqa.OutcomesFile); !ok {
		return kept, refused, nil
	}
	all, err := vqa.Outcomes(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, x := range all {
		if x.RefusedByChecker() {
			refused[x.Row.ID] = true
		}
	}
	if len(kept) == 0 {
		return nil, nil, fail.New(fail.BadInput, "read labels", dir, "the dataset has no questions")
	}
	return kept, refused, nil
}
