package rollout

import (
	"fmt"
	"strings"
	"testing"

	"searchloop/internal/job"
	"searchloop/internal/llm"
)

// The real server keeps the same promise for a turn that the environment writes
// into: one sequence, nothing encoded twice, nothing dropped, observations cut by
// the model's own tokens.
func TestExactTokensInsideATurn(t *testing.T) {
	dir := t.TempDir()
	tinyPolicy(t, dir)
	url, stop, err := servePolicy(job.Testing(t), dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	c, err := llm.New(llm.Options{Name: "policy server", URL: url, Retry: quick})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	messages := []llm.Message{{Role: "user", Text: "Which river?"}}
	var l ledger
	sampled := 0
	for turn := range 5 {
		r, err := c.Chat(t.Context(), llm.Request{Messages: messages, MaxTokens: 16, Temperature: 1, Seed: Seed(1, 1, "q", 0, turn), TokenIDs: true, Stop: []string{"</search>", "e"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.check(r, nil); err != nil {
			t.Fatalf("turn %d: %v", turn, err)
		}
		l.enter(r, nil)
		sampled += len(r.TokenIDs)
		text, err := c.Cut(t.Context(), strings.Repeat(fmt.Sprintf("Doc %d é ", turn), 30), 50)
		if err != nil || len(text) == 0 || len(text) > 200 {
			t.Fatalf("%q %v", text, err)
		}
		messages = append(messages, llm.Message{Role: "assistant", Text: r.Text, TokenIDs: r.TokenIDs}, llm.Message{Role: llm.Inline, Text: "\n\n<information>" + text + "</information>\n\n"})
	}
	trained := 0
	for _, m := range l.mask {
		if m {
			trained++
		}
	}
	if trained != sampled || l.mode != "processed" {
		t.Errorf("%d of %d sampled tokens are in the mask, mode %s", trained, sampled, l.mode)
	}
}
