package report

import (
	"strings"
	"testing"

	"searchloop/eval"
	"searchloop/rollout/trajectory"
)

func TestDiagnose(t *testing.T) {
	result := func(text string) trajectory.Turn {
		return trajectory.Turn{Role: "tool", Call: "text_search", Text: text}
	}
	for _, c := range []struct {
		name   string
		p      played
		free   bool
		want   string
		flags  int
		absent string
	}{
		{"found and not used", played{row: trajectory.Row{Turns: []trajectory.Turn{result("nothing"), result("The tower of Pisa leans.")}},
			sample: eval.Sample{Answer: "Rome", Truth: []string{"Pisa"}, Scored: true, Calls: []string{"a", "b"}, ToolErrors: 1}}, false, "Search result 2 holds the truth: it was found and not used. 1 of 2 calls failed.", truthSeen | searched | toolError, ""},
		{"not found", played{row: trajectory.Row{Turns: []trajectory.Turn{result("Pisano")}}, sample: eval.Sample{Answer: "Rome", Truth: []string{"Pisa"}, Scored: true, Calls: []string{"a"}}}, false, "No search result holds the truth.", searched, ""},
		{"failed", played{sample: eval.Sample{Status: trajectory.Failed, Why: "search: timeout", Truth: []string{"x"}}}, false, "Broken, not answered: search: timeout.", failed | noAnswer, "Never"},
		{"truncated", played{sample: eval.Sample{Status: trajectory.Truncated, Why: "tool calls exhausted", Scored: true, Calls: []string{"a"}}}, false, "ended by a limit (tool calls exhausted)", truncated | searched | noAnswer, ""},
		{"needless", played{sample: eval.Sample{Answer: "x", Correct: true, Scored: true, Calls: []string{"a"}}}, true, "Right. Searched although", needless | searched, ""},
		{"never searched", played{sample: eval.Sample{Answer: "x", Scored: true}}, false, "Never searched.", 0, ""},
		{"unjudged", played{sample: eval.Sample{Answer: "x", Verdict: "unparsable", Calls: []string{"a"}}}, false, "No verdict (unparsable)", unjudged | searched, ""},
	} {
		seen := truthIn(&c.p)
		got := diagnose(&c.p, c.free, seen)
		if !strings.Contains(got, c.want) || c.absent != "" && strings.Contains(got, c.absent) {
			t.Errorf("%s: %s", c.name, got)
		}
		if f := flagsOf(&c.p, c.free, seen); f != c.flags {
			t.Errorf("%s: flags %b, want %b", c.name, f, c.flags)
		}
	}
}
