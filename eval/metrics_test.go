package eval

import (
	"math"
	"testing"

	"searchloop/eval/score"
	"searchloop/rollout/trajectory"
)

func TestMeasureByHand(t *testing.T) {
	samples := []Sample{
		{ID: "a#0", Question: "a", Category: "x", Score: 1, Correct: true, Scored: true, Reward: 1, Format: 1, Turns: 2, Tokens: 10, Calls: []string{"text_search", "text_search"}, Status: trajectory.OK},
		{ID: "a#1", Question: "a", Category: "x", Scored: true, Reward: 0.1, Format: 1, Turns: 1, Tokens: 4, Status: trajectory.OK},
		{ID: "b#0", Question: "b", Category: "y", Status: trajectory.Failed, Turns: 1, Calls: []string{"lens"}, ToolErrors: 1},
		{ID: "c#0", Question: "c", Category: "y", Status: trajectory.Truncated, Verdict: trajectory.NoAnswer, Scored: true, Turns: 4, Tokens: 6},
	}
	m := Measure(samples, score.Judge, 0, 1)
	near := func(name string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	near("accuracy", m.Accuracy.Mean, 0.5/3) // question a counts once, with half a point
	near("reward", m.Reward, 1.1/3)          // the failed sample has none
	near("search ratio", m.SearchRatio, 0.5)
	near("text_search", m.ByTool["text_search"], 0.25)
	near("calls", m.Calls, 0.75)
	near("tool errors", m.ToolErrors, 1.0/3)
	near("turns", m.Turns, 2)
	near("tokens", m.Tokens, 5)
	near("format", m.FormatValid, 2.0/3)
	near("truncated", m.Truncated, 0.25)
	near("no answer", m.NoAnswer, 0.25)
	near("category y", m.ByCategory["y"].Accuracy, 0)
	if m.Failed != 1 || m.Unjudged != 0 || m.Questions != 3 || m.N != 4 {
		t.Errorf("counts: %+v", m)
	}
}

// Groups of samples a question: pass@k and the mean over questions.
func TestSeveralSamples(t *testing.T) {
	var samples []Sample
	for i, ok := range []bool{true, false, false, true, true, true, false, false, false} {
		q := string(rune('a' + i/3))
		s := Sample{ID: q + "#" + string(rune('0'+i%3)), Question: q, Scored: true, Correct: ok, Score: bit(ok), Status: trajectory.OK}
		samples = append(samples, s)
	}
	m := Measure(samples, score.Judge, 100, 1)
	want := map[string]float64{"1": 4.0 / 9, "2": (2.0/3 + 1) / 3, "3": 2.0 / 3} // of 1, 3 and 0 right of 3
	for k, v := range want {
		if math.Abs(m.PassAt[k]-v) > 1e-9 {
			t.Errorf("pass@%s = %v, want %v", k, m.PassAt[k], v)
		}
	}
	if m.Samples != 3 || len(m.PassAt) != 3 || math.Abs(m.Accuracy.Mean-4.0/9) > 1e-12 {
		t.Errorf("%+v", m)
	}
}

// MME: of each category accuracy plus the share of pairs, in per cent.
func TestPairedScore(t *testing.T) {
	one := func(id, category, image string, score float64) Sample {
		return Sample{ID: id, Question: id, Category: category, Meta: `{"question_id":"` + image + `"}`, Score: score, Status: trajectory.OK}
	}
	m := Measure([]Sample{one("1", "ocr", "a", 1), one("2", "ocr", "a", 1), one("3", "ocr", "b", 1), one("4", "ocr", "b", 0), one("5", "count", "a", 0), one("6", "count", "a", 0)}, "mme", 0, 1)
	if p := m.Paired; p == nil || p.Total != 125 || p.ByCategory["ocr"] != 125 || p.ByCategory["count"] != 0 {
		t.Errorf("%+v", m.Paired)
	}
}

func TestHealth(t *testing.T) {
	h := healthOf([]trajectory.Turn{
		{Role: "assistant", Text: "<think>one two three four one two three four</think>"},
		{Role: "tool", Call: "text_search", Args: `{"query_list":["Old  Mill","old mill","tower"]}`},
		{Role: "assistant", Text: "<think>open", Error: "no action"},
		{Role: "tool", Call: "text_search", Args: `not JSON`},
		{Role: "user", Text: "one two three four"},
	})
	if h.Queries != 3 || h.Distinct != 2 || h.BadTurns != 1 || h.OpenTags != 1 || h.Repetition != 0 {
		t.Errorf("%+v", h)
	}
	again := healthOf([]trajectory.Turn{{Role: "assistant", Text: "a b c d a b c d"}})
	if again.Repetition != 1.0/5 {
		t.Errorf("%+v", again)
	}
}

func TestEmptyEvaluation(t *testing.T) {
	if m := Measure(nil, score.Judge, 100, 1); m.N != 0 || m.Accuracy.Mean != 0 {
		t.Errorf("%+v", m)
	}
}
