package balance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/corpus"
	"searchloop/internal/job"
	"searchloop/internal/job/jobtest"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
	"searchloop/internal/table"
	"searchloop/rollout/trajectory"
)

// rule is a recipe with all kinds of tools.
const rule = `name: t
seed: 3
sampling: {train: {n: 1}, eval: {n: 1}}
tools:
  - {name: look, kind: image_search_by_lens}
  - {name: read, kind: text_search}
  - {name: calc, kind: python}
curate: {rollouts: 2, required: 17, free: 8, bins: 2}
`

// played is a rollout that calls the given tools; a tool with "!" is not answered.
func played(q string, k int, calls ...string) trajectory.Row {
	r := trajectory.Row{ID: fmt.Sprint(q, "#", k), Question: q, Sample: int32(k), Status: trajectory.OK, Policy: "p"}
	r.Turns = []trajectory.Turn{{Role: "user", Text: q}}
	for _, c := range calls {
		name, failed := strings.CutSuffix(c, "!")
		tool := trajectory.Turn{Role: "tool", Call: name}
		if failed {
			tool.Error = "no such thing"
		}
		r.Turns = append(r.Turns, trajectory.Turn{Role: "assistant", Call: name}, tool)
	}
	r.Turns = append(r.Turns, trajectory.Turn{Role: "assistant"})
	return r
}

type try struct {
	verdict string
	calls   []string
}

func yes(calls ...string) try { return try{trajectory.Correct, calls} }
func no(calls ...string) try  { return try{trajectory.Incorrect, calls} }

func TestLabels(t *testing.T) {
	for _, c := range []struct {
		want  string
		free  int
		tries []try
	}{
		{corpus.NeedUnknown, 1, []try{no(), no("read")}},
		{corpus.NeedNone, 1, []try{yes(), yes("read"), yes("read")}},
		{corpus.NeedNone, 1, []try{no("read"), yes("calc")}},           // computing is no search
		{corpus.NeedNone, 1, []try{yes("read!"), yes("look", "read")}}, // what was not answered brought nothing
		{corpus.NeedText, 2, []try{yes(), yes("read")}},
		{corpus.NeedUnknown, 2, []try{yes(), no("read")}},
		{corpus.NeedImage, 1, []try{yes("look"), no("read")}},
		{corpus.NeedText, 1, []try{yes("read"), yes("read"), yes("look", "read")}},
		{corpus.NeedMixed, 1, []try{yes("look", "read"), yes("look", "read"), yes("read")}},
		{corpus.NeedText, 1, []try{yes("look", "read"), yes("read")}}, // as many: the one that searches less
		{corpus.NeedImage, 1, []try{yes("look", "read"), yes("look"), yes("read")}},
	} {
		of := map[string]search{"look": images, "read": texts}
		n := count{}
		for _, tr := range c.tries {
			row := played("q", 0, tr.calls...)
			found, asked := searched(row.Turns, of)
			n.add(tr.verdict == trajectory.Correct, found, asked)
		}
		if got := n.label(c.free); got.Need != c.want || got.Rollouts != int32(len(c.tries)) {
			t.Errorf("%v: %+v, want %s", c.tries, got, c.want)
		}
	}
}

func TestTargets(t *testing.T) {
	for _, c := range []struct{ free, required, f, r int }{
		{5000, 9000, 1600, 3400}, {160, 9000, 160, 340}, {5000, 34, 16, 34}, {0, 10, 0, 0},
	} {
		if f, r := targets(recipe.Curate{Required: 3400, Free: 1600}, c.free, c.required); f != c.f || r != c.r {
			t.Errorf("%+v: %d and %d", c, f, r)
		}
	}
	if f, r := targets(recipe.Curate{}, 3, 4); f != 3 || r != 4 {
		t.Error(f, r)
	}
}

// world is questions with rollouts of them: the need of a question is known from its
// number, and its pass rate too.
func world(t *testing.T, n int) (o Options, needs map[string]string) {
	t.Helper()
	dir := t.TempDir()
	needs = map[string]string{}
	var qs []corpus.Question
	var rows []trajectory.Row
	var verdicts []trajectory.Judged
	for i := range n {
		id := fmt.Sprintf("q%04d", i)
		q := corpus.Question{ID: id, Text: "What is " + id + "?", Answers: []string{"a"}, Category: []string{"art", "sport"}[i/7%2]}
		if i%3 == 0 {
			png := append([]byte("\x89PNG\r\n\x1a\n"), id...)
			store, err := corpus.OpenStore(filepath.Join(dir, "q", "images"))
			if err != nil {
				t.Fatal(err)
			}
			sha, err := store.Put(png)
			if err != nil {
				t.Fatal(err)
			}
			q.ImageIDs, q.Images = []string{sha}, []corpus.ImageCell{{}}
		}
		qs = append(qs, q)
		var tries []try
		switch i % 7 {
		case 0:
			needs[id], tries = corpus.NeedUnknown, []try{no(), no("read"), no("look")}
		case 1:
			needs[id], tries = corpus.NeedNone, []try{yes(), yes("look"), no()}
		case 2, 3:
			needs[id], tries = corpus.NeedText, []try{yes("read"), no(), yes("read")}
		case 4:
			needs[id], tries = corpus.NeedImage, []try{yes("look"), yes("look"), yes("look")}
		case 5:
			needs[id], tries = corpus.NeedMixed, []try{yes("look", "read"), no("look"), no()}
		case 6:
			needs[id], tries = corpus.NeedUnknown, []try{yes(), {trajectory.Unparsable, nil}, {trajectory.JudgeError, nil}}
		}
		for k, tr := range tries {
			row := played(id, k, tr.calls...)
			rows = append(rows, row)
			verdicts = append(verdicts, trajectory.Judged{ID: row.ID, Question: id, Status: row.Status, Verdict: tr.verdict, Correct: tr.verdict == trajectory.Correct, Scored: true})
		}
	}
	return Options{
		Questions: jobtest.Dataset(t, filepath.Join(dir, "q"), corpus.Questions, 1, qs...), Out: filepath.Join(dir, "out"),
		Rollouts: jobtest.Dataset(t, filepath.Join(dir, "r"), trajectory.RolloutsSchema, 1, rows...),
		Judged:   jobtest.Dataset(t, filepath.Join(dir, "j"), trajectory.JudgedSchema, 1, verdicts...),
	}, needs
}

func run(t *testing.T, o Options, set ...string) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "r.yaml")
	if err := os.WriteFile(path, []byte(rule), 0o600); err != nil {
		t.Fatal(err)
	}
	r := job.Testing(t)
	r.RecipePath, r.Set = path, set
	return Run(t.Context(), r, o)
}

func TestBalance(t *testing.T) {
	o, needs := world(t, 280)
	if err := run(t, o, "curate.truth={art: free, sport: text}"); err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Open(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	if c := m.Counts; c.In != 280 || c.OK != 25 || c.Rejected != 255 {
		t.Errorf("%+v", c)
	}
	byNeed, byGroup := map[string]int{}, map[string]int{}
	for q, err := range table.ReadDataset[corpus.Tried](o.Out) {
		if err != nil {
			t.Fatal(err)
		}
		if q.Trial == nil || q.Trial.Need != needs[q.ID] || q.Trial.Policy != "p" || q.Trial.Rollouts != 3 {
			t.Errorf("%s: %+v, want %s", q.ID, q.Trial, needs[q.ID])
		}
		byNeed[q.Trial.Need]++
		byGroup[q.Category]++
		for i, id := range q.ImageIDs {
			if *q.Images[i].Path != "images/"+id[:2]+"/"+id+".png" {
				t.Error(*q.Images[i].Path)
			}
			if _, err := os.Stat(filepath.Join(o.Out, *q.Images[i].Path)); err != nil {
				t.Error(err)
			}
		}
	}
	// 160 need a search, half of them text, a quarter each image and both: so do the
	// 17 drawn, but for rounding, and the two categories are equally many.
	if byNeed["free"] != 8 || byNeed["text"] < 8 || byNeed["text"] > 9 || byNeed["image"] < 4 || byNeed["mixed"] < 4 {
		t.Error(byNeed)
	}
	if d := byGroup["art"] - byGroup["sport"]; d < -3 || d > 3 {
		t.Error(byGroup)
	}
	// A second run finds everything done; the same from scratch gives the same bytes.
	first, _ := os.ReadFile(filepath.Join(o.Out, m.Parts[0].Name))
	again := o
	again.Out = filepath.Join(t.TempDir(), "again")
	if err := run(t, again, "curate.truth={art: free, sport: text}"); err != nil {
		t.Fatal(err)
	}
	second, _ := os.ReadFile(filepath.Join(again.Out, m.Parts[0].Name))
	if len(first) == 0 || string(first) != string(second) {
		t.Error("other bytes")
	}
	var report Report
	text, err := os.ReadFile(filepath.Join(o.Out, ReportFile))
	if err == nil {
		err = json.Unmarshal(text, &report)
	}
	if err != nil || report.Unsolved != 40 || report.Untried != 40 || report.Surplus != 175 || report.Drawn != (Mix{17, 8, 0.68}) || report.Labelled["text"] != 80 {
		t.Errorf("%v %+v", err, report)
	}
	// 100 of either category have a label: 20 of art are free, 40 of sport need texts,
	// and the other 40 of sport that need a search are on the right side.
	if report.Truth == nil || report.Truth.Labels != (Labels{N: 200, Right: 60, Share: 0.3, Side: 100}) || report.Truth.AnyFree != report.Truth.Labels {
		t.Errorf("%+v", report.Truth)
	}
}

// The two rules of a free question are told apart: one right guess, or two.
func TestTruth(t *testing.T) {
	r := newReport(recipe.Curate{MinFree: 2, Truth: map[string]string{"a": corpus.NeedText}})
	q := &labelled{Tried: corpus.Tried{Question: corpus.Question{Category: "a"}, Trial: &corpus.Trial{Need: corpus.NeedText, Rollouts: 3, Correct: 3, Free: 1, Text: 2}}}
	r.add(q)
	if *r.Truth != (Truth{MinFree: 2, Labels: Labels{N: 1, Right: 1, Share: 1, Side: 1}, AnyFree: Labels{N: 1}}) {
		t.Errorf("%+v", r.Truth)
	}
}

// What does not belong together is said, with what to do.
func TestBadInput(t *testing.T) {
	o, _ := world(t, 14)
	other, _ := world(t, 7)
	mixed := o
	mixed.Judged = other.Judged
	if err := run(t, mixed); err == nil || !strings.Contains(err.Error(), "no verdict for this trajectory") {
		t.Error(err)
	}
	mixed = o
	mixed.Questions = other.Questions
	if err := run(t, mixed); err == nil || !strings.Contains(err.Error(), "7 of them are not here") {
		t.Error(err)
	}
	if err := run(t, o, "curate.rollouts=9"); err == nil || !strings.Contains(err.Error(), "no question can be drawn") {
		t.Error(err)
	}
	if err := run(t, Options{Out: o.Out}); err == nil {
		t.Error("nothing given")
	}
}
