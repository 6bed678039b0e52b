package score

import (
	"encoding/json"
	"os"
	"testing"
)

// Every metric that has a published scorer gives that scorer's value; golden.py
// says how golden.json was made.
func TestPublishedScorers(t *testing.T) {
	text, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Metric, Answer, Category, Meta string
		Accepted                       []string
		Want                           float64
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	seen := map[string][2]int{}
	for _, c := range cases {
		m, err := Named(c.Metric)
		if err != nil {
			t.Fatal(err)
		}
		got := m.Score(Item{Answer: c.Answer, Accepted: c.Accepted, Category: c.Category, Meta: c.Meta})
		if got != c.Want {
			t.Errorf("%s: answer %q, accepted %q, %s %s: %v, published %v", c.Metric, c.Answer, c.Accepted, c.Category, c.Meta, got, c.Want)
		}
		n := seen[c.Metric]
		n[int(c.Want)]++
		seen[c.Metric] = n
	}
	for _, name := range []string{"infoseek", "chartqa", "mme", "ocrbench"} {
		if n := seen[name]; n[0] == 0 || n[1] == 0 {
			t.Errorf("%s: %d wrong and %d right cases", name, n[0], n[1])
		}
	}
}

func TestChoice(t *testing.T) {
	accepted := []string{"Blue whale", "the whale", "B. Blue whale", "B"}
	for answer, want := range map[string]bool{
		"B": true, "(B)": true, "B.": true, "b)": true, "B. Blue whale": true, "B: blue whale": true, "blue whale": true, "The Whale": true, "Option B": true,
		"Answer: B": true, "The correct answer is B": true, "**B**": true, "b": true, "A": false, "A. Blue whale": false, "A or B": false, "B or C": false, "B. Red fox": false,
		"": false, "Both": false, "Blue": false, "not B": false, "[B]": true, "Option A": false, "a blue whale": true, "A blue whale": true, "a": false,
	} {
		if got := Choice(answer, accepted); got != want {
			t.Errorf("%q: %v", answer, got)
		}
	}
	if Choice("A", []string{"x", "B"}) || !Choice("A", []string{"Origami", "A. Origami", "A"}) || Choice("", []string{"A"}) {
		t.Error("the letter A")
	}
}

func TestMathVista(t *testing.T) {
	for _, c := range []struct {
		answer, truth, meta string
		want                float64
	}{
		{"14", "14", `{"question_type":"free_form","answer_type":"integer"}`, 1},
		{"14.9", "14", `{"question_type":"free_form","answer_type":"integer"}`, 1}, // int(float("14.9"))
		{"15", "14", `{"question_type":"free_form","answer_type":"integer"}`, 0},
		{"1.449", "1.45", `{"question_type":"free_form","answer_type":"float","precision":2.0}`, 1},
		{"1.44", "1.45", `{"question_type":"free_form","answer_type":"float","precision":2.0}`, 0},
		{"0.5", "0.50", `{"question_type":"free_form","answer_type":"float","precision":1.0}`, 1},
		{"fourteen", "14", `{"question_type":"free_form","answer_type":"integer"}`, 0},
		{"[1, 2]", "[1, 2]", `{"question_type":"free_form","answer_type":"list"}`, 1},
		{"1e400", "1", `{"answer_type":"float","precision":1}`, 0},
		{"2", "2", `{"answer_type":"float","precision":1e9}`, 1},
	} {
		if got := (Item{}).with(c.answer, c.truth, c.meta).score(t, "mathvista"); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	choice := Item{Answer: "(A)", Accepted: []string{"Yes", "A. Yes", "A"}, Meta: `{"question_type":"multi_choice","answer_type":"text"}`}
	if choice.score(t, "mathvista") != 1 {
		t.Error("a letter of a multiple choice")
	}
}

func (i Item) with(answer, truth, meta string) Item {
	return Item{Answer: answer, Accepted: []string{truth}, Meta: meta}
}

func (i Item) score(t *testing.T, name string) float64 {
	t.Helper()
	m, err := Named(name)
	if err != nil {
		t.Fatal(err)
	}
	return m.Score(i)
}

func TestAnEmptyAnswerIsNeverRight(t *testing.T) {
	for _, name := range Names() {
		if v := (Item{Answer: " \n", Accepted: []string{"", "0", "A", "x"}, Category: "numerical", Meta: `{"range":[0,0]}`, Verdict: true}).score(t, name); v != 0 {
			t.Errorf("%s gives an empty answer %v", name, v)
		}
	}
	if _, err := Named("no-such"); err == nil {
		t.Error("an unknown metric is found")
	}
}

// Whatever an answer is, a metric gives a value in [0, 1].
func FuzzScore(f *testing.F) {
	f.Add("1-2-3", "1", "numerical", `{"range":[1,"2"]}`)
	f.Add("B. x", "B", "", `{"question_type":"multi_choice"}`)
	f.Add("9", "9", "", `{"answer_type":"float","precision":-1}`)
	f.Fuzz(func(t *testing.T, answer, accepted, category, meta string) {
		for _, name := range Names() {
			m, _ := Named(name)
			if v := m.Score(Item{Answer: answer, Accepted: []string{accepted}, Category: category, Meta: meta}); !(v >= 0 && v <= 1) {
				t.Errorf("%s: %v", name, v)
			}
		}
	})
}
