package stats

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/corpus"
	"searchloop/internal/job"
)

func dataset(t *testing.T, split, rows string) string {
	t.Helper()
	in := filepath.Join(t.TempDir(), "rows.jsonl")
	os.WriteFile(in, []byte(rows), 0o600)
	out := t.TempDir()
	if err := corpus.Prep(context.Background(), job.Testing(t), corpus.PrepOptions{Format: "jsonl", In: []string{in}, Out: out, Split: split, MaxRejects: 1}); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestLeaks finds what was planted and nothing else.
func TestLeaks(t *testing.T) {
	var train, test strings.Builder
	for i := range 300 {
		fmt.Fprintf(&train, `{"id":"a%d","question":"What is the name of the river that flows through town number %d of the county?","answer":"r%d"}`+"\n", i, i*7919, i)
		fmt.Fprintf(&test, `{"id":"b%d","question":"Who painted portrait %d in the gallery of modern art, and in which year?","answer":"p%d"}`+"\n", i, i*104729, i)
	}
	fmt.Fprintln(&test, `{"id":"same","question":"what is the NAME of the river that flows through town number 7919 of the county","answer":"R1"}`)
	fmt.Fprintln(&test, `{"id":"near","question":"So what is the name of the river that flows through town number 7919 of the county?","answer":"r1"}`)
	fmt.Fprintln(&test, `{"id":"other answer","question":"What is the name of the river that flows through town number 0 of the county?","answer":"another"}`)
	f, err := Collect(context.Background(), job.Testing(t), Options{In: []string{dataset(t, "train", train.String()), dataset(t, "test", test.String())}})
	if err != nil {
		t.Fatal(err)
	}
	l := f.Leaks
	if l.TrainQuestions != 300 || l.TestQuestions != 303 || l.SameText != 2 || l.NearText != 1 || l.Leaked != 2 || len(l.Pairs) != 3 {
		t.Errorf("%+v", l)
	}
	for _, p := range l.Pairs {
		if p.Test != "other answer" && (p.Train != "a1" || !p.SameAnswer) {
			t.Errorf("%+v", p)
		}
	}
}

func TestPage(t *testing.T) {
	dir := t.TempDir()
	evil := dataset(t, "train", `{"id":"x","question":"<script>alert(1)</script>?","answer":"1,000 km","category":"</style><b>"}`+"\n"+`{"id":"y","question":"When?","answer":"May 1923"}`+"\n")
	test := dataset(t, "test", `{"id":"z","question":"<script>alert(1)</script>?","answer":"1,000 km"}`+"\n")
	out := filepath.Join(dir, "stats.html")
	r := job.Testing(t)
	if err := Write(context.Background(), r, Options{In: []string{evil, test}, Out: out}); err != nil {
		t.Fatal(err)
	}
	html, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"<script", "</style><b>", "http://", "src="} {
		if strings.Contains(strings.ReplaceAll(string(html), "http://www.w3.org", ""), s) {
			t.Errorf("the page holds %q", s)
		}
	}
	if !strings.Contains(string(html), "date or year") || !strings.Contains(string(html), "<svg") {
		t.Error("figures are missing")
	}
	var f Figures
	text, _ := os.ReadFile(filepath.Join(dir, "stats.json"))
	if err := json.Unmarshal(text, &f); err != nil || f.Questions.N != 3 || f.Leaks.Leaked != 1 || f.Questions.SameTexts != 1 {
		t.Errorf("%+v %v", f, err)
	}
}

func TestAnswerKinds(t *testing.T) {
	for a, want := range map[string]string{
		"Yes.": "yes or no", "B": "letter", "1923": "date or year", "May 1, 1923": "date or year", "3/4/2021": "date or year", "-12.5 km": "number", "98": "number",
		"1,200,000": "number", "Gaudí": "1 to 3 words", "the river that flows east": "4 to 10 words", strings.Repeat("w ", 12): "longer text",
	} {
		if got := answerKind(a); got != want {
			t.Errorf("%q is %q, want %q", a, got, want)
		}
	}
}

func TestSpread(t *testing.T) {
	var n numbers
	for i := range 1000 {
		n.add(i)
	}
	n.add(1 << 40)
	s := n.spread()
	total := int64(0)
	for _, b := range s.Bins {
		total += b.N
	}
	if s.N != 1001 || total != 1001 || s.Median != 500 || s.Ninety != 900 || s.Least != 0 || s.Greatest != 1<<40 || len(s.Bins) > 25 {
		t.Errorf("%+v", s)
	}
	if s := (numbers)(nil).spread(); s.N != 0 {
		t.Error(s)
	}
}
