package report

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"searchloop/corpus"
	"searchloop/eval"
	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/job"
)

//go:embed view/page.html
var pageHTML string

//go:embed view/style.css
var styleCSS string

//go:embed view/script.js
var scriptJS string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"percent": func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) },
	"number":  func(v float64) string { return fmt.Sprintf("%.3g", v) },
	"join":    strings.Join,
}).Parse(pageHTML))

// Options of Write.
type Options struct {
	Run     string   // folder of the run
	Bench   string   // benchmark whose evaluations are shown
	Out     string   // the page
	Images  []string // image stores; beside those found in the run and data folders
	Summary string   // file for the summary, "" for none
	Seconds float64  // what the loop took, for the summary; 0 when not known
}

// Write makes the page and prints the table of epochs.
func Write(ctx context.Context, r *job.Run, o Options) error {
	samples := 200
	if rec, err := r.Recipe(); err == nil {
		samples = rec.Eval.Samples
	}
	epochs, err := Collect(o.Run, o.Bench, samples)
	if err != nil {
		return err
	}
	store, err := corpus.OpenStore(append(o.Images, stores(o.Run)...)...)
	if err != nil {
		return err
	}
	v, err := view(o, epochs, store)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := page.Execute(&b, v); err != nil {
		return fail.Wrap(fail.Bug, "write the report", o.Out, err)
	}
	if err := atomicfile.WriteFile(o.Out, b.Bytes()); err != nil {
		return err
	}
	s := summarize(o, epochs)
	if o.Summary != "" {
		s.Seconds = keepSeconds(o.Summary, s)
		text, err := json.MarshalIndent(s, "", "  ")
		if err != nil {
			return err
		}
		if err := atomicfile.WriteFile(o.Summary, append(text, '\n')); err != nil {
			return err
		}
	}
	r.Result(s)
	if !r.JSON {
		printTable(r.Out, epochs, o)
	}
	return nil
}

// stores finds the image stores of a run: those of its rollouts, and those of
// questions, lens caches and corpora beside it.
func stores(run string) []string {
	var out []string
	for _, root := range []string{run, filepath.Join(filepath.Dir(filepath.Dir(filepath.Clean(run))), "data")} {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && d.Name() == "images" && !isStage(path) {
				out = append(out, path)
				return fs.SkipDir
			}
			return nil
		})
	}
	return out
}

// isStage tells a corpus's stage folder named images from an image store: it
// holds datasets.
func isStage(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "passages"))
	return err == nil
}

// The page's data.
type pageView struct {
	Title       string
	Style       template.CSS
	Script      template.JS
	Bench       string
	First, Last *eval.Metrics
	Rewards     []Epoch
	Figures     []template.HTML
	Categories  []categoryRow
	Epochs      []Epoch
	Samples     []sampleView
	Images      template.JS
}

type categoryRow struct {
	Name  string
	N     int
	Cells []categoryCell
}

type categoryCell struct{ Accuracy, Searched string }

type sampleView struct {
	ID, Question, Category, Text, Answer, Verdict, By, Reply, Status, Why string
	Epoch                                                                 int
	Truth                                                                 []string
	Correct, Scored                                                       bool
	Reward                                                                float64
	Components                                                            []componentView
	Turns                                                                 []turnView
	Searches                                                              int
	Flipped                                                               bool // right in the last epoch, wrong in the first, or the other way round
}

type componentView struct {
	Name          string
	Value, Weight float64
}

type turnView struct {
	Role, Text, Call, Args, Error string
	Images                        []string
	Tokens                        int32
	Finish                        string
}

func view(o Options, epochs []Epoch, store *corpus.ImageStore) (*pageView, error) {
	figs, err := figures(epochs)
	if err != nil {
		return nil, err
	}
	v := &pageView{Title: filepath.Base(filepath.Clean(o.Run)), Style: template.CSS(styleCSS), Script: template.JS(scriptJS), Bench: o.Bench, Figures: figs, Epochs: epochs}
	images := map[string]string{}
	outcome := map[string][]bool{} // by trajectory id, over epochs
	for _, e := range epochs {
		if e.Eval == nil {
			continue
		}
		if v.First == nil {
			v.First = e.Eval
		}
		v.Last = e.Eval
		for _, p := range e.samples {
			v.Samples = append(v.Samples, showSample(e.N, p))
			outcome[p.row.ID] = append(outcome[p.row.ID], p.judged.Correct)
			for _, t := range p.row.Turns {
				for _, sha := range t.Images {
					if images[sha] == "" {
						images[sha] = dataURL(store, sha)
					}
				}
			}
		}
	}
	for i := range v.Samples {
		seen := outcome[v.Samples[i].ID]
		v.Samples[i].Flipped = seen[0] != seen[len(seen)-1]
	}
	v.Categories = categories(epochs)
	text, err := json.Marshal(images) // json escapes <, > and &, so it is safe inside a script element
	if err != nil {
		return nil, err
	}
	v.Images = template.JS(text)
	return v, nil
}

func showSample(epoch int, p played) sampleView {
	s := sampleView{
		ID: p.row.ID, Question: p.row.Question, Category: p.row.Category, Text: p.row.Text, Answer: p.row.Answer, Truth: p.row.Answers,
		Verdict: p.judged.Verdict, By: p.judged.By, Reply: p.judged.Reply, Status: p.row.Status, Why: p.row.Why, Epoch: epoch,
		Correct: p.judged.Correct, Scored: p.judged.Scored, Reward: p.judged.Reward,
	}
	for _, c := range p.judged.Components {
		s.Components = append(s.Components, componentView{c.Name, c.Value, c.Weight})
	}
	for _, t := range p.row.Turns {
		if t.Role == "tool" || t.Observation() && t.Call != "" {
			s.Searches++
		}
		s.Turns = append(s.Turns, turnView{t.Role, t.Text, t.Call, t.Args, t.Error, t.Images, t.Tokens, t.Finish})
	}
	return s
}

// categories lays accuracy out by category and epoch.
func categories(epochs []Epoch) []categoryRow {
	rows := map[string]*categoryRow{}
	for _, e := range epochs {
		if e.Eval == nil {
			continue
		}
		for name, g := range e.Eval.ByCategory {
			if rows[name] == nil {
				rows[name] = &categoryRow{Name: name}
			}
			rows[name].N = g.N
		}
	}
	var out []categoryRow
	for name, row := range rows {
		for _, e := range epochs {
			if e.Eval == nil {
				continue
			}
			cell := categoryCell{"–", ""}
			if g, ok := e.Eval.ByCategory[name]; ok {
				cell = categoryCell{fmt.Sprintf("%.1f %%", 100*g.Accuracy), fmt.Sprintf("searched %.0f %%", 100*g.SearchRatio)}
			}
			row.Cells = append(row.Cells, cell)
		}
		out = append(out, *row)
	}
	slices.SortFunc(out, func(a, b categoryRow) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// dataURL is an image of the store as a data URL; "" when no store has it, which
// the page says in its place.
func dataURL(store *corpus.ImageStore, sha string) string {
	data, err := store.Get(sha)
	if err != nil {
		return ""
	}
	kind := http.DetectContentType(data)
	if !strings.HasPrefix(kind, "image/") {
		return ""
	}
	return "data:" + kind + ";base64," + base64.StdEncoding.EncodeToString(data)
}
