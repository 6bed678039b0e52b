package nightly

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"searchloop/eval"
	"searchloop/eval/report"
	"searchloop/internal/manifest"
)

// What comparisons are made with; docs/evals.md.
const (
	resamples = 2000
	seed      = 1
)

// Outcome is what a night says of one benchmark and epoch.
type Outcome struct {
	Bench      string           `json:"bench"`
	Epoch      int32            `json:"epoch"`
	Metric     string           `json:"metric"`
	N          int32            `json:"n"`
	Failed     int32            `json:"failed"`
	Unjudged   int32            `json:"unjudged"`
	Accuracy   float64          `json:"accuracy"`
	Low        float64          `json:"low"`
	High       float64          `json:"high"`
	Against    string           `json:"against,omitempty"` // night it is compared with
	Comparison *eval.Comparison `json:"comparison,omitempty"`
	MaxDrop    float64          `json:"max_drop,omitempty"` // the bound, a share
	Regression bool             `json:"regression"`         // accuracy fell by more than that
	Lost       []report.Flip    `json:"lost,omitempty"`
	Gained     []report.Flip    `json:"gained,omitempty"`
}

// baseline is the row that a new one is compared with: of the night that was named,
// or of the newest earlier one that broke no bound, so that a regression is told
// until it is mended or taken for good. Of several epochs it is the same one, or
// else the latest.
func baseline(run string, rows []Row, r *Row, named string) *Row {
	var best *Row
	better := func(o *Row) bool {
		switch {
		case best == nil || !o.Begun.Equal(best.Begun):
			return best == nil || o.Begun.After(best.Begun)
		case (o.Epoch == r.Epoch) != (best.Epoch == r.Epoch):
			return o.Epoch == r.Epoch
		}
		return o.Epoch > best.Epoch
	}
	for i := range rows {
		o := &rows[i]
		if o.Run != r.Run || o.Bench != r.Bench || o.Search != r.Search || o.Night == r.Night {
			continue
		}
		if named != "" && o.Night != named || named == "" && (o.Broke || !o.Begun.Before(r.Begun)) {
			continue
		}
		if _, err := os.Stat(manifest.Path(filepath.Join(run, o.Evaluated))); err == nil && better(o) {
			best = o
		}
	}
	return best
}

// compare sets the row's evaluation against that of the other row and fills in what
// the row says of it. maxDrop nil is no bound.
func compare(run string, r, against *Row, maxDrop *float64) (*Outcome, error) {
	o := &Outcome{Bench: r.Bench, Epoch: r.Epoch, Metric: r.Metric, N: r.N, Failed: r.Failed, Unjudged: r.Unjudged, Accuracy: r.Accuracy, Low: r.Low, High: r.High}
	if against == nil {
		return o, nil
	}
	before, now := filepath.Join(run, against.Evaluated), filepath.Join(run, r.Evaluated)
	c, err := eval.CompareFolders(before, now, resamples, seed)
	if err != nil {
		return nil, err
	}
	o.Against, o.Comparison = against.Night, &c
	r.Against, r.Comparable, r.Difference, r.P, r.McNemar = against.Night, c.Comparable, c.Paired.Difference.Mean, c.Paired.P, c.McNemar
	r.Lost, r.Gained = c.Lost, c.Gained
	if c.Comparable && maxDrop != nil {
		o.MaxDrop, o.Regression = *maxDrop, c.Bound(*maxDrop) != nil
		r.Broke = o.Regression
	}
	if len(c.Lost)+len(c.Gained) == 0 {
		return o, nil
	}
	as, err := firsts(before)
	if err != nil {
		return nil, err
	}
	bs, err := firsts(now)
	if err != nil {
		return nil, err
	}
	flips := func(questions []string) (out []report.Flip) {
		for _, q := range questions {
			a, b := as[q], bs[q]
			out = append(out, report.Flip{Question: q, Sample: b.ID, Text: b.Text, Truth: strings.Join(b.Truth, " / "), Before: a.Answer, After: answered(&b)})
		}
		return out
	}
	o.Lost, o.Gained = flips(c.Lost), flips(c.Gained)
	return o, nil
}

// answered is a sample's answer, or why there is none.
func answered(s *eval.Sample) string {
	if s.Why != "" && s.Answer == "" {
		return s.Status + ": " + s.Why
	}
	return s.Answer
}

// firsts reads the first sample of every question.
func firsts(dir string) (map[string]eval.Sample, error) {
	samples, err := eval.ReadSamples(dir)
	if err != nil {
		return nil, err
	}
	out := map[string]eval.Sample{}
	for _, s := range samples {
		if _, ok := out[s.Question]; !ok {
			out[s.Question] = s
		}
	}
	return out, nil
}

// Verdict is the outcome in one line.
func (o *Outcome) Verdict() string {
	s := fmt.Sprintf("%.1f %% (95 %% interval %.1f to %.1f, %d samples)", 100*o.Accuracy, 100*o.Low, 100*o.High, o.N)
	if o.Failed+o.Unjudged > 0 {
		s += fmt.Sprintf(", %d failed, %d unjudged", o.Failed, o.Unjudged)
	}
	c := o.Comparison
	switch {
	case c == nil:
		return s + "; nothing to compare with yet"
	case !c.Comparable:
		return s + "; does not compare with " + o.Against + ": " + strings.Join(c.Why, "; ")
	}
	s += fmt.Sprintf("; %+.1f points since %s (p = %.3g), %d won, %d lost (p = %.3g)", 100*c.Paired.Difference.Mean, o.Against, c.Paired.P, len(c.Gained), len(c.Lost), c.McNemar)
	if o.Regression {
		s = "REGRESSION: " + s
	}
	return s
}
