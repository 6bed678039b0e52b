package eval

import (
	"math"
	"testing"

	"searchloop/rollout/trajectory"
)

func TestMeasureByHand(t *testing.T) {
	samples := []Sample{
		{ID: "a#0", Question: "a", Category: "x", Correct: true, Scored: true, Reward: 1, Format: 1, Turns: 2, Tokens: 10, Calls: []string{"text_search", "text_search"}, Status: trajectory.OK},
		{ID: "a#1", Question: "a", Category: "x", Scored: true, Reward: 0.1, Format: 1, Turns: 1, Tokens: 4, Status: trajectory.OK},
		{ID: "b#0", Question: "b", Category: "y", Status: trajectory.Failed, Turns: 1, Calls: []string{"lens"}, ToolErrors: 1},
		{ID: "c#0", Question: "c", Category: "y", Status: trajectory.Truncated, Verdict: trajectory.NoAnswer, Scored: true, Turns: 4, Tokens: 6},
	}
	m := Measure(samples, 0, 1)
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

// The percentile bootstrap of a Bernoulli mean comes close to the normal
// interval p ± 1.96·sqrt(p(1-p)/n) when n is large.
func TestBootstrapAgreesWithTheNormalInterval(t *testing.T) {
	values := make([]float64, 400)
	for i := range values {
		if i%4 == 0 {
			values[i] = 1
		}
	}
	got := bootstrap(values, 4000, 3)
	half := 1.96 * math.Sqrt(0.25*0.75/400)
	if math.Abs(got.Mean-0.25) > 1e-12 || math.Abs(got.Low-(0.25-half)) > 0.006 || math.Abs(got.High-(0.25+half)) > 0.006 {
		t.Errorf("got %+v, want 0.25 ± %.4f", got, half)
	}
	if again := bootstrap(values, 4000, 3); again != got {
		t.Error("same seed, other interval")
	}
}

func TestEmptyEvaluation(t *testing.T) {
	if m := Measure(nil, 100, 1); m.N != 0 || m.Accuracy.Mean != 0 {
		t.Errorf("%+v", m)
	}
}
