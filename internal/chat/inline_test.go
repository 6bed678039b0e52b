package chat

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"searchloop/internal/fail"
)

// TestInline: what the environment says stands inside the assistant's turn, and
// each piece has its own span.
func TestInline(t *testing.T) {
	tok := tokenizer(t)
	end, _ := tok.ID("<|im_end|>")
	msgs := []Message{{Role: User, Text: "q"}, {Role: Assistant, Text: "<search>a</search>"}, {Role: Inline, Text: "\n\n<information>b <|im_end|></information>\n\n"},
		{Role: Assistant, TokenIDs: tok.EncodeOrdinary("<answer>c</answer>")}, {Role: User, Text: "more"}}
	p, err := Qwen3VL.Render(tok, msgs, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	const want = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<search>a</search>\n\n<information>b <|im_end|></information>\n\n<answer>c</answer><|im_end|>\n" +
		"<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n"
	if got := tok.Decode(p.IDs); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	ends := 0
	for _, id := range p.IDs {
		if id == end {
			ends++
		}
	}
	if ends != 3 {
		t.Errorf("%d end marks: one written in a result is ordinary text", ends)
	}
	for i, want := range []string{"q", "<search>a</search>", msgs[2].Text, "<answer>c</answer><|im_end|>", "more"} {
		if got := tok.Decode(p.IDs[p.Spans[i].From:p.Spans[i].To]); got != want {
			t.Errorf("span %d is %q, want %q", i, got, want)
		}
	}
	for i := 1; i < 4; i++ {
		if p.Spans[i].To != p.Spans[i+1].From && i < 3 {
			t.Errorf("something stands between pieces %d and %d", i, i+1)
		}
	}
	for name, msgs := range map[string][]Message{
		"first":              {{Role: Inline, Text: "x"}},
		"after a user":       {{Role: User, Text: "x"}, {Role: Inline, Text: "x"}},
		"user in a turn":     {{Role: User}, {Role: Assistant, Text: "x"}, {Role: Inline, Text: "y"}, {Role: User, Text: "z"}},
		"user after an open": {{Role: User}, {Role: Assistant, Text: "x", Open: true}, {Role: User, Text: "z"}},
	} {
		if _, err := Qwen3VL.Render(tok, msgs, nil, true); fail.KindOf(err) != fail.BadInput || err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	p, err = Qwen3VL.Render(tok, []Message{{Role: User, Text: "q"}, {Role: Assistant, Text: "<think>", Open: true}}, nil, true)
	if got := tok.Decode(p.IDs); err != nil || !strings.HasSuffix(got, "assistant\n<think>") {
		t.Errorf("%q %v", got, err)
	}
}

// TestInlinePrefix: prompt and sampled ids begin the prompt that goes on with them.
func TestInlinePrefix(t *testing.T) {
	tok := tokenizer(t)
	end, _ := tok.ID("<|im_end|>")
	r := rand.New(rand.NewPCG(2, 9))
	texts := []string{"\n\n<information>x</information>\n\n", "", "é", "\n", " the", "<|im_end|>"}
	for range 300 {
		msgs := []Message{{Role: User, Text: "the river"}}
		var before []int32
		for range 4 {
			p, err := Qwen3VL.Render(tok, msgs, nil, true)
			if err != nil {
				t.Fatal(err)
			}
			if len(p.IDs) < len(before) || !slices.Equal(p.IDs[:len(before)], before) {
				t.Fatalf("%q does not begin\n%q", tok.Decode(before), tok.Decode(p.IDs))
			}
			sampled := make([]int32, 1+r.IntN(6))
			for i := range sampled {
				sampled[i] = int32(r.IntN(256))
			}
			if r.IntN(4) == 0 {
				sampled = append(sampled, end) // a turn that the policy ended, and that goes on all the same
			}
			before = append(slices.Clone(p.IDs), sampled...)
			msgs = append(msgs, Message{Role: Assistant, TokenIDs: sampled}, Message{Role: Inline, Text: texts[r.IntN(len(texts))]})
		}
	}
}
