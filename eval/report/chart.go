package report

import (
	"fmt"
	"html/template"
	"maps"
	"slices"

	"github.com/go-analyze/charts"

	"searchloop/internal/fail"
)

// A curve is one named line over epochs or updates.
type curve struct {
	name   string
	values []float64 // charts.GetNullValue() where there is none
}

var none = charts.GetNullValue()

// draw makes an SVG line chart. percent says how values read.
func draw(title string, labels []string, percent bool, curves ...curve) (template.HTML, error) {
	data := make([][]float64, len(curves))
	names := make([]string, len(curves))
	low, high := 1.0, 0.0
	for i, c := range curves {
		data[i], names[i] = c.values, c.name
		for _, v := range c.values {
			if v != none {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	o := charts.NewLineChartOptionWithData(data)
	o.Title.Text = title
	o.Title.FontStyle.FontSize = 12
	o.XAxis.Labels = labels
	o.Legend.SeriesNames = names
	o.Legend.Offset = charts.OffsetRight
	o.Legend.FontStyle.FontSize = 9
	o.LineStrokeWidth = 2
	o.Padding = charts.NewBox(10, 10, 16, 8)
	o.YAxis = []charts.YAxisOption{{ValueFormatter: func(v float64) string {
		if percent {
			return fmt.Sprintf("%.0f %%", 100*v)
		}
		return fmt.Sprintf("%.3g", v)
	}}}
	if percent && low >= 0 && high <= 1 {
		o.YAxis[0].Min, o.YAxis[0].Max = charts.Ptr(0.0), charts.Ptr(1.0)
	}
	p := charts.NewPainter(charts.PainterOptions{OutputFormat: charts.ChartOutputSVG, Width: 520, Height: 280})
	if err := p.LineChart(o); err != nil {
		return "", fail.Wrap(fail.Bug, "draw "+title, "", err)
	}
	svg, err := p.Bytes()
	if err != nil {
		return "", fail.Wrap(fail.Bug, "draw "+title, "", err)
	}
	return template.HTML(svg), nil // made by the chart library from numbers and our own names
}

// figures draws every chart of the page.
func figures(epochs []Epoch) ([]template.HTML, error) {
	labels := make([]string, len(epochs))
	pick := func(name string, of func(Epoch) (float64, bool)) curve {
		c := curve{name: name}
		for _, e := range epochs {
			v, ok := of(e)
			if !ok {
				v = none
			}
			c.values = append(c.values, v)
		}
		return c
	}
	evaluated := func(of func(Epoch) float64) func(Epoch) (float64, bool) {
		return func(e Epoch) (float64, bool) {
			if e.Eval == nil {
				return 0, false
			}
			return of(e), true
		}
	}
	tools := map[string]bool{}
	for i, e := range epochs {
		labels[i] = fmt.Sprint(e.N)
		if e.Eval != nil {
			for t := range e.Eval.ByTool {
				tools[t] = true
			}
		}
	}
	search := []curve{pick("any", evaluated(func(e Epoch) float64 { return e.Eval.SearchRatio }))}
	for _, t := range slices.Sorted(maps.Keys(tools)) {
		search = append(search, pick(t, evaluated(func(e Epoch) float64 { return e.Eval.ByTool[t] })))
	}
	type figure struct {
		title   string
		labels  []string
		percent bool
		curves  []curve
	}
	all := []figure{
		{"Accuracy by epoch", labels, true, []curve{
			pick("accuracy", evaluated(func(e Epoch) float64 { return e.Eval.Accuracy.Mean })),
			pick("95 % low", evaluated(func(e Epoch) float64 { return e.Eval.Accuracy.Low })),
			pick("95 % high", evaluated(func(e Epoch) float64 { return e.Eval.Accuracy.High }))}},
		{"Mean training reward by epoch", labels, false, []curve{
			pick("reward", func(e Epoch) (float64, bool) { return e.Reward, e.Scored > 0 })}},
		{"Share of samples that searched", labels, true, search},
		{"Tokens per trajectory", labels, false, []curve{
			pick("tokens", evaluated(func(e Epoch) float64 { return e.Eval.Tokens }))}},
	}
	for _, key := range []string{"kl", "entropy", "grad_norm", "clip_fraction"} {
		steps, c := overUpdates(epochs, key)
		if len(c.values) > 1 {
			all = append(all, figure{"GRPO update: " + key, steps, false, []curve{c}})
		}
	}
	var out []template.HTML
	for _, f := range all {
		if !anyValue(f.curves) {
			continue
		}
		svg, err := draw(f.title, f.labels, f.percent, f.curves...)
		if err != nil {
			return nil, err
		}
		out = append(out, svg)
	}
	return out, nil
}

// overUpdates strings the GRPO updates of all epochs together.
func overUpdates(epochs []Epoch, key string) ([]string, curve) {
	c := curve{name: key}
	var labels []string
	for _, e := range epochs {
		if e.N == 0 {
			continue // the warm start is another loss
		}
		for i, u := range e.Updates {
			if v, ok := u[key]; ok {
				c.values = append(c.values, v)
				labels = append(labels, fmt.Sprintf("%d.%d", e.N, i+1))
			}
		}
	}
	return labels, c
}

func anyValue(curves []curve) bool {
	for _, c := range curves {
		for _, v := range c.values {
			if v != none {
				return true
			}
		}
	}
	return false
}
