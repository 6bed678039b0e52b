// Package card describes a set of questions for people: where it came from, what
// was refused and why, how it is distributed, a sample with images, licences; and
// makes the page on which a person looks a sample through. Finished datasets go in,
// self-contained HTML pages come out, and the figures as JSON. It changes no dataset.
// See docs/card.md.
package card

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"searchloop/corpus"
	"searchloop/corpus/stats"
	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/picture"
	"searchloop/internal/table"
	"searchloop/rollout/trajectory"
	"searchloop/synth/ask"
	"searchloop/synth/vqa"
)

// Options say what is described.
type Options struct {
	In       string   // questions dataset
	Images   []string // its image stores, beside images/ in it
	Out      string   // page of the card; figures go beside it as .json
	Lessons  string   // trajectories that were chosen from rollouts of the questions
	Labels   string   // what a person said: the file that the labelling page saves
	Page     string   // labelling page to make
	Judged   string   // with Rollouts: the labelling page is about these answers
	Rollouts string
	N        int // sample
	Seed     uint64
}

// Count is how many rows have a value.
type Count struct {
	Name string `json:"name"`
	N    int64  `json:"n"`
}

// Table is one distribution.
type Table struct {
	Name string  `json:"name"`
	Rows []Count `json:"rows"`
}

// Figures are what the card shows.
type Figures struct {
	Dataset   string           `json:"dataset"`
	Digest    string           `json:"digest"`
	Counts    manifest.Counts  `json:"counts"`
	Usage     *manifest.Usage  `json:"usage,omitempty"`
	Program   string           `json:"program"`
	Inputs    []manifest.Input `json:"inputs"`
	Params    json.RawMessage  `json:"params,omitempty"`
	Questions int64            `json:"questions"`
	Images    int64            `json:"images"` // distinct
	Funnel    *vqa.Funnel      `json:"funnel,omitempty"`
	Refused   []Count          `json:"refused"` // by reason
	Lessons   *Lessons         `json:"lessons,omitempty"`
	Tables    []Table          `json:"tables"`
	Labels    *Labels          `json:"labels,omitempty"`
}

// Lessons are the trajectories that were made of the questions.
type Lessons struct {
	Played  int64           `json:"played"`
	Chosen  int64           `json:"chosen"`
	Refused []Count         `json:"refused"` // by reason
	Usage   *manifest.Usage `json:"usage,omitempty"`
}

// row is what the card reads of a question; columns that a set lacks are nil.
type row struct {
	ID       string             `parquet:"id"`
	Text     string             `parquet:"question"`
	Answers  []string           `parquet:"answers,list"`
	ImageIDs []string           `parquet:"image_ids,list"`
	Images   []corpus.ImageCell `parquet:"images,list"`
	Split    string             `parquet:"split,dict"`
	Category string             `parquet:"category,dict"`
	Source   string             `parquet:"data_source,dict"`
	Trial    *corpus.Trial      `parquet:"trial,optional"`
	Synth    *vqa.Origin        `parquet:"synth,optional"`
}

// Write makes the pages that o asks for.
func Write(ctx context.Context, r *job.Run, o Options) error {
	const op = "make a data card"
	switch {
	case o.Out == "" && o.Page == "":
		return fail.New(fail.Usage, op, "", "--out or --page is needed")
	case o.N < 1:
		return fail.New(fail.Usage, op, "", "a sample of %d", o.N)
	case o.Rollouts != "" || o.Judged != "":
		if o.Rollouts == "" || o.Judged == "" || o.Page == "" || o.Out != "" {
			return fail.New(fail.Usage, op, "", "--rollouts, --judged and --page belong together, without --out")
		}
		return answersPage(ctx, o)
	case o.In == "":
		return fail.New(fail.Usage, op, "", "--in is needed")
	}
	m, err := manifest.Open(o.In)
	if err == nil {
		err = m.Require(o.In, corpus.Questions, corpus.QuestionsVersion)
	}
	if err != nil {
		return err
	}
	f := &Figures{Dataset: o.In, Digest: m.Digest(), Counts: m.Counts, Usage: m.Usage, Program: m.Program, Inputs: m.Inputs, Params: m.Params}
	sample, err := f.collect(ctx, o)
	if err != nil {
		return err
	}
	if err := f.refusals(o.In, m); err != nil {
		return err
	}
	if o.Lessons != "" {
		if f.Lessons, err = readLessons(o.Lessons); err != nil {
			return err
		}
	}
	store, err := corpus.OpenImages(o.In, o.Images...)
	if err != nil {
		return err
	}
	if o.Page != "" {
		if err := questionsPage(o, f, sample, store); err != nil {
			return err
		}
	}
	if o.Labels != "" {
		if f.Labels, err = readLabels(o, m); err != nil {
			return err
		}
	}
	r.Result(f)
	if o.Out == "" {
		return nil
	}
	html, err := f.page(sample, store)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return fail.Wrap(fail.Bug, op, o.Out, err)
	}
	if err := atomicfile.WriteFile(o.Out, html); err != nil {
		return err
	}
	return atomicfile.WriteFile(strings.TrimSuffix(o.Out, filepath.Ext(o.Out))+".json", append(text, '\n'))
}

type tally map[string]int64

func (t tally) table(name string) (Table, bool) {
	out := Table{Name: name}
	for _, k := range slices.Sorted(maps.Keys(t)) {
		out.Rows = append(out.Rows, Count{k, t[k]})
	}
	slices.SortStableFunc(out.Rows, func(a, b Count) int { return cmp.Compare(b.N, a.N) })
	return out, len(out.Rows) > 0 && (len(out.Rows) > 1 || out.Rows[0].Name != "")
}

// collect counts, and takes the sample: the n questions with the smallest hash of
// seed and id.
func (f *Figures) collect(ctx context.Context, o Options) ([]row, error) {
	names := []string{"need", "pass rate", "kind", "type", "category", "split", "source", "licence", "answer words", "question words", "images a question", "model"}
	tallies := map[string]tally{}
	for _, n := range names {
		tallies[n] = tally{}
	}
	images := map[string]bool{}
	pick := newPick[row](o.N, o.Seed)
	for q, err := range table.ReadDataset[row](o.In) {
		if err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, fail.Wrap(fail.Interrupted, "make a data card", o.In, err)
		}
		f.Questions++
		pick.add(q.ID, q)
		tallies["category"][q.Category]++
		tallies["split"][q.Split]++
		tallies["images a question"][fmt.Sprint(len(q.ImageIDs))]++
		tallies["question words"][bucket(len(strings.Fields(q.Text)))]++
		if len(q.Answers) > 0 {
			tallies["answer words"][bucket(len(strings.Fields(q.Answers[0])))]++
		}
		for _, id := range q.ImageIDs {
			images[id] = true
		}
		source := q.Source
		if t := q.Trial; t != nil {
			tallies["need"][t.Need]++
			tallies["pass rate"][fmt.Sprintf("%3.0f %%", 100*t.PassRate)]++
		}
		if s := q.Synth; s != nil {
			tallies["kind"][s.Kind]++
			tallies["type"][s.Type]++
			tallies["licence"][cmp.Or(s.Licence, "unknown")]++
			source = cmp.Or(s.Source, source)
			for _, made := range s.Made {
				tallies["model"][made.Model]++
			}
		}
		tallies["source"][source]++
	}
	f.Images = int64(len(images))
	for _, n := range names {
		if t, ok := tallies[n].table(n); ok {
			f.Tables = append(f.Tables, t)
		}
	}
	return pick.sorted(), nil
}

// bucket is a range of word counts.
func bucket(n int) string {
	switch {
	case n <= 3:
		return fmt.Sprint(n)
	case n <= 8:
		return "4 to 8"
	case n <= 15:
		return "9 to 15"
	case n <= 30:
		return "16 to 30"
	}
	return "more than 30"
}

// refusals reads why rows are not in the set: the funnel of synth, or the rejects.
func (f *Figures) refusals(dir string, m *manifest.Manifest) error {
	if _, ok := m.Side(vqa.FunnelFile); ok {
		path := filepath.Join(dir, vqa.FunnelFile)
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &f.Funnel)
		}
		if err != nil {
			return fail.Wrap(fail.BadInput, "read funnel", path, err)
		}
		for _, x := range f.Funnel.Refused {
			f.Refused = append(f.Refused, Count{x.Stage + ": " + x.Reason, int64(x.N)})
		}
		return nil
	}
	var err error
	f.Refused, err = rejected(dir, m)
	return err
}

// readLessons counts what became of rollouts.
func readLessons(dir string) (*Lessons, error) {
	m, err := manifest.Open(dir)
	if err == nil {
		err = m.Require(dir, trajectory.RolloutsSchema, trajectory.Version)
	}
	if err != nil {
		return nil, err
	}
	l := &Lessons{Played: m.Counts.In, Chosen: m.Counts.OK, Usage: m.Usage}
	l.Refused, err = rejected(dir, m)
	return l, err
}

// rejected counts the rejects of a dataset by reason.
func rejected(dir string, m *manifest.Manifest) ([]Count, error) {
	why := tally{}
	for _, p := range m.Parts {
		if !p.Side || !strings.HasPrefix(p.Name, "rejects-") {
			continue
		}
		path := filepath.Join(dir, p.Name)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fail.Wrap(fail.BadInput, "read rejects", path, err)
		}
		d := json.NewDecoder(bytes.NewReader(text))
		for n := int64(1); d.More(); n++ {
			var x job.Rejected
			if err := d.Decode(&x); err != nil {
				return nil, &fail.Error{Kind: fail.BadInput, Op: "read rejects", Path: path, Row: n, Err: err}
			}
			why[reasonOf(x.Reason)]++
		}
	}
	t, _ := why.table("")
	return t.Rows, nil
}

// reasonOf takes what is of one row alone off a reason: numbers, and what follows
// the last colon of a long one.
func reasonOf(s string) string {
	if a, b, ok := strings.Cut(s, ": "); ok && (len(b) > 60 || strings.ContainsAny(b, "0123456789")) {
		return a
	}
	return s
}

//go:embed view/card.html
var cardHTML string

//go:embed view/label.html
var labelHTML string

//go:embed view/style.css
var styleCSS string

var pages = template.Must(template.Must(template.New("card").Funcs(template.FuncMap{
	"percent": stats.Percent,
	"share":   func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) },
	"f2":      func(v float64) string { return fmt.Sprintf("%.2f", v) },
	"usd":     func(v float64) string { return fmt.Sprintf("$%.4f", v) },
	"int":     func(n int) int64 { return int64(n) },
	"total": func(rows []Count) (n int64) {
		for _, r := range rows {
			n += r.N
		}
		return n
	},
}).Parse(cardHTML)).New("label").Parse(labelHTML))

// shown is a question of the sample.
type shown struct {
	row
	Pictures []template.URL
	Cost     float64
	Models   []ask.Made
}

func show(q row, store *corpus.ImageStore, pixels int) shown {
	s := shown{row: q}
	for i, id := range q.ImageIDs {
		data := []byte(nil)
		if i < len(q.Images) {
			data = q.Images[i].Bytes
		}
		if u := thumbnail(id, data, store, pixels); u != "" {
			s.Pictures = append(s.Pictures, u)
		}
	}
	if q.Synth != nil {
		s.Models = q.Synth.Made
		for _, m := range q.Synth.Made {
			s.Cost += m.Cost
		}
	}
	return s
}

// thumbnail is a small copy of an image; "" when it cannot be shown.
func thumbnail(id string, data []byte, store *corpus.ImageStore, pixels int) template.URL {
	if data == nil {
		data, _ = store.Get(id)
	}
	p, err := picture.Decode(data)
	if err != nil {
		return ""
	}
	if p.W*p.H > pixels {
		h, w := p.H, p.W
		for h*w > pixels {
			h, w = max(h*9/10, 1), max(w*9/10, 1)
		}
		p = p.Resize(h, w)
	}
	jpeg, err := p.JPEG(80)
	if err != nil {
		return ""
	}
	return template.URL("data:image/jpeg;base64," + base64.StdEncoding.EncodeToString(jpeg))
}

func (f *Figures) page(sample []row, store *corpus.ImageStore) ([]byte, error) {
	v := struct {
		*Figures
		Style  template.CSS
		Sample []shown
	}{Figures: f, Style: template.CSS(stats.Style + styleCSS)}
	for _, q := range sample {
		v.Sample = append(v.Sample, show(q, store, 160*120))
	}
	var out bytes.Buffer
	if err := pages.ExecuteTemplate(&out, "card", v); err != nil {
		return nil, fail.Wrap(fail.Bug, "make a data card", f.Dataset, err)
	}
	return out.Bytes(), nil
}
