package stats

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"strings"

	"github.com/go-analyze/charts"

	"searchloop/internal/fail"
)

//go:embed view/page.html
var pageHTML string

// Style is the style sheet of a page of figures: colours, cards, tables.
//
//go:embed view/style.css
var Style string

// Percent is a share as a page writes it; nothing of nothing.
func Percent(part, whole int64) string {
	if whole == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"percent": Percent,
	"mean":    func(v float64) string { return fmt.Sprintf("%.1f", v) },
	"ratio":   func(v float64) string { return fmt.Sprintf("%.2f", v) },
}).Parse(pageHTML))

// view is the page's data.
type view struct {
	*Figures
	Style   template.CSS
	Title   string
	Tables  []tableView
	Spreads []spreadView
	Figs    []template.HTML
}

type tableView struct {
	Name  string
	Total int64
	Rows  []Count
}

type spreadView struct {
	Name string
	Spread
}

// page makes one self-contained HTML page: no script, no network.
func page(f *Figures) ([]byte, error) {
	v := view{Figures: f, Style: template.CSS(Style)}
	var names []string
	for _, d := range f.Datasets {
		names = append(names, d.Path)
	}
	v.Title = strings.Join(names, ", ")
	if q := f.Questions; q != nil {
		v.Tables = append(v.Tables, tableView{"Splits", q.N, q.Splits}, tableView{"Answer kinds", q.N, q.Kinds}, tableView{"Categories", q.N, q.Categories},
			tableView{"Sources", q.N, q.Sources}, tableView{"Images a question", q.N, q.ByImages})
		v.Spreads = append(v.Spreads, spreadView{"Words of a question", q.Words}, spreadView{"Words of the answer", q.AnswerWords}, spreadView{"Accepted answers", q.Answers})
	}
	if p := f.Passages; p != nil {
		v.Spreads = append(v.Spreads, spreadView{"Words of a passage", p.Words})
	}
	if i := f.Images; i != nil && i.N > 0 {
		v.Tables = append(v.Tables, tableView{"Image formats", i.N, i.Formats})
		v.Spreads = append(v.Spreads, spreadView{"Image width", i.Width}, spreadView{"Image height", i.Height}, spreadView{"Thousand pixels", i.Pixels}, spreadView{"Image bytes", i.Bytes})
	}
	for _, s := range v.Spreads {
		svg, err := bars(s.Name, s.Bins)
		if err != nil {
			return nil, err
		}
		v.Figs = append(v.Figs, svg)
	}
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, v)
	return b.Bytes(), fail.Wrap(fail.Bug, "write the statistics", "", err)
}

// bars draws a histogram.
func bars(title string, bins []Count) (template.HTML, error) {
	if len(bins) == 0 {
		return "", nil
	}
	values, labels := make([]float64, len(bins)), make([]string, len(bins))
	for i, b := range bins {
		values[i], labels[i] = float64(b.N), b.Name
	}
	o := charts.NewBarChartOptionWithData([][]float64{values})
	o.Title.Text = title
	o.Title.FontStyle.FontSize = 12
	o.CategoryAxis.Labels = labels
	o.Padding = charts.NewBox(10, 10, 16, 8)
	o.ValueFormatter = func(v float64) string { return fmt.Sprintf("%.0f", v) }
	p := charts.NewPainter(charts.PainterOptions{OutputFormat: charts.ChartOutputSVG, Width: 520, Height: 260})
	if err := p.BarChart(o); err != nil {
		return "", fail.Wrap(fail.Bug, "draw "+title, "", err)
	}
	svg, err := p.Bytes()
	// Made by the chart library from numbers and our own names.
	return template.HTML(svg), fail.Wrap(fail.Bug, "draw "+title, "", err)
}
