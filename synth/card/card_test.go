package card

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/picture"
	"searchloop/internal/table"
	"searchloop/rollout/judge"
	"searchloop/rollout/trajectory"
	"searchloop/synth/ask"
	"searchloop/synth/vqa"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// dataset writes rows, and side files by name, as a finished dataset.
func dataset[T any](t *testing.T, dir, schema string, rows []T, in int64, side map[string]string, rejects ...string) {
	t.Helper()
	d, err := job.Testing(t).Dataset(job.Spec{Dir: dir, Schema: schema, Version: 1, Ext: "parquet", Params: map[string]int{"seed": 7}})
	must(t, err)
	must(t, d.Each(func(sh *job.Shard) error {
		to, err := sh.Part()
		must(t, err)
		w := table.NewWriter[T](to)
		must(t, w.Write(rows...))
		must(t, w.Close())
		for name, text := range side {
			f, err := sh.Extra(name)
			must(t, err)
			_, err = io.WriteString(f, text)
			must(t, err)
		}
		for i, r := range rejects {
			sh.Reject("list", int64(i+1), "", fmt.Errorf("%s", r))
		}
		return sh.Commit(w.Rows(), manifest.Counts{In: in, OK: w.Rows()})
	}))
	must(t, d.Seal(nil))
}

// made is a set of four questions as synth leaves it: two refused by the checker,
// one by a rule.
func made(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "set")
	store, err := corpus.OpenStore(filepath.Join(dir, "images"))
	must(t, err)
	p := &picture.Picture{W: 400, H: 300, Pix: make([]uint8, 3*400*300)}
	png, err := p.PNG()
	must(t, err)
	sha, err := store.Put(png)
	must(t, err)
	var rows []vqa.Row
	var lines strings.Builder
	line := func(stage, reason string, q *vqa.Row) {
		text, err := json.Marshal(map[string]any{"key": "k", "kind": "visual", "stage": stage, "reason": reason, "row": q})
		must(t, err)
		lines.Write(append(text, '\n'))
	}
	question := func(id, kind string) vqa.Row {
		return vqa.Row{Question: corpus.Question{ID: id, Text: "What is <b>" + id + "</b>?", Answers: []string{"it"}, Category: kind, ImageIDs: []string{sha}, Images: []corpus.ImageCell{{}}},
			Synth: &vqa.Origin{Kind: "visual", Type: kind, Concept: "C", Licence: "CC0", PageTitle: "Page", Evidence: "It is.", Made: []ask.Made{{Fields: "question", Model: "m1", Prompt: "abc", Cost: 0.25}}}}
	}
	for i := range 4 {
		q := question(fmt.Sprint("q", i), []string{"name", "time"}[i%2])
		rows = append(rows, q)
		line(vqa.StageKept, "", &q)
	}
	for i, stage := range []string{vqa.StageUnique, vqa.StageRight} {
		q := question(fmt.Sprint("r", i), "name")
		line(stage, "no", &q)
	}
	line(vqa.StageWritten, "refusal", nil)
	f := vqa.Funnel{In: 7, Kept: 4, Passed: []vqa.Step{{Stage: vqa.StageWritten, N: 6}}, Refused: []vqa.Reason{{Stage: vqa.StageWritten, Reason: "refusal", N: 1}}}
	funnel, err := json.Marshal(f)
	must(t, err)
	dataset(t, dir, corpus.Questions, rows, 7, map[string]string{vqa.OutcomesFile: lines.String(), vqa.FunnelFile: string(funnel)}, "a", "b", "c")
	return dir
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

func TestCard(t *testing.T) {
	dir := made(t)
	o := Options{In: dir, Out: filepath.Join(dir, "..", "card.html"), Page: filepath.Join(dir, "..", "label.html"), N: 8}
	must(t, Write(t.Context(), job.Testing(t), o))
	card := read(t, o.Out)
	for _, want := range []string{"written: refusal", "What is &lt;b&gt;q0&lt;/b&gt;?", "data:image/jpeg;base64,", "CC0", "question by m1 <code>abc</code>; $0.2500", "<td>name</td><td class=\"n\">2</td><td class=\"n\">50.0 %</td>"} {
		if !strings.Contains(card, want) {
			t.Errorf("the card lacks %s", want)
		}
	}
	if strings.Contains(card, "<script") || strings.Contains(card, "ZgotmplZ") {
		t.Error("a script, or something that was not let through")
	}
	page := read(t, o.Page)
	for _, id := range []string{`"q0"`, `"q3"`, `"r0"`, `"r1"`} {
		if !strings.Contains(page, `"id":`+id) {
			t.Errorf("the labelling page lacks %s", id)
		}
	}
	m, err := manifest.Open(dir)
	must(t, err)
	if !strings.Contains(page, m.Digest()) {
		t.Error("the labelling page does not say of which dataset it is")
	}

	// What a person said: three of four accepted, one of the refused too.
	o.Labels, o.Page = filepath.Join(dir, "..", "labels.json"), ""
	labels := func(text string) { must(t, os.WriteFile(o.Labels, []byte(text), 0o600)) }
	labels(fmt.Sprintf(`{"dataset": %q, "labels": [{"id": "q0", "accept": true}, {"id": "q1", "accept": true, "note": "x"}, {"id": "q2", "accept": false, "note": "vague"},
		{"id": "q3", "accept": null}, {"id": "r0", "accept": true}, {"id": "r1", "accept": false}]}`, m.Digest()))
	must(t, Write(t.Context(), job.Testing(t), o))
	var f Figures
	must(t, json.Unmarshal([]byte(read(t, filepath.Join(dir, "..", "card.json"))), &f))
	l := f.Labels
	if l == nil || l.N != 5 || l.Accepted != 2 || l.Of != 3 || l.Unsure != 1 || l.Checker != (judge.Table{{1, 1}, {1, 2}}) || l.CheckAgree != 0.6 || len(l.Notes) != 1 || l.Notes[0].Name != "vague" {
		t.Fatalf("%+v", l)
	}
	if l.Low < 0.20 || l.Low > 0.21 || l.High < 0.93 || l.High > 0.94 { // 2 of 3 by Wilson
		t.Error(l.Low, l.High)
	}
	if !strings.Contains(read(t, o.Out), "2 of 3 questions of the set accepted") {
		t.Error("the card does not tell what people said")
	}
	for text, want := range map[string]string{
		`{`:                                  "unexpected end",
		`{"dataset": "other", "labels": []}`: "another dataset",
		fmt.Sprintf(`{"dataset": %q, "labels": []}`, m.Digest()):                                           "nothing is accepted",
		fmt.Sprintf(`{"dataset": %q, "labels": [{"id": "no", "accept": true}]}`, m.Digest()):               "not in the dataset",
		fmt.Sprintf(`{"dataset": %q, "labels": [{"id": "q0", "accept": true}, {"id": "q0"}]}`, m.Digest()): "labelled twice",
	} {
		labels(text)
		if err := Write(t.Context(), job.Testing(t), o); fail.ExitCode(err) != 65 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// A set without a funnel tells its rejects by reason.
func TestRejects(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "set")
	rows := []corpus.Tried{{Question: corpus.Question{ID: "a", Text: "x?"}, Trial: &corpus.Trial{Need: corpus.NeedText, PassRate: 0.5, Correct: 4, Rollouts: 8}}}
	dataset(t, dir, corpus.Questions, rows, 4, nil, "too few: 3 of 8", "too few: 2 of 8", "no image")
	lessons := filepath.Join(dir, "..", "lessons")
	dataset(t, lessons, trajectory.RolloutsSchema, []trajectory.Row{{ID: "a#0"}}, 4, nil, "wrong", "wrong", "bad form: turn 3: Error: no JSON object in the call of turn 3")
	o := Options{In: dir, Out: filepath.Join(dir, "..", "c.html"), N: 3, Lessons: lessons}
	must(t, Write(t.Context(), job.Testing(t), o))
	for _, want := range []string{"1 of 4 were chosen to learn from", `<td>wrong</td><td class="n">2</td>`, `<td>bad form</td><td class="n">1</td>`, `<td>too few</td><td class="n">2</td>`, "needs: text; right in 4 of 8 rollouts"} {
		if !strings.Contains(read(t, o.Out), want) {
			t.Errorf("the card lacks %s", want)
		}
	}
}

// What is saved of answers is what judge reads.
func TestAnswers(t *testing.T) {
	dir := t.TempDir()
	rolls, judged := filepath.Join(dir, "r"), filepath.Join(dir, "j")
	dataset(t, rolls, trajectory.RolloutsSchema, []trajectory.Row{{ID: "q#0", Text: "Who?", Answers: []string{"Ann"}, Answer: "Anne"}, {ID: "q#1", Text: "Who?"}}, 2, nil)
	dataset(t, judged, trajectory.JudgedSchema, []trajectory.Judged{{ID: "q#0", Verdict: trajectory.Correct, Correct: true, By: "judge", Opinions: []trajectory.Opinion{{Judge: "m", Verdict: trajectory.Correct}}},
		{ID: "q#1", Verdict: trajectory.NoAnswer}}, 2, nil)
	o := Options{Rollouts: rolls, Judged: judged, Page: filepath.Join(dir, "p.html"), N: 5}
	must(t, Write(t.Context(), job.Testing(t), o))
	page := read(t, o.Page)
	if !strings.Contains(page, `"answer":"Anne"`) || strings.Contains(page, "q#1") || !strings.Contains(page, "lines =  true") && !strings.Contains(page, "lines = true") {
		t.Error(page[len(page)-3000:])
	}
	labels := filepath.Join(dir, "labels.jsonl")
	must(t, os.WriteFile(labels, []byte(`{"id":"q#0","correct":false}`+"\n"), 0o600))
	got, err := judge.Agree(judged, labels)
	if err != nil || len(got) == 0 {
		t.Fatal(err, got)
	}
	for _, o := range []Options{{N: 1}, {In: dir, N: 1}, {Rollouts: rolls, N: 1, Out: "x"}, {In: dir, Out: "x", N: 0}} {
		if err := Write(t.Context(), job.Testing(t), o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}
