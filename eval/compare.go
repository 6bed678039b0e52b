package eval

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"searchloop/internal/fail"
	"searchloop/internal/stat"
)

// Comparison is what two evaluations of the same benchmark say of each other, A
// being the older one. Its keys are a contract; see docs/evals.md.
type Comparison struct {
	Schema     int         `json:"schema"` // 1
	Bench      string      `json:"bench"`
	A          Side        `json:"a"`
	B          Side        `json:"b"`
	Comparable bool        `json:"comparable"`
	Why        []string    `json:"why,omitempty"` // what differs beside the policy, so that the numbers do not compare
	Questions  int         `json:"questions"`     // that both answered
	OnlyA      int         `json:"only_a,omitempty"`
	OnlyB      int         `json:"only_b,omitempty"`
	Paired     stat.Paired `json:"paired_bootstrap"` // over the questions of both
	Gained     []string    `json:"gained"`           // questions wrong in A and right in B
	Lost       []string    `json:"lost"`
	McNemar    float64     `json:"mcnemar_p"` // exact, of gained and lost
}

// Side is one of the two evaluations.
type Side struct {
	Run      string  `json:"run"`
	Epoch    int32   `json:"epoch"`
	Policy   string  `json:"policy"`
	Accuracy float64 `json:"accuracy"` // over the questions of both
	Searched float64 `json:"searched"` // share of all samples that called a tool
}

// Compare pairs two evaluations by question. A question with several samples is
// right when at least half of its score is there.
func Compare(a, b *Metrics, as, bs []Sample, resamples int, seed uint64) Comparison {
	c := Comparison{Schema: 1, Bench: b.Bench, Why: differences(a, b), Gained: []string{}, Lost: []string{},
		A: Side{Run: a.Run, Epoch: a.Epoch, Policy: a.Provenance.Policy, Searched: a.SearchRatio}, B: Side{Run: b.Run, Epoch: b.Epoch, Policy: b.Provenance.Policy, Searched: b.SearchRatio}}
	c.Comparable = len(c.Why) == 0
	pa, pb := byQuestion(as), byQuestion(bs)
	var xs, ys []float64
	for _, q := range slices.Sorted(maps.Keys(pa)) {
		y, ok := pb[q]
		if !ok {
			c.OnlyA++
			continue
		}
		x := pa[q]
		xs, ys = append(xs, x), append(ys, y)
		switch {
		case x < 0.5 && y >= 0.5:
			c.Gained = append(c.Gained, q)
		case x >= 0.5 && y < 0.5:
			c.Lost = append(c.Lost, q)
		}
	}
	c.Questions = len(xs)
	c.OnlyB = len(pb) - len(xs)
	c.A.Accuracy, c.B.Accuracy = stat.Bootstrap(xs, 0, 0).Mean, stat.Bootstrap(ys, 0, 0).Mean
	c.Paired = stat.PairedBootstrap(xs, ys, resamples, seed)
	c.McNemar = stat.McNemar(len(c.Gained), len(c.Lost))
	return c
}

// byQuestion is the mean score of each question.
func byQuestion(samples []Sample) map[string]float64 {
	sums, n := map[string]float64{}, map[string]float64{}
	for i := range samples {
		sums[samples[i].Question] += samples[i].Score
		n[samples[i].Question]++
	}
	for q := range sums {
		sums[q] /= n[q]
	}
	return sums
}

// inOrder gives the values in the order of the keys.
func inOrder(of map[string]float64) []float64 {
	out := make([]float64, 0, len(of))
	for _, q := range slices.Sorted(maps.Keys(of)) {
		out = append(out, of[q])
	}
	return out
}

// differences says what, beside the policy, two numbers were made with that is not
// the same.
func differences(a, b *Metrics) (why []string) {
	p, q := a.Provenance, b.Provenance
	differ := func(what string, x, y any) {
		if x != y {
			why = append(why, fmt.Sprintf("%s: %v and %v", what, x, y))
		}
	}
	differ("benchmark", a.Bench, b.Bench)
	differ("questions", short(p.Questions), short(q.Questions))
	differ("number of questions", a.Questions, b.Questions)
	differ("metric", p.Metric, q.Metric)
	differ("recipe (prompts, tools, limits)", short(p.Recipe), short(q.Recipe))
	if p.JudgeModel != "" && q.JudgeModel != "" || p.Metric == "judge" {
		differ("judge", p.JudgeModel, q.JudgeModel)
		differ("judge's prompt", p.JudgePrompt, q.JudgePrompt)
	}
	differ("temperature", p.Temperature, q.Temperature)
	differ("top_p", p.TopP, q.TopP)
	differ("top_k", p.TopK, q.TopK)
	differ("samples a question", p.Samples, q.Samples)
	for _, role := range slices.Sorted(maps.Keys(union(p.Inputs, q.Inputs))) {
		differ(strings.ReplaceAll(role, "_", " "), short(p.Inputs[role]), short(q.Inputs[role]))
	}
	return why
}

func union(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}

// short is enough of a digest for people.
func short(digest string) string {
	if digest == "" {
		return "none"
	}
	return digest[:min(12, len(digest))]
}

// CompareFolders reads two evaluation folders and compares them.
func CompareFolders(a, b string, resamples int, seed uint64) (Comparison, error) {
	var m [2]*Metrics
	var s [2][]Sample
	for i, dir := range []string{a, b} {
		var err error
		if m[i], err = ReadMetrics(dir); err != nil {
			return Comparison{}, err
		}
		if s[i], err = ReadSamples(dir); err != nil {
			return Comparison{}, err
		}
	}
	return Compare(m[0], m[1], s[0], s[1], resamples, seed), nil
}

// Fewer is the share of A's searches that B does without.
func (c *Comparison) Fewer() float64 {
	if c.A.Searched == 0 {
		return 0
	}
	return 1 - c.B.Searched/c.A.Searched
}

func (c *Comparison) fewer() string {
	if c.A.Searched == 0 {
		return ""
	}
	return fmt.Sprintf("%+.1f %% of the samples that searched", -100*c.Fewer())
}

// SearchBound is an error of kind fail.Bound when B does without less than a share of
// A's searches.
func (c *Comparison) SearchBound(least float64) error {
	if c.Fewer() < least-1e-12 {
		return fail.New(fail.Bound, "compare", c.Bench, "%.1f %% fewer samples searched, at least %.1f %% are wanted", 100*c.Fewer(), 100*least)
	}
	return nil
}

// Bound is an error of kind fail.Bound when B is worse than A by more than drop, a
// share. Numbers that do not compare break no bound: that is an error of its own.
func (c *Comparison) Bound(drop float64) error {
	if !c.Comparable {
		return fail.WithHint(fail.New(fail.Usage, "compare", c.Bench, "the two evaluations do not compare: %s", strings.Join(c.Why, "; ")),
			"evaluate both with the same recipe, questions and indices")
	}
	if c.A.Accuracy-c.B.Accuracy > drop+1e-12 {
		return fail.WithHint(fail.New(fail.Bound, "compare", c.Bench, "accuracy fell by %.2f points, %.2f are allowed (McNemar p = %.3g)",
			100*(c.A.Accuracy-c.B.Accuracy), 100*drop, c.McNemar), "lost: "+some(c.Lost, 8))
	}
	return nil
}

func some(ids []string, n int) string {
	if len(ids) <= n {
		return strings.Join(ids, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(ids[:n], ", "), len(ids)-n)
}

// Print writes the comparison for people.
func (c *Comparison) Print(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "compared with\trun %s, epoch %d\t%d questions of both\n", c.A.Run, c.A.Epoch, c.Questions)
	fmt.Fprintf(w, "accuracy\t%.1f %% → %.1f %%\tdifference %+.1f points, 95 %% interval %+.1f to %+.1f, p = %.3g (paired bootstrap)\n", 100*c.A.Accuracy, 100*c.B.Accuracy,
		100*c.Paired.Difference.Mean, 100*c.Paired.Difference.Low, 100*c.Paired.Difference.High, c.Paired.P)
	fmt.Fprintf(w, "searched\t%.1f %% → %.1f %%\t%s\n", 100*c.A.Searched, 100*c.B.Searched, c.fewer())
	fmt.Fprintf(w, "flipped\t%d won, %d lost\tp = %.3g (McNemar, exact)\n", len(c.Gained), len(c.Lost), c.McNemar)
	for _, why := range c.Why {
		fmt.Fprintf(w, "does not compare\t%s\n", why)
	}
	if len(c.Lost) > 0 {
		fmt.Fprintf(w, "lost\t%s\n", some(c.Lost, 8))
	}
	w.Flush()
}
