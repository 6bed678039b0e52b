package budget

import (
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/manifest"
)

func TestBudget(t *testing.T) {
	for _, l := range []Limits{{Dollars: 1}, {Requests: 2}, {Tokens: 100}} {
		b := New(l, manifest.Usage{Cost: 0.5, Requests: 1, PromptTokens: 50})
		if err := b.Begin(); err != nil {
			t.Fatal(err)
		}
		b.End(manifest.Usage{Cost: 0.5, Requests: 1, CompletionTokens: 50})
		if err := b.Begin(); fail.ExitCode(err) != 69 {
			t.Errorf("%+v: %v", l, err)
		}
	}
	// Requests in flight count.
	b := New(Limits{Requests: 1}, manifest.Usage{})
	if b.Begin() != nil || b.Begin() == nil {
		t.Error("two where one may be")
	}
	var none *Budget
	none.End(manifest.Usage{})
	if none.Begin() != nil {
		t.Error("no budget, no limit")
	}
}
