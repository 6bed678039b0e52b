package reward

import (
	"math"
	"strings"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/recipe"
	"searchloop/rollout/protocol"
	"searchloop/rollout/trajectory"
)

func TestNormal(t *testing.T) {
	for in, want := range map[string]string{
		"The U.S.A.": "usa", "1,000": "1000", "état-major": "étatmajor", "“Paris”": "“paris”", "A": "",
		"an  Apple\tthe\n pie": "apple pie", "another": "another", "": "", "!?": "",
	} {
		if got := Normal(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		answer   string
		accepted []string
		want     bool
	}{
		{"the U.S.A", []string{"France", "USA"}, true},
		{"Paris", []string{"Paris, France"}, false},
		{"", []string{"A", ""}, false},
		{"The", []string{"A"}, false},
		{"a", []string{"A"}, true},
		{"...", []string{"A"}, false},
		{"x", nil, false},
	} {
		if got := Match(c.answer, c.accepted); got != c.want {
			t.Errorf("%q against %q: %v", c.answer, c.accepted, got)
		}
	}
}

// talk makes turns from texts: assistant turns start with <, tool results with #.
func talk(texts ...string) []trajectory.Turn {
	turns := []trajectory.Turn{{Role: "system", Text: "<think>"}, {Role: "user", Text: "q"}}
	for _, s := range texts {
		if r, ok := strings.CutPrefix(s, "#"); ok {
			turns = append(turns, trajectory.Turn{Role: "tool", Text: r})
		} else {
			turns = append(turns, trajectory.Turn{Role: "assistant", Text: s})
		}
	}
	return turns
}

const (
	call = "<think>a</think>\n<tool_call>{}</tool_call>"
	end  = "<think>b</think><answer>Paris</answer>\n"
)

func TestFormat(t *testing.T) {
	for _, c := range []struct {
		name  string
		turns []trajectory.Turn
		want  bool
	}{
		{"answer at once", talk(end), true},
		{"one round", talk(call, "#found", end), true},
		{"three rounds", talk(call, "#", call, "#", call, "#", end), true},
		{"tags in a result", talk(call, "#<answer>x</answer></think><tool_call>", end), true},
		{"white space before a later turn", talk(call, "#", "\n"+end), true},
		{"white space before the first", talk(" " + end), false},
		{"missing first think", talk("<tool_call>{}</tool_call>", "#", end), false},
		{"missing last think", talk(call, "#", "<answer>x</answer>"), false},
		{"two calls in one turn", talk("<think>a</think><tool_call>{}</tool_call><tool_call>{}</tool_call>", "#", "#", end), false},
		{"two results", talk(call, "#", "#", end), false},
		{"call and answer in one turn", talk("<think>a</think><tool_call>{}</tool_call><answer>x</answer>"), false},
		{"call without result", talk(call), false},
		{"call after the answer", talk(end, call), false},
		{"result after the answer", talk(end, "#"), false},
		{"text outside", talk("<think>a</think> so <answer>x</answer>"), false},
		{"text after", talk("<think>a</think><answer>x</answer> done"), false},
		{"two thoughts", talk("<think>a</think><think>b</think><answer>x</answer>"), false},
		{"tag inside a thought", talk("<think>a <answer></think><answer>x</answer>"), false},
		{"invented result", talk("<think>a</think><tool_response>x</tool_response>"), false},
		{"crossed tags", talk("<think>a<answer></think>x</answer>"), false},
		{"no turn", talk(), false},
	} {
		if got := Format(c.turns); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	bad := talk(call, "#", end)
	bad[2].Error = protocol.NotJSON
	if Format(bad) {
		t.Error("a call that could not be read keeps the form")
	}
}

func TestScore(t *testing.T) {
	rule := recipe.Reward{Name: "mm-deepresearch", Format: 0.1, Accuracy: 0.9}
	many := "<think>b</think>" + strings.Repeat("<answer>Paris</answer>", 11)
	for _, c := range []struct {
		name    string
		turns   []trajectory.Turn
		answer  string
		has     bool
		correct bool
		want    float64
	}{
		{"correct and valid", talk(end), "Paris", true, true, 1},
		{"correct and invalid", talk("so " + end), "Paris", true, true, 0.9},
		{"wrong and valid", talk(end), "Paris", true, false, 0.1},
		{"wrong and invalid", talk("so " + end), "Paris", true, false, 0},
		{"no answer", talk(call, "#"), "", false, false, 0},
		{"no answer, in good form so far", talk(call, "#", call), "", false, true, 0},
		{"empty answer", talk("<think>b</think><answer></answer>"), "", true, true, 0.1},
		{"eleven answers", talk(many), "Paris", true, true, 0.9 / 4},
		{"ten answers", talk("<think>b</think>" + strings.Repeat("<answer>Paris</answer>", 10)), "Paris", true, true, 0.9},
		{"eleven answers in a result", talk(call, "#"+many, end), "Paris", true, true, 1},
	} {
		r, err := Score(rule, &trajectory.Row{Turns: c.turns, Answer: c.answer, HasAnswer: c.has}, c.correct)
		parts, got := r.Parts, r.Reward
		if err != nil || math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %g, want %g (%v)", c.name, got, c.want, err)
		}
		sum, scale := 0.0, 1.0
		for _, p := range parts {
			sum += p.Weight * p.Value
			if p.Name == ScalePart {
				scale = p.Value
			}
		}
		if math.Abs(sum*scale-got) > 1e-12 {
			t.Errorf("%s: the parts give %g, the reward is %g", c.name, sum*scale, got)
		}
	}
	if _, err := Score(recipe.Reward{Name: "x"}, &trajectory.Row{}, false); fail.KindOf(err) != fail.Usage {
		t.Error(err)
	}
}
