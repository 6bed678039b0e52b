package nightly

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"searchloop/eval"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/job/jobtest"
	"searchloop/internal/secret"
	"searchloop/rollout/trajectory"
)

// TestMake is no test: it stands in the place of make. It makes the evaluation of a
// benchmark whose questions are answered rightly where RIGHT has a 1, by the real job.
// A benchmark that FAILS names has a judge that is gone.
func TestMake(t *testing.T) {
	right := os.Getenv("NIGHTLY_TEST_RIGHT")
	if right == "" {
		t.Skip("called by the other tests")
	}
	var v, bench string
	for _, a := range flag.Args() {
		if s, ok := strings.CutPrefix(a, "V="); ok {
			v = s
		}
		if s, ok := strings.CutPrefix(a, "BENCH="); ok {
			bench = s
		}
	}
	dir := filepath.Join(v, "epoch-1")
	if flag.Arg(flag.NArg()-1) != filepath.Join(dir, "manifest.json") {
		t.Fatalf("asked for %v", flag.Args())
	}
	if os.Getenv("NIGHTLY_TEST_FAILS") == bench {
		jsonFile(t, filepath.Join(dir, "judged.summary.json"), job.Summary{Exit: 69, Error: "the judge is gone"})
		t.FailNow()
	}
	var rows []trajectory.Row
	var verdicts []trajectory.Judged
	type question struct {
		ID   string `parquet:"id"`
		Meta string `parquet:"meta"`
	}
	var questions []question
	for i, c := range right {
		q := fmt.Sprintf("q%02d", i)
		row := trajectory.Row{ID: q + "#0", Question: q, Run: "r", Epoch: 1, Text: "what is <b>" + q, Answers: []string{"yes"}, Answer: "no", Status: trajectory.OK,
			Turns: []trajectory.Turn{{Role: "assistant", Text: "no", Tokens: 3}}}
		j := trajectory.Judged{ID: row.ID, Verdict: trajectory.Incorrect, By: "exact", Scored: true}
		if c == '1' {
			row.Answer, j.Verdict, j.Correct, j.Reward = "yes", trajectory.Correct, true, 1
		}
		rows, verdicts, questions = append(rows, row), append(verdicts, j), append(questions, question{q, "{}"})
	}
	rollouts := jobtest.Dataset(t, filepath.Join(dir, "rollouts"), trajectory.RolloutsSchema, trajectory.Version, rows...)
	judged := jobtest.Dataset(t, filepath.Join(dir, "judged"), trajectory.JudgedSchema, trajectory.Version, verdicts...)
	asked := jobtest.Dataset(t, filepath.Join(os.Getenv("NIGHTLY_TEST_DIR"), "questions"), "searchloop/questions", 1, questions...)
	r := job.Testing(t)
	r.RecipePath = "demo"
	if err := eval.Evaluate(context.Background(), r, eval.Options{Bench: bench, Rollouts: rollouts, Judged: judged, Questions: asked, Out: dir}); err != nil {
		t.Fatal(err)
	}
}

func jsonFile(t *testing.T, path string, v any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o777)
	}
	if err == nil {
		err = os.WriteFile(path, text, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// world is a run whose nights are held in the tests' place.
type world struct {
	*testing.T
	run  string
	hook secret.Value
}

// fire is one firing; it gives its error and what it said and logged.
func (w *world) fire(name, right, fails string, benches ...string) (string, error) {
	w.Helper()
	w.Setenv("NIGHTLY_TEST_RIGHT", right)
	w.Setenv("NIGHTLY_TEST_FAILS", fails)
	w.Setenv("NIGHTLY_TEST_DIR", w.run)
	var out bytes.Buffer
	r := job.NewRun("nightly", job.Flags{RecipePath: "demo", ProgressMode: "none"}, &out, &out)
	drop := 0.1
	err := Run(context.Background(), r, Options{Run: w.run, Epochs: []int{1}, Benches: benches, Night: name, Served: true, MaxDrop: &drop, Webhook: w.hook,
		Make: []string{os.Args[0], "-test.run=^TestMake$", "-test.count=1", "--"}})
	return out.String(), err
}

func (w *world) history() string {
	w.Helper()
	rows, err := ReadHistory(filepath.Join(w.run, "nights"))
	if err != nil {
		w.Fatal(err)
	}
	var out []string
	for _, r := range rows {
		out = append(out, fmt.Sprintf("%s %s %.1f %v", r.Night, r.Bench, r.Accuracy, r.Broke))
	}
	return strings.Join(out, ", ")
}

func TestNights(t *testing.T) {
	t.Chdir("../..")
	var told []string
	hook := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var res Result
		if err := json.NewDecoder(r.Body).Decode(&res); err != nil {
			t.Error(err)
		}
		told = append(told, fmt.Sprintf("%s %d", res.Night, res.Exit))
		rw.WriteHeader(http.StatusTeapot) // not taken
	}))
	defer hook.Close()
	w := &world{T: t, run: filepath.Join(t.TempDir(), "runs", "r"), hook: secret.New(hook.URL + "/canary-nightly")}

	said, err := w.fire("n1", "1111100000", "", "x", "y")
	if err != nil || w.history() != "n1 x 0.5 false, n1 y 0.5 false" || !strings.Contains(said, "nothing to compare with yet") || !strings.Contains(said, "http 418") || strings.Contains(said, "canary") {
		t.Fatalf("%v; %s\n%s", err, w.history(), said)
	}

	// Power goes between the two benchmarks; the next firing goes on, and the history has each once.
	said, err = w.fire("n2", "0011100000", "y", "x", "y")
	if fail.KindOf(err) != fail.Service || !strings.Contains(err.Error(), "the judge is gone") || w.history() != "n1 x 0.5 false, n1 y 0.5 false, n2 x 0.3 true" {
		t.Fatalf("%v; %s\n%s", err, w.history(), said)
	}
	for range 2 { // the second has nothing to do and says the same
		said, err = w.fire("n2", "0011100000", "", "x", "y")
		if fail.ExitCode(err) != 3 || w.history() != "n1 x 0.5 false, n1 y 0.5 false, n2 x 0.3 true, n2 y 0.3 true" {
			t.Fatalf("%v; %s\n%s", err, w.history(), said)
		}
		for _, want := range []string{"REGRESSION", "lost  q00", "lost  q01", "before: yes; now: no", `"night":"n2"`} {
			if !strings.Contains(said, want) {
				t.Errorf("%q is not told:\n%s", want, said)
			}
		}
	}
	page, err := os.ReadFile(filepath.Join(w.run, "nights", "trends.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"n2/x.html#sample=q00%230@0", "&lt;b&gt;q00", "<svg", "REGRESSION"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page of trends lacks %q", want)
		}
	}
	if strings.Contains(string(page), "ZgotmplZ") {
		t.Error("html/template refused a value")
	}
	if _, err := os.Stat(filepath.Join(w.run, "nights", "n2", "y.html")); err != nil {
		t.Error(err)
	}

	// Of the next night the first benchmark is made, and it is never finished under its
	// name: the one after finishes it and then holds its own. Both compare with n1.
	if _, err = w.fire("n3", "1111100000", "y", "x", "y"); err == nil {
		t.Fatal("a judge that is gone is no error")
	}
	said, err = w.fire("n4", "1111110000", "", "x", "y")
	if want := "n3 x 0.5 false, n3 y 0.6 false, n4 x 0.6 false, n4 y 0.6 false"; err != nil || !strings.HasSuffix(w.history(), want) || !strings.Contains(said, "points since n3") {
		t.Fatalf("%v; %s\n%s", err, w.history(), said)
	}
	// One that fails again is given up, so that it holds up nobody; the rest of its rows stay.
	if _, err = w.fire("n5", "1111110000", "y", "x", "y"); err == nil {
		t.Fatal("a judge that is gone is no error")
	}
	if said, err = w.fire("n6", "1111110000", "y", "x"); err != nil || !strings.Contains(said, "given up") || !strings.HasSuffix(w.history(), "n5 x 0.6 false, n6 x 0.6 false") {
		t.Fatalf("%v; %s\n%s", err, w.history(), said)
	}
	if want := []string{"n1 0", "n2 69", "n2 3", "n3 69", "n3 0", "n4 0", "n5 69", "n6 0"}; !slices.Equal(told, want) {
		t.Errorf("the webhook heard %v, want %v", told, want)
	}

	before := w.history()
	release, _, err := job.TryLock(filepath.Join(w.run, "nights", ".lock"))
	if err != nil {
		t.Fatal(err)
	}
	if said, err := w.fire("n7", "1", "", "x"); err != nil || !strings.Contains(said, "still running") || w.history() != before {
		t.Errorf("beside another one: %v\n%s", err, said)
	}
	release()

	// A damaged history is refused; without it the next night writes it anew.
	path := filepath.Join(w.run, "nights", HistoryFile)
	if err := os.WriteFile(path, []byte("PAR1"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := w.fire("n7", "1111110000", "", "x"); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "move the file away") {
		t.Errorf("a damaged history: %v", err)
	}
	os.Remove(path)
	if _, err := w.fire("n7", "1111110000", "", "x"); err != nil {
		t.Error(err)
	}
	if got, want := w.history(), strings.Replace(before, "n5 x 0.6 false, ", "", 1)+", n7 x 0.6 false"; got != want {
		t.Errorf("written anew: %s\nwant          %s", got, want)
	}
}

func TestRefusals(t *testing.T) {
	t.Chdir("../..")
	good := Options{Run: t.TempDir(), Epochs: []int{1}, Bench: "x", Make: []string{"false"}}
	for name, change := range map[string]func(o *Options, r *job.Run){
		"no checkpoint": func(o *Options, r *job.Run) {},
		"no epoch":      func(o *Options, r *job.Run) { o.Epochs = nil },
		"a path":        func(o *Options, r *job.Run) { o.Night = "a/b" },
		"no make":       func(o *Options, r *job.Run) { o.Make = nil },
		"not live":      func(o *Options, r *job.Run) { o.Live = true },
		"unfrozen":      func(o *Options, r *job.Run) { r.RecipePath, o.Served = "mm-deepresearch-live", true },
	} {
		o, r := good, job.Testing(t)
		r.RecipePath = "demo"
		change(&o, r)
		if err := Run(context.Background(), r, o); fail.KindOf(err) != fail.Usage || err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
