package judge

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/rollout/fence"
	"searchloop/rollout/scripted"
	"searchloop/rollout/trajectory"
)

// opinionated serves a judge under a name that says yes to the answers it is given.
func opinionated(t *testing.T, model string, yes ...string) (url string, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	s := scripted.New(scripted.Options{Model: model, Script: scripted.Func(func(c scripted.Conversation) (string, error) {
		asked.Add(1)
		answer, _ := fence.Find(c.Messages[1].Text, "ANSWER")
		if answer == "hm" && model == "c" {
			return "perhaps", nil
		}
		for _, y := range yes {
			if y == answer {
				return "Yes", nil
			}
		}
		return "No", nil
	})})
	url, err := s.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return url, asked
}

func TestPanel(t *testing.T) {
	rows := []trajectory.Row{said("r1", "one", "x"), said("r2", "two", "x"), said("r3", "three", "x"), said("r4", "hm", "x"), said("r5", "X", "x")}
	b := newBench(t, scripted.Options{}, rows)
	var members []string
	var asked []*atomic.Int32
	for _, m := range []struct {
		model string
		yes   []string
	}{{"a", []string{"one", "two", "hm", "X"}}, {"b", []string{"one", "three"}}, {"c", []string{"two"}}} {
		url, n := opinionated(t, m.model, m.yes...)
		members, asked = append(members, fmt.Sprintf("{model: %s, url: %q}", m.model, url)), append(asked, n)
	}
	var run *job.Run
	panel := func(r *job.Run, o *Options) {
		run, o.URL = r, ""
		r.Set = []string{"judge.panel=[" + strings.Join(members, ", ") + "]", "judge.check_exact=true", "judge.max_failed=1"}
		o.Labels = filepath.Join(b.dir, "labels")
	}
	if err := os.WriteFile(filepath.Join(b.dir, "labels"), []byte(`{"id":"r1","correct":true}`+"\n"+`{"id":"r2","correct":false}`+"\n"+`{"id":"r5","correct":true}`+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := b.run(t, panel); err != nil {
		t.Fatal(err)
	}
	// r4: yes, no and neither is no majority; r5 matches exactly, whatever they say.
	want := "r1=correct/judge:1 r2=correct/judge:1 r3=incorrect/judge:0.1 r4=unparsable/judge r5=correct/exact_match:1"
	if got := b.outline(t); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	for j, err := range trajectory.Judgements(b.opt.Out) {
		if err != nil || len(j.Opinions) != 3 || (j.By == "judge") != (j.JudgeModel == "a, b, c") {
			t.Errorf("%+v %v", j, err)
		}
	}
	agreed, err := Agree(b.opt.Out, filepath.Join(b.dir, "labels"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range agreed {
		got = append(got, fmt.Sprintf("%s-%s %v", a.A, a.B, a.Table))
	}
	// a says yes to r1, r2, r4, r5; b to r1, r3; c to r2 and has nothing to say of r4.
	if want := "a-b [[0 1] [3 1]] a-c [[1 0] [2 1]] b-c [[1 1] [2 0]] " +
		"exact_match-a [[1 3] [0 1]] exact_match-b [[2 2] [1 0]] exact_match-c [[2 1] [1 0]] " +
		"labels-a [[0 1] [0 2]] labels-b [[1 0] [1 1]] labels-c [[0 1] [2 0]] labels-verdict [[0 1] [0 2]]"; strings.Join(got, " ") != want {
		t.Errorf("\n got %s\nwant %s", strings.Join(got, " "), want)
	}
	// Nothing to do; the agreement is told again, and no judge is asked.
	before := asked[0].Load() + asked[1].Load() + asked[2].Load()
	if err := b.run(t, panel); err != nil || asked[0].Load()+asked[1].Load()+asked[2].Load() != before || before != 16 {
		t.Error(err, before)
	}
	// What failed is asked again of all; what is known costs nothing.
	if err := b.run(t, func(r *job.Run, o *Options) { panel(r, o); r.RetryFailed = true }); err != nil || run == nil {
		t.Error(err)
	}
	if n := asked[0].Load() + asked[1].Load() + asked[2].Load() - before; n != 4 {
		t.Errorf("%d calls for one row", n)
	}
	for name, set := range map[string]string{"twice": "judge.panel=[{model: a, url: u}, {model: a, url: v}]", "no address": "judge.panel=[{model: a}]"} {
		if err := b.run(t, func(r *job.Run, o *Options) { o.URL, r.Set = "", []string{set} }); fail.KindOf(err) != fail.Usage {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := b.run(t, func(r *job.Run, o *Options) { panel(r, o); o.URL = b.opt.URL }); fail.KindOf(err) != fail.Usage {
		t.Error(err)
	}
}

// Verdicts are kept by what was judged and by whom: other rows, runs and epochs ask
// for nothing that is known; another judge or prompt asks again.
func TestVerdictsAreKept(t *testing.T) {
	var rows []trajectory.Row
	for i := range 12 { // four different answers to each of two questions, some twice
		r := said(fmt.Sprintf("r%02d", i), fmt.Sprint("answer ", i%4), "Paris")
		r.Text = fmt.Sprint("Which ", i%2)
		rows = append(rows, r)
	}
	b := newBench(t, scripted.Options{}, rows)
	cache := filepath.Join(b.dir, "verdicts")
	run := func(out string, set ...string) int {
		t.Helper()
		before := b.server.Requests()
		if err := b.run(t, func(r *job.Run, o *Options) { o.Out, o.Cache, r.Set = filepath.Join(b.dir, out), cache, set }); err != nil {
			t.Fatal(err)
		}
		return b.server.Requests() - before
	}
	if n := run("judged"); n != 4 {
		t.Errorf("%d calls for four things to judge", n)
	}
	for out, c := range map[string]struct {
		set   string
		calls int
	}{"again": {"judge.concurrency=2", 0}, "seed": {"seed=12", 4}, "prompt": {"judge.system=Say yes or no.", 4}, "votes": {"judge.votes=3", 8}} {
		if n := run(out, c.set); n != c.calls {
			t.Errorf("%s: %d calls, want %d", out, n, c.calls)
		}
	}
	if string(partsOf(t, b.opt.Out)) != string(partsOf(t, filepath.Join(b.dir, "again"))) {
		t.Error("rows depend on where a verdict came from")
	}
	// A store that cannot be used costs calls and nothing else.
	if err := os.Chmod(cache, 0o555); err == nil && os.Getuid() != 0 {
		if n := run("sealed", "seed=13"); n != 4 {
			t.Errorf("%d calls", n)
		}
	}
}

func partsOf(t *testing.T, dir string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "part-00000-of-00001.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestImageJudge(t *testing.T) {
	rows := []trajectory.Row{said("a", "Rome", "Paris"), said("b", "Rome", "Paris"), said("c", "Rome", "Paris")}
	var shown []int
	b := newBench(t, scripted.Options{Script: scripted.Func(func(c scripted.Conversation) (string, error) {
		shown = append(shown, len(c.Messages[1].Images))
		return "Yes", nil
	})}, rows)
	store, err := corpus.OpenStore(filepath.Join(b.dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	id, err := store.Put([]byte("\x89PNG\r\n\x1a\nanything"))
	if err != nil {
		t.Fatal(err)
	}
	rows[1].Turns[0].Images = []string{id}
	rows[2].Turns[0].Images = []string{strings.Repeat("ab", 32)} // not there
	b.opt.Rollouts = filepath.Join(b.dir, "with")
	b.write(t, rows)
	look := func(r *job.Run, o *Options) {
		r.Set, o.Images = []string{"judge.images=true", "judge.concurrency=1", "judge.max_failed=1"}, []string{filepath.Join(b.dir, "images")}
	}
	if err := b.run(t, look); err != nil {
		t.Fatal(err)
	}
	if got := b.outline(t); got != "a=correct/judge:1 b=correct/judge:1 c=failed/judge" || fmt.Sprint(shown) != "[0 1]" {
		t.Errorf("%s, images shown %v", got, shown)
	}
	if err := b.run(t, func(r *job.Run, o *Options) { look(r, o); o.Images = nil; r.Fresh = true }); fail.KindOf(err) != fail.Usage {
		t.Error(err)
	}
}
