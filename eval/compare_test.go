package eval

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"searchloop/eval/score"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/rollout/trajectory"
)

func scored(right string) (out []Sample) {
	for i, c := range right {
		q := string(rune('a' + i))
		out = append(out, Sample{ID: q + "#0", Question: q, Scored: true, Score: float64(c - '0'), Correct: c == '1', Status: trajectory.OK, Truth: []string{"=x"}, Text: "=1+1"})
	}
	return out
}

func TestCompare(t *testing.T) {
	as, bs := scored("1100110"), scored("10110101")
	a, b := Measure(as, score.Judge, 100, 1), Measure(bs, score.Judge, 100, 1)
	c := Compare(&a, &b, as, bs, 500, 1)
	if c.Comparable || len(c.Why) != 1 || !strings.Contains(c.Why[0], "number of questions: 7 and 8") {
		t.Errorf("%+v", c.Why)
	}
	if !slices.Equal(c.Gained, []string{"c", "d"}) || !slices.Equal(c.Lost, []string{"b", "e"}) || c.Questions != 7 || c.OnlyB != 1 || c.OnlyA != 0 || c.McNemar != 1 {
		t.Errorf("%+v", c)
	}
	if err := c.Bound(1); fail.KindOf(err) != fail.Usage {
		t.Errorf("numbers that do not compare: %v", err)
	}
	b2s := scored("0000110")
	b2 := Measure(b2s, score.Judge, 100, 1)
	c = Compare(&a, &b2, as, b2s, 500, 1)
	if !c.Comparable || math.Abs(c.Paired.Difference.Mean+2.0/7) > 1e-12 {
		t.Errorf("%+v", c)
	}
	if err := c.Bound(0.1); fail.KindOf(err) != fail.Bound || !strings.Contains(err.Error(), "a, b") {
		t.Errorf("%v", err)
	}
	if err := c.Bound(2.0 / 7); err != nil {
		t.Errorf("a drop of just the bound: %v", err)
	}
	c.A.Searched, c.B.Searched = 0.8, 0.6
	if err := c.SearchBound(0.25); err != nil {
		t.Errorf("a saving of just the bound: %v", err)
	}
	if err := c.SearchBound(0.3); fail.KindOf(err) != fail.Bound || !strings.Contains(err.Error(), "25.0 % fewer samples searched") {
		t.Errorf("%v", err)
	}
	b2.Provenance.Inputs = map[string]string{"text_index": "abc"}
	b2.Provenance.Temperature = 1
	b2.Provenance.JudgeModel = "other"
	b2.Provenance.Metric = "judge"
	if why := strings.Join(differences(&a, &b2), "; "); !strings.Contains(why, "text index: none and abc") || !strings.Contains(why, "temperature: 0 and 1") || !strings.Contains(why, "metric") {
		t.Error(why)
	}
}

// evaluation makes a finished evaluation folder.
func evaluation(t *testing.T, dir string, samples []Sample) string {
	t.Helper()
	at := func(name string) string { return filepath.Join(dir, name) }
	var rows []trajectory.Row
	var verdicts []trajectory.Judged
	for _, s := range samples {
		rows = append(rows, trajectory.Row{ID: s.ID, Question: s.Question, Run: "r", Policy: "http://h:1/v1#m", Status: s.Status, Answers: s.Truth, Text: s.Text, Answer: "said", HasAnswer: true})
		verdicts = append(verdicts, trajectory.Judged{ID: s.ID, Correct: s.Correct, Scored: true, Verdict: trajectory.Correct, By: "judge"})
	}
	rollouts, judged := write(t, at("rollouts"), rows...), write(t, at("judged"), verdicts...)
	type question struct {
		ID   string `parquet:"id"`
		Meta string `parquet:"meta"`
	}
	var qs []question
	for _, s := range samples {
		qs = append(qs, question{ID: s.Question})
	}
	questions := write(t, at("questions"), qs...)
	r := job.Testing(t)
	r.RecipePath = "../pipelines/recipes/demo.yaml"
	if err := Evaluate(t.Context(), r, Options{Bench: "some", Rollouts: rollouts, Judged: judged, Questions: questions, Out: at("eval")}); err != nil {
		t.Fatal(err)
	}
	return at("eval")
}

func TestShowComparesAndExports(t *testing.T) {
	a, b := evaluation(t, filepath.Join(t.TempDir(), "a"), scored("1110")), evaluation(t, filepath.Join(t.TempDir(), "b"), scored("1010"))
	drop := 0.2
	to := t.TempDir()
	err := Show(job.Testing(t), ShowOptions{Dir: b, Baseline: a, MaxDrop: &drop, Export: ExportCSV, To: to})
	if fail.KindOf(err) != fail.Bound || !strings.Contains(err.Error(), "lost: b") {
		t.Errorf("a drop of 25 points: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(to, "samples.csv"))
	if err != nil || !strings.Contains(string(text), "'=1+1") || strings.Count(string(text), "\n") != 5 {
		t.Errorf("%s %v", text, err)
	}
	text, err = os.ReadFile(filepath.Join(to, "metrics.csv"))
	if err != nil || !strings.Contains(string(text), "accuracy.mean,0.5\n") {
		t.Errorf("%s %v", text, err)
	}
	files, err := Export(b, ExportLMEval, to)
	if err != nil || len(files) != 2 || !strings.HasSuffix(files[0], "http___h_1_v1_m/results_r-epoch-0.json") {
		t.Errorf("%v %v", files, err)
	}
	text, _ = os.ReadFile(files[0])
	if !strings.Contains(string(text), `"acc,none": 0.5`) || !strings.Contains(string(text), `"acc_stderr,none": 0.288`) { // sqrt(1/3/4)
		t.Errorf("%s", text)
	}
	if err := Show(job.Testing(t), ShowOptions{Dir: b, MaxDrop: &drop}); fail.KindOf(err) != fail.Usage {
		t.Errorf("no baseline: %v", err)
	}
	if _, err := Export(b, "xls", to); fail.KindOf(err) != fail.Usage {
		t.Errorf("%v", err)
	}
}
