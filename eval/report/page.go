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
	"searchloop/eval/benchmark"
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
	"width":   func(v float64) string { return fmt.Sprintf("%.1f", 100*v) },
	"points":  func(v float64) string { return fmt.Sprintf("%+.1f", 100*v) },
}).Parse(pageHTML))

// Options of Write.
type Options struct {
	Run     string   // folder of the run
	Also    []string // folders of further runs, shown beside it
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
	own := len(epochs)
	places := append(o.Images, Stores(o.Run)...)
	for _, run := range o.Also {
		more, err := Collect(run, o.Bench, samples)
		if err != nil {
			return err
		}
		epochs, places = append(epochs, more...), append(places, Stores(run)...)
	}
	if len(places) == 0 { // texts alone
		places = []string{filepath.Join(o.Run, "images")}
	}
	slices.Sort(places)
	store, err := corpus.OpenStore(slices.Compact(places)...)
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
	s := summarize(o, epochs[:own])
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

// Stores finds the image stores of a run: those of its rollouts, and those of
// questions, lens caches and corpora beside it.
func Stores(run string) []string {
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
	Bench       *benchmark.Benchmark
	First, Last *eval.Metrics
	Took        *eval.Timings
	Figures     []template.HTML
	Categories  []categoryRow
	Epochs      []Epoch // that were evaluated
	Several     bool    // runs
	Compared    []eval.Comparison
	Shown       int // samples in the browser
	Data        *data
}

// ChunkSize is what the page's script unpacks at once.
func (v *pageView) ChunkSize() int { return chunkSize }

// Label names an epoch on the page.
func (e Epoch) Label() string { return fmt.Sprintf("%s, epoch %d", e.Run, e.N) }

type categoryRow struct {
	Name  string
	N     int
	Cells []categoryCell
}

type categoryCell struct {
	Known    bool
	Accuracy float64
	Searched float64
}

func view(o Options, epochs []Epoch, store *corpus.ImageStore) (*pageView, error) {
	figs, err := figures(epochs)
	if err != nil {
		return nil, err
	}
	v := &pageView{Title: filepath.Base(filepath.Clean(o.Run)), Style: template.CSS(styleCSS), Script: template.JS(scriptJS), Figures: figs, Several: len(o.Also) > 0}
	if v.Bench, err = benchmark.Of(o.Bench); err != nil {
		return nil, err
	}
	free := map[string]bool{}
	for _, c := range v.Bench.SearchFree {
		free[c] = true
	}
	for _, e := range epochs {
		if e.Eval == nil {
			continue
		}
		if v.First == nil && e.folder == epochs[0].folder {
			v.First = e.Eval
		}
		if e.folder == epochs[0].folder {
			v.Last, v.Took = e.Eval, e.Took
		}
		v.Epochs = append(v.Epochs, e)
		v.Shown += len(e.samples)
	}
	v.Compared = compared(v.Epochs)
	v.Categories = categories(v.Epochs)
	v.Data, err = packSamples(v.Epochs, free, store)
	return v, err
}

// resamples of the comparisons on the page.
const resamples = 2000

// compared sets the first epoch of the first run against its last, and that against
// the last one of every other run.
func compared(epochs []Epoch) (out []eval.Comparison) {
	last := map[string]Epoch{}
	var runs []string
	for _, e := range epochs {
		if _, ok := last[e.folder]; !ok {
			runs = append(runs, e.folder)
		}
		last[e.folder] = e
	}
	add := func(a, b Epoch) {
		out = append(out, eval.Compare(a.Eval, b.Eval, a.scores, b.scores, resamples, 1))
	}
	for i, run := range runs {
		if i > 0 {
			add(last[runs[0]], last[run])
		} else if epochs[0].N != last[run].N {
			add(epochs[0], last[run])
		}
	}
	return out
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
			g, ok := e.Eval.ByCategory[name]
			cell := categoryCell{ok, g.Accuracy, g.SearchRatio}
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
