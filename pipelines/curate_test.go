package pipelines

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// must runs a job to a good end.
func (p place) must(line string) {
	p.t.Helper()
	if code, stderr := p.job(line); code != 0 {
		p.t.Fatalf("%s: exit %d\n%s", line, code, stderr)
	}
}

// Lessons teach the same as rollouts and as conversations of other trainers: three
// checkpoints of the same bytes.
func TestLessonsInEveryForm(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.run("lessons", "EPOCH=0")
	p.run("runs/mini/base/manifest.json", "EPOCH=0")
	const lessons = "runs/mini/epoch-0/lessons"
	weights := func(form, from string) []byte {
		p.must("sft --recipe mini --policy runs/mini/base --images " + lessons + "/images --out " + form + " " + from)
		text, err := os.ReadFile(filepath.Join(p.dir, form, "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	rows := weights("rows", "--rollouts "+lessons)
	for _, form := range []string{"sharegpt", "ms-swift"} {
		if !bytes.Equal(rows, weights(form, "--examples "+lessons+"/"+form+"-00000-of-00001.jsonl")) {
			t.Errorf("%s teaches something else", form)
		}
	}
}

// What is drawn from the teacher's rollouts is a set that make plays, filtered.
func TestBalancedSetIsPlayed(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.run("runs/mini/epoch-0/judged/manifest.json", "EPOCH=0")
	p.must("curate --recipe mini --set curate.rollouts=2 --set curate.required=20 --set curate.free=10 --questions data/questions/demo-train " +
		"--rollouts runs/mini/epoch-0/rollouts --judged runs/mini/epoch-0/judged --out data/questions/demo-train-balanced")
	var report struct {
		Drawn struct{ Required, Free int }
		Needs map[string]int `json:"drawn_by_need"`
	}
	text, err := os.ReadFile(filepath.Join(p.dir, "data/questions/demo-train-balanced/balance.json"))
	if err == nil {
		err = json.Unmarshal(text, &report)
	}
	if err != nil || report.Drawn.Free == 0 || report.Drawn.Required != 2*report.Drawn.Free {
		t.Fatalf("%v %s", err, text)
	}
	out := p.run("runs/bal/epoch-0/rollouts/manifest.json", "TRAINSET=demo-train-balanced", "RUN=bal", "EPOCH=0", "SET=rollout.filter.needs=[free]")
	if !strings.Contains(out, "data/lens/demo-train-balanced") {
		t.Error(out)
	}
	if text, err = os.ReadFile(filepath.Join(p.dir, "runs/bal/epoch-0/rollouts.summary.json")); err != nil {
		t.Fatal(err)
	}
	var done struct{ Counts struct{ In int } }
	if err := json.Unmarshal(text, &done); err != nil || done.Counts.In != 2*report.Drawn.Free { // two samples a question
		t.Errorf("%v: %d trajectories of %d free questions", err, done.Counts.In, report.Drawn.Free)
	}
}
