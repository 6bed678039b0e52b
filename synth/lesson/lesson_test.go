package lesson

import (
	"bufio"
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
	"searchloop/rollout/trajectory"
)

func said(q string, k int, texts ...string) trajectory.Row {
	r := trajectory.Row{ID: fmt.Sprint(q, "#", k), Question: q, Sample: int32(k), Status: trajectory.OK}
	r.Turns = []trajectory.Turn{{Role: "system", Text: "Be short."}, {Role: "user", Text: q}}
	for i, text := range texts {
		if i > 0 {
			r.Turns = append(r.Turns, trajectory.Turn{Role: "tool", Call: "text_search", Text: "found"})
		}
		r.Turns = append(r.Turns, trajectory.Turn{Role: "assistant", Text: text, Tokens: int32(len(text)), Finish: "stop"})
	}
	return r
}

func TestChoose(t *testing.T) {
	right := verdict{true, true, 1}
	for _, c := range []struct {
		name string
		rule recipe.Lessons
		want map[string]string
	}{
		{"best", recipe.Lessons{MaxTurns: 2, MaxTokens: 90, Repetition: 0.5, RepetitionWords: 5}, map[string]string{
			"q#0": "not the best", "q#1": "", "q#2": "wrong", "q#3": "truncated: too long", "q#4": "failed: gone", "q#5": "no reward",
			"q#6": "too many turns: 3", "q#7": "too many tokens: 100", "q#8": "repeats itself: turn 3", "q#9": "the same as another: q#1", "r#0": "",
		}},
		{"all", recipe.Lessons{Select: "all"}, map[string]string{"q#0": "", "q#1": "", "q#6": "", "q#9": "the same as another: q#1", "r#0": ""}},
		{"two", recipe.Lessons{Select: "all", PerQuestion: 2}, map[string]string{"q#0": "not the best", "q#1": "", "q#7": "", "q#8": "not the best"}},
		{"near", recipe.Lessons{Select: "all", Near: 0.5}, map[string]string{"q#0": "", "q#1": "", "q#10": "the same as another: q#0"}},
	} {
		ch := newChooser(c.rule)
		ch.look(ref(said("q", 0, "I search for the name of it", "so it is a")), right)
		ch.look(ref(said("q", 1, "I know it is a")), right)
		ch.look(ref(said("q", 2, "b")), verdict{false, true, 0})
		cut := said("q", 3, "c")
		cut.Status, cut.Why = trajectory.Truncated, "too long"
		ch.look(&cut, right)
		gone := said("q", 4, "d")
		gone.Status, gone.Why = trajectory.Failed, "gone"
		ch.look(&gone, verdict{})
		ch.look(ref(said("q", 5, "e")), verdict{true, false, 0})
		ch.look(ref(said("q", 6, "f", "g", "h")), right)
		ch.look(ref(said("q", 7, strings.Repeat("x", 100))), right)
		ch.look(ref(said("q", 8, strings.Repeat("again and again ", 20))), right)
		ch.look(ref(said("q", 9, "I know it is a")), right)
		ch.look(ref(said("q", 10, "I search for the name of it", "so it is a b")), right)
		ch.look(ref(said("r", 0, "I know it is a")), right)
		ch.choose()
		for id, want := range c.want {
			if got := ch.why[id]; want == "" && got != "" || !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s is %q, want %q", c.name, id, got, want)
			}
		}
	}
}

func ref[T any](v T) *T { return &v }

// Rows come out as they went in; the conversations have every turn, the images in
// their places, and no loss on a turn whose call could not be read.
func TestForms(t *testing.T) {
	dir := t.TempDir()
	store, err := corpus.OpenStore(filepath.Join(dir, "q"))
	if err != nil {
		t.Fatal(err)
	}
	sha, err := store.Put([]byte("\x89PNG\r\n\x1a\npicture"))
	if err != nil {
		t.Fatal(err)
	}
	shown := said("q", 0, "<tool_call>{", "a")
	shown.Turns[1].Images = []string{sha, sha}
	shown.Turns[2].Error = "no JSON"
	inline := said("r", 0, "x")
	inline.Turns = append(inline.Turns, trajectory.Turn{Role: "inline", Text: "y"})
	marked := said("s", 0, "<image>")
	wrong := said("t", 0, "b")
	rows := []trajectory.Row{shown, inline, marked, wrong}
	var verdicts []trajectory.Judged
	for _, r := range rows {
		verdicts = append(verdicts, trajectory.Judged{ID: r.ID, Question: r.Question, Correct: r.ID != wrong.ID, Scored: true, Reward: 1})
	}
	o := Options{Rollouts: jobtest.Dataset(t, filepath.Join(dir, "r"), trajectory.RolloutsSchema, 1, rows...), Judged: jobtest.Dataset(t, filepath.Join(dir, "j"), trajectory.JudgedSchema, 1, verdicts...),
		Images: []string{filepath.Join(dir, "q")}, Out: filepath.Join(dir, "out")}
	rec := filepath.Join(dir, "r.yaml")
	if err := os.WriteFile(rec, []byte("name: t\nsampling: {train: {n: 1}, eval: {n: 1}}\nlessons: {select: all}\nprotocol: {tool_schemas: true}\ntools: [{name: text_search, description: finds}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := job.Testing(t)
	r.RecipePath = rec
	if err := Run(t.Context(), r, o); err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Open(o.Out)
	if err != nil || m.Counts.In != 4 || m.Counts.OK != 3 || m.Counts.Rejected != 1 {
		t.Fatal(err, m.Counts)
	}
	n := 0
	for row, err := range trajectory.Rollouts(o.Out) {
		if err != nil || row.ID != rows[n].ID || len(row.Turns) != len(rows[n].Turns) {
			t.Error(err, row.ID)
		}
		n++
	}
	if n != 3 {
		t.Error(n, "rows")
	}
	path := "images/" + sha[:2] + "/" + sha + ".png"
	if _, err := os.Stat(filepath.Join(o.Out, path)); err != nil {
		t.Error(err)
	}
	tools := `"tools":"[{\"function\":{\"name\":\"text_search\",\"description\":\"finds\",\"parameters\":{\"type\":\"object\",`
	for name, want := range map[string][]string{
		ShareGPT: {`{"id":"q#0","conversations":[{"from":"human","value":"<image><image>q"},{"from":"gpt","value":"<tool_call>{","loss":false},{"from":"observation","value":"found"},{"from":"gpt","value":"a"}],"system":"Be short.",` + tools},
		Swift: {`{"id":"q#0","messages":[{"role":"system","content":"Be short."},{"role":"user","content":"<image><image>q"},{"role":"assistant","content":"<tool_call>{","loss":false},` +
			`{"role":"tool","content":"found"},{"role":"assistant","content":"a","loss":true}],` + tools},
	} {
		f, err := os.Open(filepath.Join(o.Out, name+"-00000-of-00001.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		for _, w := range want {
			var row struct{ Images []string }
			if !lines.Scan() || !strings.HasPrefix(lines.Text(), w) || json.Unmarshal(lines.Bytes(), &row) != nil || len(row.Images) != 2 || row.Images[1] != path {
				t.Errorf("%s: %s", name, lines.Text())
			}
		}
		if lines.Scan() {
			t.Error("another line:", lines.Text())
		}
	}
}
