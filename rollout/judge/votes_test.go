package judge

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/job"
	"searchloop/rollout/scripted"
	"searchloop/rollout/trajectory"
)

func TestKappa(t *testing.T) {
	// Cohen's own kind of example: 20 and 15 agree, 5 and 10 do not: (0.7−0.5)/(1−0.5).
	tab := Table{{15, 10}, {5, 20}}
	if k := tab.Kappa(); math.Abs(k-0.4) > 1e-12 {
		t.Errorf("kappa %g", k)
	}
	var none, same Table
	same.Add(true, true)
	if !math.IsNaN(none.Kappa()) || !math.IsNaN(same.Kappa()) {
		t.Error("a kappa out of nothing")
	}
	same.Add(false, false)
	if same.Kappa() != 1 {
		t.Error(same.Kappa())
	}
}

func TestAgree(t *testing.T) {
	b := newBench(t, scripted.Options{}, []trajectory.Row{said("a", "Lim", "Lim"), said("b", "Drina", "Lim"), said("c", "the Lim", "Lim"), said("d", "x", "Lim")})
	if err := b.run(t, nil); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(b.dir, "labels.jsonl")
	for text, want := range map[string]string{
		`{"id":"a","correct":true}` + "\n" + `{"id":"b","correct":false}` + "\n" + `{"id":"c","correct":true}` + "\n" + `{"id":"d","correct":true}`: "[{A:labels B:verdict Counted:4 Table:[[1 0] [1 2]] Agree:0.75 Kappa:0.5}]",
		`{"id":"z","correct":true}`: "not in",
		`{"id":"a"}`:                "correct",
		`{"id":"a","correct":true}` + "\n" + `{"id":"a","correct":true}`: "before",
	} {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		a, err := Agree(b.opt.Out, file)
		if got := fmt.Sprintf("%+v %v", a, err); !strings.Contains(got, want) {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// With three votes the majority decides, and the third is not asked for when two agree.
func TestVotes(t *testing.T) {
	for _, c := range []struct {
		name    string
		replies []string
		verdict string
		calls   int
	}{
		{"two of two", []string{"Yes", "Yes", "No"}, trajectory.Correct, 2},
		{"two of three", []string{"Yes", "No", "No"}, trajectory.Incorrect, 3},
		{"no majority", []string{"Yes", "hm", "hm", "No"}, trajectory.Unparsable, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := 0
			b := newBench(t, scripted.Options{Script: scripted.Func(func(scripted.Conversation) (string, error) {
				n++
				return c.replies[n-1], nil
			})}, []trajectory.Row{said("q1", "Lim river", "Lim")})
			err := b.run(t, func(r *job.Run, _ *Options) {
				r.Set = []string{"judge.votes=3", "judge.max_failed=1", "judge.structured=true"}
			})
			if err != nil {
				t.Fatal(err)
			}
			for j, err := range trajectory.Judgements(b.opt.Out) {
				if err != nil || j.Verdict != c.verdict || n != c.calls || strings.Count(j.Reply, "---") < 1 {
					t.Errorf("%s after %d calls: %q %v", j.Verdict, n, j.Reply, err)
				}
			}
		})
	}
}

// "No, yesterday" is no; "Yes or No" is nothing.
func TestG31SubstringYes(t *testing.T) {
	for reply, want := range map[string][2]bool{"No, yesterday it was": {false, true}, "Yes or No": {false, false}, "Yesterday": {false, false}, "No": {false, true}, "Yes.": {true, true}, "eyes": {false, false}} {
		if correct, ok := ParseVerdict(reply); [2]bool{correct, ok} != want {
			t.Errorf("%q: %v %v", reply, correct, ok)
		}
	}
}

// A judge that fails on a row gives it no reward, is counted, and ends nothing.
func TestG32JudgeErrorsAreCounted(t *testing.T) {
	f, err := scripted.ParseFault("400:1")
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, scripted.Options{Faults: []scripted.Fault{f}}, []trajectory.Row{said("a", "Drina", "Lim"), said("b", "Sava", "Lim")})
	if err := b.run(t, func(r *job.Run, _ *Options) { r.Set = []string{"judge.concurrency=1", "judge.max_failed=1"} }); err != nil {
		t.Fatal(err)
	}
	if got, want := b.outline(t), "a=failed/judge b=incorrect/judge:0.1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
