package vqa

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/table"
	"searchloop/synth/leak"
)

// compare refuses questions that are one over again: of the set, or a held-out one.
func (m *maker) compare(items []item, done map[string]*Outcome) error {
	held, err := heldOut(m.o.Against, m.s.NearText)
	if err != nil {
		return err
	}
	own := leak.New(leak.Rule{Text: m.s.NearText})
	prints := map[string]*leak.Print{} // kinds of a concept share a picture
	for _, it := range items {
		out := done[it.key]
		if out == nil || out.Stage != StageKept {
			continue
		}
		q := leak.Question{ID: out.Row.ID, Text: out.Row.Text, Answer: out.Row.Answers[0]}
		for _, sha := range out.Row.ImageIDs {
			if prints[sha] == nil {
				data, err := m.store.Get(sha)
				if err != nil {
					return err
				}
				if prints[sha], err = leak.PrintOf(data); err != nil {
					return err
				}
			}
			q.Pictures = append(q.Pictures, prints[sha])
		}
		if f, ok := own.Look(q); ok {
			out.refuse(StageNew, "the same as another", fmt.Sprintf("%s (%s, %.2f)", f.ID, f.Kind, f.Score))
			continue
		}
		if f, ok := held.Look(q); ok {
			out.refuse(StageUnleaked, "the same as a held-out one: "+f.Kind, fmt.Sprintf("%s (%.2f)", f.ID, f.Score))
			continue
		}
		own.Add(q)
	}
	return nil
}

// heldOut reads the questions that must stay unseen, with their pictures.
func heldOut(dirs []string, text float64) (*leak.Index, error) {
	x := leak.New(leak.Rule{Text: text, Picture: true})
	for _, dir := range dirs {
		m, err := manifest.Open(dir)
		if err == nil {
			err = m.Require(dir, corpus.Questions, corpus.QuestionsVersion)
		}
		if err != nil {
			return nil, err
		}
		store, err := corpus.OpenImages(dir)
		if err != nil {
			return nil, err
		}
		prints := map[string]*leak.Print{}
		for q, err := range table.ReadDataset[corpus.Question](dir) {
			if err != nil {
				return nil, err
			}
			k := leak.Question{ID: q.ID, Text: q.Text}
			if len(q.Answers) > 0 {
				k.Answer = q.Answers[0]
			}
			for i, sha := range q.ImageIDs {
				if prints[sha] == nil {
					data := []byte(nil)
					if i < len(q.Images) {
						data = q.Images[i].Bytes
					}
					if data == nil {
						data, err = store.Get(sha)
					}
					if err == nil {
						prints[sha], err = leak.PrintOf(data)
					}
					if err != nil {
						return nil, &fail.Error{Kind: fail.BadInput, Op: "read held-out questions", Path: dir, Sample: q.ID, Err: err, Hint: "without its pictures a leak would pass unseen"}
					}
				}
				k.Pictures = append(k.Pictures, prints[sha])
			}
			x.Add(k)
		}
	}
	return x, nil
}

// write writes the kept questions, and beside them what became of all.
func (m *maker) write(sh *job.Shard, items []item, done map[string]*Outcome, reused int64) (*Funnel, error) {
	part, err := sh.Part()
	if err != nil {
		return nil, err
	}
	extra, err := sh.Extra(OutcomesFile)
	if err != nil {
		return nil, err
	}
	out, lines := table.NewWriter[Row](part), json.NewEncoder(extra)
	lines.SetEscapeHTML(false)
	var all []*Outcome
	c := manifest.Counts{In: int64(len(items)), Reused: reused}
	for i, it := range items {
		o := done[it.key]
		all = append(all, o)
		if err := lines.Encode(o); err != nil {
			return nil, fail.Wrap(fail.Disk, "write outcomes", m.o.Out, err)
		}
		if o.Stage != StageKept {
			kind := fail.BadInput
			if o.Stage == StageFailed {
				c.Failed++
				kind = fail.Service
			}
			why := o.Stage + ": " + o.Reason
			if o.Detail != "" {
				why += ": " + o.Detail
			}
			sh.Reject(m.o.Concepts, int64(i+1), it.key, fail.New(kind, "make a question", "", "%s", why))
			continue
		}
		row := *o.Row
		for _, sha := range row.ImageIDs {
			file, err := m.store.Path(sha)
			if err != nil {
				return nil, err
			}
			where := path.Join("images", sha[:2], filepath.Base(file))
			row.Images = append(row.Images, corpus.ImageCell{Path: &where})
		}
		if err := out.Write(row); err != nil {
			return nil, fail.Wrap(fail.Disk, "write questions", m.o.Out, err)
		}
	}
	if err := out.Close(); err != nil {
		return nil, fail.Wrap(fail.Disk, "write questions", m.o.Out, err)
	}
	f := funnel(all, stages(&m.s))
	if m.search != nil {
		f.Usage.Providers = m.search.Taken()
		for _, p := range f.Usage.Providers {
			f.Usage.Cost += p.Dollars
		}
	}
	side, err := sh.Extra(FunnelFile)
	if err == nil {
		enc := json.NewEncoder(side)
		enc.SetIndent("", "  ")
		err = enc.Encode(f)
	}
	if err != nil {
		return nil, fail.Wrap(fail.Disk, "write funnel", m.o.Out, err)
	}
	sh.Use(f.Usage)
	c.OK = out.Rows()
	return f, sh.Commit(out.Rows(), c)
}

// keep takes the outcomes of a finished part over into the journal, when those that
// a server broke are to be made again.
func keep(sh *job.Shard, j journaled, dir string) error {
	if sh.Previous() == "" {
		return nil
	}
	all, err := Outcomes(dir)
	if err != nil {
		return fail.WithHint(err, "start over with --fresh")
	}
	for _, o := range all {
		if _, ok := j.Get(o.Key); ok || o.Stage == StageFailed {
			continue
		}
		if o.Stage == StageNew || o.Stage == StageUnleaked { // found by comparing, which is done again
			o.refuse(StageKept, "", "")
		}
		payload, err := json.Marshal(o)
		if err != nil {
			return fail.Wrap(fail.Bug, "journal question", o.Key, err)
		}
		if err := j.Append(o.Key, payload); err != nil {
			return err
		}
	}
	return nil
}

// funnel counts outcomes by stage.
func funnel(all []*Outcome, stages []string) *Funnel {
	f := &Funnel{In: len(all), Types: map[string]int{}, Kinds: map[string]int{}}
	reasons := map[Reason]int{}
	ended := map[string]int{}
	for _, o := range all {
		f.Usage = f.Usage.Add(o.Used)
		switch o.Stage {
		case StageKept:
			f.Kept++
			f.Types[o.Row.Synth.Type]++
			f.Kinds[o.Kind]++
			continue
		case StageFailed:
			f.Failed++
		}
		ended[o.Stage]++
		reasons[Reason{Stage: o.Stage, Reason: o.Reason}]++
	}
	left := f.In - f.Failed
	for _, s := range stages {
		left -= ended[s]
		f.Passed = append(f.Passed, Step{s, left})
	}
	for r, n := range reasons {
		r.N = n
		f.Refused = append(f.Refused, r)
	}
	place := func(stage string) int {
		return slices.Index(append(slices.Clone(stages), StageFailed), stage)
	}
	slices.SortFunc(f.Refused, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(place(a.Stage), place(b.Stage)), cmp.Compare(b.N, a.N), cmp.Compare(a.Reason, b.Reason))
	})
	return f
}

// print shows the funnel on a terminal.
func (f *Funnel) print(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "in\t%d\n", f.In)
	for _, s := range f.Passed {
		fmt.Fprintf(w, "%s\t%d\t", s.Stage, s.N)
		sep := ""
		for _, r := range f.Refused {
			if r.Stage == s.Stage {
				fmt.Fprintf(w, "%s%s %d", sep, r.Reason, r.N)
				sep = ", "
			}
		}
		fmt.Fprintln(w)
	}
	if f.Failed > 0 {
		fmt.Fprintf(w, "failed\t%d\tby servers: run again with --retry-failed\n", f.Failed)
	}
	fmt.Fprintf(w, "cost\t$%.4f\t%d requests, %d tokens\n", f.Usage.Cost, f.Usage.Requests, f.Usage.PromptTokens+f.Usage.CompletionTokens)
	w.Flush()
}

// Outcomes reads the outcomes of a dataset.
func Outcomes(dir string) ([]Outcome, error) {
	path := filepath.Join(dir, OutcomesFile)
	f, err := os.Open(path)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, "read outcomes", path, err)
	}
	defer f.Close()
	var out []Outcome
	for d, n := json.NewDecoder(bufio.NewReader(f)), int64(1); ; n++ {
		var o Outcome
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, &fail.Error{Kind: fail.BadInput, Op: "read outcomes", Path: path, Row: n, Err: err}
		}
		out = append(out, o)
	}
}
