package eval

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"searchloop/corpus"
	"searchloop/internal/job"
	"searchloop/internal/table"
	"searchloop/rollout"
	"searchloop/rollout/judge"
	"searchloop/rollout/scripted"
)

// published is what testdata/livevqa.py prints.
type published struct {
	A, B struct {
		N        int
		Accuracy measured
		Wilson   Interval
	}
	Comparison struct {
		Gained, Lost []string
		Difference   measured
		P            float64
		Exact        float64 `json:"exact_p"`
		McNemar      float64
	}
}

type measured struct {
	Interval
	SciPyLow  float64 `json:"scipy_low"`
	SciPyHigh float64 `json:"scipy_high"`
}

// LiveVQA from its published files to the printed figures, played by two servers that
// know the truth of half, and of 59 of 100, of the questions: accuracy, intervals,
// flips and p-values are those of an independent script (testdata/livevqa.py, SciPy).
// Where Python has SciPy and PyArrow (PYTHON names one), the script reads these very
// samples; what it said of them once is testdata/livevqa.json.
func TestLiveVQAAgainstSciPy(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	script, golden := filepath.Join(root, "eval/testdata/livevqa.py"), filepath.Join(root, "eval/testdata/livevqa.json")
	source := filepath.Join(root, "../shared/data/livevqa-news/benchmark.json")
	if _, err := os.Stat(source); err != nil {
		t.Skip("the shared data is not here: ", source)
	}
	t.Chdir(root)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	run := func() *job.Run {
		r := job.Testing(t)
		r.RecipePath = "direct"
		return r
	}
	if err := corpus.Prep(t.Context(), run(), corpus.PrepOptions{Format: "livevqa", In: []string{source}, Out: at("questions"), MaxRejects: 0.1}); err != nil {
		t.Fatal(err)
	}
	var questions []corpus.Question
	for q, err := range table.ReadDataset[corpus.Question](at("questions")) {
		if err != nil {
			t.Fatal(err)
		}
		questions = append(questions, q)
	}
	judged, err := scripted.Lookup("judge", 0)
	if err != nil {
		t.Fatal(err)
	}
	says := httptest.NewServer(scripted.New(scripted.Options{Script: judged, Model: "judge_model"}).Handler())
	defer says.Close()
	var printed [2]string
	for i, share := range []float64{0.5, 0.59} {
		policy := httptest.NewServer(scripted.New(scripted.Options{Script: scripted.Oracle{Right: share}, Questions: questions}).Handler())
		out := at(strconv.Itoa(i))
		err := rollout.Run(t.Context(), run(), rollout.Options{Questions: at("questions"), PolicyURLs: []string{policy.URL + "/v1"}, Out: out + "/rollouts", Run: "oracle", Epoch: i, Mode: rollout.Eval, TensorBoard: at("board/rollout")})
		policy.Close()
		if err == nil {
			err = judge.Run(t.Context(), run(), judge.Options{Rollouts: out + "/rollouts", Out: out + "/judged", URL: says.URL + "/v1", Model: "judge_model", TensorBoard: at("board/judge")})
		}
		if err == nil {
			err = Evaluate(t.Context(), run(), Options{Bench: "livevqa", Rollouts: out + "/rollouts", Judged: out + "/judged", Questions: at("questions"), Out: out, TensorBoard: at("board/evaluate")})
		}
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		o := ShowOptions{Dir: out}
		if i == 1 {
			o.Baseline = at("0")
		}
		if err := Show(job.NewRun("evaluate", job.Flags{}, &text, &text), o); err != nil {
			t.Fatal(err)
		}
		printed[i] = text.String()
	}
	for _, tag := range []string{"rollout/answered", "judge/accuracy", "evaluate/accuracy/mean"} {
		files, _ := filepath.Glob(at("board/" + tag[:strings.Index(tag, "/")] + "/*tfevents*"))
		n := 0
		for _, f := range files {
			text, _ := os.ReadFile(f)
			n += strings.Count(string(text), tag)
		}
		if n != 2 {
			t.Errorf("%d points of %s for TensorBoard in %v", n, tag, files)
		}
	}
	rec, err := run().Recipe()
	if err != nil {
		t.Fatal(err)
	}
	check := func(who string, text []byte) {
		var want published
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatalf("%s: %v\n%s", who, err, text)
		}
		agree(t, who, dir, printed, &want)
	}
	python := os.Getenv("PYTHON")
	if python == "" {
		python = "python3"
	}
	if exec.Command(python, "-c", "import scipy, pyarrow").Run() == nil {
		text, err := exec.Command(python, script, at("0"), at("1"), fmt.Sprint(rec.Seed), fmt.Sprint(rec.Eval.Bootstrap)).Output()
		if err != nil {
			t.Fatalf("%s: %v", script, err)
		}
		check("the script", text)
		if os.Getenv("SEARCHLOOP_GOLDEN") != "" {
			if err := os.WriteFile(golden, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	} else {
		t.Logf("%s has no SciPy and PyArrow: compared with testdata/livevqa.json alone", python)
	}
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	check("livevqa.json", text)
}

func agree(t *testing.T, who, dir string, printed [2]string, want *published) {
	t.Helper()
	near := func(what string, got, want, tolerance float64) {
		t.Helper()
		if !(math.Abs(got-want) <= tolerance) {
			t.Errorf("%s: %s is %.12f, want %.12f", who, what, got, want)
		}
	}
	const digits, draws = 1e-12, 0.012 // of the same resamples; of SciPy's own
	interval := func(what string, got Interval, want measured) {
		t.Helper()
		near(what, got.Mean, want.Mean, digits)
		near(what+", low", got.Low, want.Low, digits)
		near(what+", high", got.High, want.High, digits)
		near(what+", low by SciPy's draws", got.Low, want.SciPyLow, draws)
		near(what+", high by SciPy's draws", got.High, want.SciPyHigh, draws)
	}
	has := func(where, text string) {
		t.Helper()
		if !strings.Contains(strings.Join(strings.Fields(where), " "), text) {
			t.Errorf("%s: %q is not printed:\n%s", who, text, where)
		}
	}
	for i, w := range []struct {
		N        int
		Accuracy measured
		Wilson   Interval
	}{want.A, want.B} {
		m, err := ReadMetrics(filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			t.Fatal(err)
		}
		if m.N != w.N || m.Failed != 0 || m.Unjudged != 0 {
			t.Errorf("%s: %d samples, %d failed, %d unjudged; want %d", who, m.N, m.Failed, m.Unjudged, w.N)
		}
		interval("accuracy", m.Accuracy, w.Accuracy)
		near("Wilson's interval, low", m.Score.Low, w.Wilson.Low, digits)
		near("Wilson's interval, high", m.Score.High, w.Wilson.High, digits)
		near("the judge's share", m.Scores["judge"], w.Accuracy.Mean, digits)
		has(printed[i], fmt.Sprintf("accuracy %.1f %% 95 %% interval %.1f to %.1f, %d samples", 100*w.Accuracy.Mean, 100*w.Accuracy.Low, 100*w.Accuracy.High, w.N))
		has(printed[i], fmt.Sprintf("Wilson interval %.1f to %.1f", 100*w.Wilson.Low, 100*w.Wilson.High))
	}
	c, err := CompareFolders(filepath.Join(dir, "0"), filepath.Join(dir, "1"), resamples, seed)
	if err != nil {
		t.Fatal(err)
	}
	w := &want.Comparison
	if len(w.Gained) == 0 || len(w.Lost) == 0 || !slices.Equal(c.Gained, w.Gained) || !slices.Equal(c.Lost, w.Lost) {
		t.Errorf("%s: won %v and lost %v, want %v and %v", who, c.Gained, c.Lost, w.Gained, w.Lost)
	}
	interval("difference", c.Paired.Difference, w.Difference)
	near("p of the paired bootstrap", c.Paired.P, w.P, digits)
	near("p of the paired bootstrap, exact", c.Paired.P, w.Exact, 0.03)
	near("p of McNemar's test", c.McNemar, w.McNemar, digits)
	has(printed[1], fmt.Sprintf("difference %+.1f points, 95 %% interval %+.1f to %+.1f, p = %.3g (paired bootstrap)", 100*w.Difference.Mean, 100*w.Difference.Low, 100*w.Difference.High, w.P))
	has(printed[1], fmt.Sprintf("%d won, %d lost p = %.3g (McNemar, exact)", len(w.Gained), len(w.Lost), w.McNemar))
}
