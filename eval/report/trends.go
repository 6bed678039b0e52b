package report

import (
	"bytes"
	_ "embed"
	"html/template"

	"searchloop/eval"
	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
)

//go:embed view/trends.html
var trendsHTML string

var trendsPage = template.Must(template.Must(page.Clone()).New("trends").Parse(trendsHTML))

// Trends is the page of a run's nights.
type Trends struct {
	Title   string // name of the run
	Night   string // the newest one
	Benches []Trend
}

// Trend is how one benchmark went, night by night, and what the newest night says of
// it. All lists are as long as Nights.
type Trend struct {
	Bench, Metric       string
	Nights              []string
	Accuracy, Low, High []float64
	Searched, Tokens    []float64
	Page                string           // of the newest night's samples, relative to this page; "" for none
	Verdict             string           // of the newest night
	Bad                 bool             // it broke its bound
	Against             string           // night that it is compared with, "" for none
	Comparison          *eval.Comparison // with that night
	Lost, Gained        []Flip
}

// Flip is a question that was right on one side and wrong on the other.
type Flip struct {
	Question string `json:"question"`
	Sample   string `json:"sample"` // trajectory of the newer night
	Text     string `json:"text"`
	Truth    string `json:"truth"`
	Before   string `json:"before"`
	After    string `json:"after"`
	Link     string `json:"-"` // to the sample, relative to the page; "" for none
}

// WriteTrends draws the page. It reads nothing from the network and needs no script.
func WriteTrends(out string, t Trends) error {
	type drawn struct {
		Trend
		Figures []template.HTML
	}
	v := struct {
		Title, Night string
		Style        template.CSS
		Benches      []drawn
	}{Title: t.Title, Night: t.Night, Style: template.CSS(styleCSS)}
	for _, b := range t.Benches {
		d := drawn{Trend: b}
		for _, f := range []struct {
			title   string
			percent bool
			curves  []curve
		}{
			{"Accuracy by night", true, []curve{{"accuracy", b.Accuracy}, {"95 % low", b.Low}, {"95 % high", b.High}}},
			{"Share of samples that searched", true, []curve{{"searched", b.Searched}}},
			{"Tokens per trajectory", false, []curve{{"tokens", b.Tokens}}},
		} {
			svg, err := draw(f.title, b.Nights, f.percent, f.curves...)
			if err != nil {
				return err
			}
			d.Figures = append(d.Figures, svg)
		}
		v.Benches = append(v.Benches, d)
	}
	var text bytes.Buffer
	if err := trendsPage.Execute(&text, v); err != nil {
		return fail.Wrap(fail.Bug, "write the trends", out, err)
	}
	return atomicfile.WriteFile(out, text.Bytes())
}
