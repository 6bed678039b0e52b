package nightly

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"searchloop/eval/report"
	"searchloop/internal/deliver"
)

// WebhookName is the environment variable of the address that is told how nights
// end; with _FILE behind it, of a file that holds it.
const WebhookName = "NIGHTLY_WEBHOOK"

const (
	shownFlips  = 8   // questions that the summary names
	shownNights = 120 // in the curves
)

// summary is the night for people.
func summary(n *night, bound *float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, night %s, %s search\n", n.Run, n.Night, n.Search)
	for i := range n.result.Outcomes {
		o := &n.result.Outcomes[i]
		fmt.Fprintf(&b, "\n%s, epoch %d: %s\n", o.Bench, o.Epoch, o.Verdict())
		for j, f := range o.Lost {
			if j == shownFlips {
				fmt.Fprintf(&b, "  and %d more\n", len(o.Lost)-j)
				break
			}
			fmt.Fprintf(&b, "  lost  %s  %s\n        truth %s; before: %s; now: %s\n", f.Question, line(f.Text), line(f.Truth), line(f.Before), line(f.After))
		}
	}
	if bound == nil {
		b.WriteString("\nNo bound is set: eval.nightly.max_drop of the recipe, or MAX_DROP.\n")
	} else {
		fmt.Fprintf(&b, "\nBound: %.2f points.\n", 100**bound)
	}
	fmt.Fprintf(&b, "Pages: %s", n.result.Page)
	for _, bench := range n.Benches {
		fmt.Fprintf(&b, ", %s", filepath.Join(n.dir, bench+".html"))
	}
	b.WriteString("\n")
	return b.String()
}

// line is the beginning of a text, on one line.
func line(s string) string {
	r := []rune(strings.Join(strings.Fields(s), " "))
	if len(r) > 120 {
		return string(r[:120]) + "…"
	}
	if len(r) == 0 {
		return "–"
	}
	return string(r)
}

// trends draws the page of all nights with what the newest one says.
func (h *house) trends(n *night) error {
	t := report.Trends{Title: n.Run, Night: n.Night}
	for i := range n.result.Outcomes {
		o := &n.result.Outcomes[i]
		tr := report.Trend{Bench: o.Bench, Metric: o.Metric, Verdict: o.Verdict(), Bad: o.Regression, Against: o.Against, Comparison: o.Comparison,
			Page: url.PathEscape(n.Night) + "/" + url.PathEscape(o.Bench) + ".html"}
		if len(n.Epochs) > 1 {
			tr.Bench = fmt.Sprintf("%s, epoch %d", o.Bench, o.Epoch)
		}
		place := slices.Index(n.Epochs, int(o.Epoch)) // of the evaluation on the page of samples
		link := func(flips []report.Flip) []report.Flip {
			flips = slices.Clone(flips)
			for i := range flips {
				flips[i].Link = fmt.Sprintf("%s#sample=%s@%d", tr.Page, url.PathEscape(flips[i].Sample), place)
			}
			return flips
		}
		tr.Lost, tr.Gained = link(o.Lost), link(o.Gained)
		for j := range h.rows {
			r := &h.rows[j]
			if r.Bench != o.Bench || r.Search != n.Search || r.Run != n.Run || r.Begun.After(n.Begun) || len(n.Epochs) > 1 && r.Epoch != o.Epoch {
				continue
			}
			tr.Nights = append(tr.Nights, r.Night)
			tr.Accuracy, tr.Low, tr.High = append(tr.Accuracy, r.Accuracy), append(tr.Low, r.Low), append(tr.High, r.High)
			tr.Searched, tr.Tokens = append(tr.Searched, r.Searched), append(tr.Tokens, r.Tokens)
		}
		if cut := len(tr.Nights) - shownNights; cut > 0 {
			for _, list := range []*[]float64{&tr.Accuracy, &tr.Low, &tr.High, &tr.Searched, &tr.Tokens} {
				*list = (*list)[cut:]
			}
			tr.Nights = tr.Nights[cut:]
		}
		t.Benches = append(t.Benches, tr)
	}
	return report.WriteTrends(filepath.Join(h.dir, "trends.html"), t)
}

// notify sends the result to the webhook, if there is one. That nobody takes it is
// said and is no reason to lose the night.
func (h *house) notify(ctx context.Context, res *Result) {
	if h.Webhook.IsZero() {
		return
	}
	text, err := json.Marshal(res)
	if err == nil {
		_, err = deliver.New("webhook").Send(ctx, "POST", h.Webhook.Reveal(), map[string]string{"Content-Type": "application/json"}, append(text, '\n'))
	}
	if err != nil {
		h.r.Log.Warn("the webhook was not told", "error", err)
	}
}
