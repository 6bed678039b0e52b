package eval

import (
	"path/filepath"
	"strings"
	"testing"

	"searchloop/eval/score"
	"searchloop/internal/fail"
	"searchloop/internal/job/jobtest"
	"searchloop/rollout/trajectory"
)

// write makes a dataset of rows in dir.
func write[T any](t *testing.T, dir string, rows ...T) string {
	t.Helper()
	schema := "test"
	if _, ok := any(*new(T)).(trajectory.Judged); ok {
		schema = trajectory.JudgedSchema
	}
	return jobtest.Dataset(t, dir, schema, 1, rows...)
}

func judgeMetric(t *testing.T) score.Metric {
	t.Helper()
	m, err := score.Named(score.Judge)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestSamplesJoin(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	rollouts := write(t, at("rollouts"),
		trajectory.Row{ID: "b#0", Run: "r", Epoch: 3, Policy: "p", Temperature: .5, Turns: []trajectory.Turn{
			{Role: "assistant", Tokens: 4}, {Role: "tool", Call: "text_search"}, {Role: "tool", Call: "made_up", Error: "no such tool"}, {Role: "assistant", Tokens: 3}}},
		trajectory.Row{ID: "a#0", Run: "r", Epoch: 3, Policy: "p", Temperature: .5, Answer: "Paris", Answers: []string{"Paris"}, Turns: []trajectory.Turn{
			{Role: "user"}, {Role: "assistant"}, {Role: "user", Error: "neither a call nor an answer"}, {Role: "assistant"}, {Role: "user", Call: "text_search"}, {Role: "inline", Call: "text_search"}}})
	judged := write(t, at("judged"),
		trajectory.Judged{ID: "a#0", By: "exact_match", Correct: true, Scored: true},
		trajectory.Judged{ID: "b#0", By: "judge", JudgeModel: "j", PromptHash: "h"})
	samples, from, err := Samples(rollouts, judged, "", []string{"text_search"}, judgeMetric(t))
	if err != nil {
		t.Fatal(err)
	}
	if from.Run != "r" || from.Epoch != 3 || from.Policy != "p" || from.Temperature != .5 || from.JudgeModel != "j" || from.JudgePrompt != "h" {
		t.Errorf("origin: %+v", from)
	}
	if len(samples) != 2 || samples[0].ID != "a#0" || !samples[0].Correct {
		t.Fatalf("samples: %+v", samples)
	}
	if a := samples[0]; len(a.Calls) != 2 || a.ToolErrors != 0 {
		t.Errorf("sample a: %+v", a)
	}
	if b := samples[1]; b.Turns != 2 || b.Tokens != 7 || strings.Join(b.Calls, " ") != "text_search "+Unknown || b.ToolErrors != 1 {
		t.Errorf("sample b: %+v", b)
	}

	one := write(t, at("one"), trajectory.Judged{ID: "a#0"})
	if _, _, err := Samples(rollouts, one, "", nil, judgeMetric(t)); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "b#0") {
		t.Errorf("a trajectory without a verdict: %v", err)
	}
	three := write(t, at("three"), trajectory.Judged{ID: "z#0"}, trajectory.Judged{ID: "a#0"}, trajectory.Judged{ID: "b#0"}, trajectory.Judged{ID: "c#0"})
	if _, _, err := Samples(rollouts, three, "", nil, judgeMetric(t)); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "c#0") {
		t.Errorf("verdicts without a trajectory: %v", err)
	}
}
