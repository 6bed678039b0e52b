package balance

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"searchloop/corpus"
	"searchloop/internal/recipe"
)

// line is one question in trials.jsonl.
type line struct {
	ID       string       `json:"id"`
	Category string       `json:"category,omitempty"`
	Trial    corpus.Trial `json:"trial"`
	Drawn    bool         `json:"drawn"`
	Why      string       `json:"why,omitempty"` // it is not drawn
}

func lineOf(q *labelled) line {
	l := line{ID: q.ID, Category: q.Category, Trial: *q.Trial, Drawn: q.why == nil}
	if q.why != nil {
		l.Why = q.why.Error()
	}
	return l
}

// Report is balance.json: what was asked for, what was found, what was drawn.
type Report struct {
	Questions int `json:"questions"`
	Target    Mix `json:"target"`
	Drawn     Mix `json:"drawn"`

	Untried  int `json:"untried"`  // without enough verdicts
	Unsolved int `json:"unsolved"` // no rollout was right
	Guessed  int `json:"guessed"`  // right too seldom, and never with a search
	Surplus  int `json:"surplus"`  // labelled, and not drawn

	Labelled map[string]int            `json:"labelled"` // by need
	ByNeed   map[string]int            `json:"drawn_by_need"`
	ByGroup  map[string]map[string]int `json:"drawn_by_category"` // category, then need

	PassRate  float64        `json:"pass_rate"`       // mean over tried questions
	PassDrawn float64        `json:"pass_rate_drawn"` // mean over the drawn
	Rates     map[string]int `json:"pass_rates"`      // tried questions, by "correct/rollouts"
	RatesOf   map[string]int `json:"pass_rates_drawn"`

	Truth *Truth `json:"truth,omitempty"` // when the recipe says what categories need (curate.truth)

	tried int
	rule  recipe.Curate
}

// Truth compares labels with what the recipe says of the questions' categories.
type Truth struct {
	MinFree int    `json:"min_free"`
	Labels  Labels `json:"labels"`  // by the recipe's rule
	AnyFree Labels `json:"any_one"` // by MMSearch-R1's: one right rollout without a search makes a question free
}

// Labels counts questions that have a label and a truth.
type Labels struct {
	N     int     `json:"n"`
	Right int     `json:"right"`
	Share float64 `json:"share"`
	Side  int     `json:"right_side"` // rightly told whether a search is needed, whatever kind of search
}

func (l *Labels) add(need, truth string) {
	if need == corpus.NeedUnknown {
		return
	}
	l.N++
	l.Right += bit(need == truth)
	l.Side += bit((need == corpus.NeedNone) == (truth == corpus.NeedNone))
	l.Share = float64(l.Right) / float64(l.N)
}

// Mix is how many questions of either side there are.
type Mix struct {
	Required      int     `json:"required"`
	Free          int     `json:"free"`
	RequiredShare float64 `json:"required_share"`
}

func (m *Mix) share() {
	if n := m.Required + m.Free; n > 0 {
		m.RequiredShare = float64(m.Required) / float64(n)
	}
}

func newReport(c recipe.Curate) *Report {
	r := &Report{Target: Mix{Required: c.Required, Free: c.Free}, Labelled: map[string]int{}, ByNeed: map[string]int{},
		ByGroup: map[string]map[string]int{}, Rates: map[string]int{}, RatesOf: map[string]int{}, rule: c}
	if len(c.Truth) > 0 {
		r.Truth = &Truth{MinFree: max(c.MinFree, 1)}
	}
	r.Target.share()
	return r
}

func (r *Report) add(q *labelled) {
	r.Questions++
	rate := fmt.Sprintf("%d/%d", q.Trial.Correct, q.Trial.Rollouts)
	if q.Trial.Rollouts > 0 {
		r.tried++
		r.PassRate += q.Trial.PassRate
		r.Rates[rate]++
	}
	if truth := r.rule.Truth[q.Category]; truth != "" && !errors.Is(q.why, errUntried) && !errors.Is(q.why, errFew) {
		r.Truth.Labels.add(q.Trial.Need, truth)
		r.Truth.AnyFree.add(need(q.Trial, 1), truth)
	}
	switch {
	case errors.Is(q.why, errUntried) || errors.Is(q.why, errFew):
		r.Untried++
		return
	case errors.Is(q.why, errUnsolved):
		r.Unsolved++
		return
	case errors.Is(q.why, errGuess):
		r.Guessed++
		return
	}
	r.Labelled[q.Trial.Need]++
	if q.why != nil {
		r.Surplus++
		return
	}
	r.ByNeed[q.Trial.Need]++
	if r.ByGroup[q.Category] == nil {
		r.ByGroup[q.Category] = map[string]int{}
	}
	r.ByGroup[q.Category][q.Trial.Need]++
	r.RatesOf[rate]++
	r.PassDrawn += q.Trial.PassRate
	if q.Trial.Need == corpus.NeedNone {
		r.Drawn.Free++
	} else {
		r.Drawn.Required++
	}
}

func (r *Report) finish() {
	r.Drawn.share()
	r.PassRate /= float64(max(r.tried, 1))
	r.PassDrawn /= float64(max(r.Drawn.Free+r.Drawn.Required, 1))
}

// print shows the report on a terminal.
func (r *Report) print(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "questions\t%d\tmean pass rate %.1f %%\n", r.Questions, 100*r.PassRate)
	fmt.Fprintf(w, "set aside\t%d\tunsolved %d, guessed %d, not tried %d\n", r.Unsolved+r.Guessed+r.Untried, r.Unsolved, r.Guessed, r.Untried)
	fmt.Fprintf(w, "labelled\t%d\t%s\n", sum(r.Labelled), list(r.Labelled))
	fmt.Fprintf(w, "drawn\t%d\t%s; %.1f %% need a search", sum(r.ByNeed), list(r.ByNeed), 100*r.Drawn.RequiredShare)
	if r.Target.Required+r.Target.Free > 0 {
		fmt.Fprintf(w, " (target %.1f %%)", 100*r.Target.RequiredShare)
	}
	fmt.Fprintf(w, ", mean pass rate %.1f %%\n", 100*r.PassDrawn)
	if t := r.Truth; t != nil {
		fmt.Fprintf(w, "labels\t%.1f %%\tright: %d of %d as curate.truth has it, with min_free %d; %d tell rightly whether a search is needed\n",
			100*t.Labels.Share, t.Labels.Right, t.Labels.N, t.MinFree, t.Labels.Side)
		if t.MinFree > 1 {
			fmt.Fprintf(w, "\t%.1f %%\tright with min_free 1: %d of %d\n", 100*t.AnyFree.Share, t.AnyFree.Right, t.AnyFree.N)
		}
	}
	w.Flush()
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

func list(m map[string]int) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s %d", k, m[k]))
	}
	return strings.Join(out, ", ")
}
