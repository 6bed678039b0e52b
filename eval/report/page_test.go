package report

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"searchloop/corpus"
	"searchloop/eval"
	"searchloop/internal/fail"
	"searchloop/rollout/trajectory"
)

func picture(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 2, 2))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func render(t *testing.T, epochs []Epoch, store *corpus.ImageStore) string {
	t.Helper()
	v, err := view(Options{Run: "runs/r", Bench: "b", Out: "x.html"}, epochs, store)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := page.Execute(&b, v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func sampleOf(id string, right bool, text string) eval.Sample {
	s := eval.Sample{ID: id, Question: strings.TrimSuffix(id, "#0"), Category: text, Text: text, Answer: text, Truth: []string{text}, Correct: right, Scored: true, Calls: []string{"text_search"}}
	if right {
		s.Score = 1
	}
	return s
}

func TestPage(t *testing.T) {
	store, err := corpus.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	sha, err := store.Put(picture(t))
	if err != nil {
		t.Fatal(err)
	}
	evil := "</pre></script><script>alert(\"x\")</script>\u2028<!--<script>"
	one := func(correct bool) played {
		return played{
			trajectory.Row{ID: "q#0", Question: "q", Category: evil, Text: evil, Answers: []string{evil}, Status: trajectory.OK, Answer: evil, Turns: []trajectory.Turn{
				{Role: "user", Text: evil, Images: []string{sha, strings.Repeat("0", 64)}},
				{Role: "assistant", Text: evil, Call: "text_search", Tokens: 3, Finish: "length"},
				{Role: "tool", Text: evil, Call: "text_search", Error: evil, Images: []string{sha}},
			}},
			trajectory.Judged{ID: "q#0", Verdict: trajectory.Incorrect, By: "judge", Reply: evil, Correct: correct, Scored: true, Reward: 0.1},
			sampleOf("q#0", correct, evil),
		}
	}
	metrics := func(acc float64) *eval.Metrics {
		return &eval.Metrics{Schema: 1, N: 1, Questions: 1, Accuracy: eval.Interval{Mean: acc}, ByTool: map[string]float64{"text_search": 1}, ByCategory: map[string]eval.Group{evil: {N: 1}}}
	}
	html := render(t, []Epoch{
		{N: 0, Eval: metrics(0), samples: []played{one(false)}, scores: []eval.Sample{sampleOf("q#0", false, evil)}},
		{N: 1, Eval: metrics(1), Reward: 0.5, Scored: 4, Updates: []Update{{"kl": 0.1}, {"kl": 0.2}}, samples: []played{one(true)}, scores: []eval.Sample{sampleOf("q#0", true, evil)}},
	}, store)

	if strings.Contains(html, "<script>alert") {
		t.Error("text of a trajectory became markup")
	}
	if n := strings.Count(html, "data:image/png;base64,"); n != 1 {
		t.Errorf("the image is in the page %d times, want once", n)
	}
	if outside := regexp.MustCompile(`(src|href)="?(https?:)?//`).FindString(html); outside != "" {
		t.Errorf("the page reaches outside: %s", outside)
	}
	for _, want := range []string{"Mean training reward", "GRPO update: kl", "1 questions won, 0 lost", "font: 15px"} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, m := range regexp.MustCompile(`<script type="text/plain" id="(?:data|chunk)-[^"]*">([^<]*)<`).FindAllStringSubmatch(html, -1) {
		if _, err := base64.StdEncoding.DecodeString(m[1]); err != nil || m[1] == "" {
			t.Errorf("samples are not base64 in the page: %v", err)
		}
	}
	if strings.Contains(html, "ZgotmplZ") {
		t.Error("html/template refused a value")
	}
}

func TestSummaryTakesFirstAndLastEvaluation(t *testing.T) {
	m := func(acc float64, n int) *eval.Metrics {
		return &eval.Metrics{N: n, Accuracy: eval.Interval{Mean: acc}, SearchRatio: acc / 2}
	}
	s := summarize(Options{Out: "r.html", Seconds: 3}, []Epoch{{N: 0, Eval: m(.25, 8)}, {N: 1, Scored: 2, Reward: .5}, {N: 2, Scored: 2, Reward: .75, Eval: m(.5, 8)}, {N: 3, Scored: 1, Reward: 1}})
	if s.AccuracyWarm != .25 || s.AccuracyFinal != .5 || s.N != 8 || s.SearchRatio != .25 || len(s.Reward) != 3 || s.Reward[1] != .75 || s.Seconds != 3 {
		t.Errorf("%+v", s)
	}
}

func TestASecondRunKeepsTheSecondsOfTheFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "summary.json")
	s := Summary{AccuracyFinal: .5, Reward: []float64{.25}, Seconds: 1}
	if got := keepSeconds(path, s); got != 1 {
		t.Errorf("no summary yet: %v", got)
	}
	if err := os.WriteFile(path, []byte(`{"accuracy_final":0.5,"reward":[0.25],"seconds":200}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := keepSeconds(path, s); got != 200 {
		t.Errorf("the same loop: %v, want 200", got)
	}
	s.AccuracyFinal = .75
	if got := keepSeconds(path, s); got != 1 {
		t.Errorf("another loop: %v, want 1", got)
	}
}

func TestRunsWithNothingToShow(t *testing.T) {
	dir := t.TempDir()
	if _, err := Collect(dir, "b", 10); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "make eval") {
		t.Errorf("empty run: %v", err)
	}
	// A metrics.jsonl that a killed job left with a torn last line.
	if err := os.MkdirAll(filepath.Join(dir, "epoch-1", "checkpoint"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "epoch-1", "checkpoint", "metrics.jsonl"), []byte("{\"step\":1,\"kl\":0.5}\n{\"step\":2,\"k"), 0o644); err != nil {
		t.Fatal(err)
	}
	epochs, err := Collect(dir, "b", 10)
	if err != nil || len(epochs) != 1 || len(epochs[0].Updates) != 1 || epochs[0].Updates[0]["kl"] != 0.5 {
		t.Errorf("%v %v", epochs, err)
	}
}

// What the page says of the figures of others, it says with how far they were looked up.
func TestPublishedFiguresSayWhereTheyWereRead(t *testing.T) {
	store, err := corpus.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("../..")
	for bench, wants := range map[string][]string{
		"livevqa-open": {"Osilly/Vision-DeepResearch; read at its authors", "restates it; <b>unverified</b>; another restatement says 54.3"},
		"nq":           {"Its count of 3610: unverified", "arXiv 2503.09516 table 2; as restated by others"},
	} {
		v, err := view(Options{Run: "runs/r", Bench: bench, Out: "x.html"}, []Epoch{{Eval: &eval.Metrics{N: 1, Questions: 1, Count: 3610}}}, store)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := page.Execute(&b, v); err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: the page lacks %q", bench, want)
			}
		}
	}
}
