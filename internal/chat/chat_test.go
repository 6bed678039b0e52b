package chat

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/token"
)

type goldenCase struct {
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
		Calls   []struct {
			Function struct {
				Name      string          `json:"name"`
				Arguments json.RawMessage `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"messages"`
	Tools    json.RawMessage `json:"tools"`
	Generate bool            `json:"generate"`
	Text     string          `json:"text"`
	IDs      []int32         `json:"ids"`
}

func tokenizer(t testing.TB) *token.BPE {
	t.Helper()
	tok, err := token.LoadBPE("testdata")
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func (c *goldenCase) messages(t *testing.T) (msgs []Message) {
	for _, m := range c.Messages {
		msg := Message{Role: m.Role}
		var parts []struct {
			Type string   `json:"type"`
			Text string   `json:"text"`
			Grid [3]int32 `json:"grid"`
		}
		if json.Unmarshal(m.Content, &msg.Text) != nil {
			if err := json.Unmarshal(m.Content, &parts); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range parts {
			if p.Type == "image" {
				msg.Images = append(msg.Images, Image{Grid: p.Grid})
				msg.At = append(msg.At, len(msg.Text))
			}
			msg.Text += p.Text
		}
		for i, call := range m.Calls {
			s, err := CallText(call.Function.Name, call.Function.Arguments)
			if err != nil {
				t.Fatal(err)
			}
			if i > 0 || msg.Text != "" {
				msg.Text += "\n"
			}
			msg.Text += s
		}
		msgs = append(msgs, msg)
	}
	return msgs
}

// TestGolden: text as the template writes it, ids as the reference encodes it whole.
func TestGolden(t *testing.T) {
	tok := tokenizer(t)
	for name, format := range map[string]Format{"golden": Qwen3VL, "qwen25vl": Qwen25VL, "qwen25": Qwen25} {
		data, err := os.ReadFile("testdata/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var cases []goldenCase
		if err := json.Unmarshal(data, &cases); err != nil {
			t.Fatal(err)
		}
		for i, c := range cases {
			c.check(t, fmt.Sprint(name, " ", i), format, tok)
		}
	}
}

func (c *goldenCase) check(t *testing.T, name string, format Format, tok *token.BPE) {
	t.Helper()
	p, err := format.Render(tok, c.messages(t), c.Tools, c.Generate)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	if got := tok.Decode(p.IDs); got != c.Text {
		t.Errorf("%s: text\n got %q\nwant %q", name, got, c.Text)
	}
	if !slices.Equal(p.IDs, c.IDs) {
		t.Errorf("%s: ids\n got %v\nwant %v", name, p.IDs, c.IDs)
	}
	if len(p.Spans) != len(c.Messages) {
		t.Errorf("%s: %d spans of %d messages", name, len(p.Spans), len(c.Messages))
	}
	pad, _ := tok.ID("<|image_pad|>")
	var want []int32
	for at, id := range p.IDs {
		if id == pad && p.IDs[at-1] != pad {
			want = append(want, int32(at))
		}
	}
	if !slices.Equal(p.ImageOffsets, want) {
		t.Errorf("%s: image offsets %v, want %v", name, p.ImageOffsets, want)
	}
}

func TestSpans(t *testing.T) {
	tok := tokenizer(t)
	msgs := []Message{{Role: System, Text: "the system"}, {Role: User, Text: "the river", Images: []Image{{Grid: [3]int32{1, 2, 4}}}},
		{Role: Assistant, Text: "search"}, {Role: Tool, Text: "town"}, {Role: Tool, Text: "query"}, {Role: Assistant, Text: ""}, {Role: User, Text: "\nx"}}
	want := []string{"the system", "<|vision_start|><|image_pad|><|image_pad|><|vision_end|>the river", "search<|im_end|>", "town", "query", "<|im_end|>", "\n\nx"}
	for _, tools := range []string{"", `[{"name":"x"}]`} {
		p, err := Qwen3VL.Render(tok, msgs, json.RawMessage(tools), false)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Spans) != len(msgs) {
			t.Fatalf("%d spans", len(p.Spans))
		}
		for i, s := range p.Spans {
			got := tok.Decode(p.IDs[s.From:s.To])
			if tools != "" && i == 0 {
				if !strings.HasPrefix(got, want[0]) || strings.Contains(got, "# Tools") {
					t.Errorf("system span %q", got)
				}
				continue
			}
			if got != want[i] {
				t.Errorf("span %d is %q, want %q", i, got, want[i])
			}
		}
	}
}

// TestPrefix: a conversation's prompt and what was sampled begin the prompt of
// every longer conversation.
func TestPrefix(t *testing.T) {
	tok := tokenizer(t)
	end, _ := tok.ID("<|im_end|>")
	pad, _ := tok.ID("<|image_pad|>")
	r := rand.New(rand.NewPCG(1, 9))
	texts := []string{"the river", "\n\n", " x", "", "<|im_end|>", "é\n", "<think>", "\n<tool_response>"}
	for range 300 {
		var msgs []Message
		if r.IntN(2) == 0 {
			msgs = append(msgs, Message{Role: System, Text: texts[r.IntN(len(texts))]})
		}
		var tools json.RawMessage
		if r.IntN(3) == 0 {
			tools = json.RawMessage(`[{"name": "lens"}]`)
		}
		var before []int32
		for range 4 {
			m := Message{Role: []string{User, Tool}[r.IntN(2)], Text: texts[r.IntN(len(texts))]}
			for range r.IntN(2) {
				m.Images = append(m.Images, Image{Grid: [3]int32{1, 2, int32(2 + 2*r.IntN(2))}})
			}
			msgs = append(msgs, m)
			p, err := Qwen3VL.Render(tok, msgs, tools, true)
			if err != nil {
				t.Fatal(err)
			}
			if len(p.IDs) < len(before) || !slices.Equal(p.IDs[:len(before)], before) {
				t.Fatalf("%q does not begin\n%q", tok.Decode(before), tok.Decode(p.IDs))
			}
			sampled := make([]int32, r.IntN(6))
			for i := range sampled {
				sampled[i] = int32(r.IntN(256))
			}
			if r.IntN(3) > 0 || len(sampled) == 0 {
				sampled = append(sampled, end)
			}
			msgs = append(msgs, Message{Role: Assistant, Text: "not looked at", TokenIDs: sampled})
			before = append(slices.Clone(p.IDs), sampled...)
		}
		p, err := Qwen3VL.Render(tok, msgs, tools, false)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, id := range p.IDs {
			if id == pad {
				n++
			}
		}
		images := 0
		for _, m := range msgs {
			for _, im := range m.Images {
				images += im.Tokens()
			}
		}
		if n != images {
			t.Fatalf("%d image tokens, want %d", n, images)
		}
	}
}

func TestRefused(t *testing.T) {
	tok := tokenizer(t)
	pad, _ := tok.ID("<|image_pad|>")
	im := []Image{{Grid: [3]int32{1, 2, 2}}}
	for what, m := range map[string]Message{
		"unknown role":        {Role: "developer"},
		"image out of text":   {Role: User, Text: "x", Images: im, At: []int{2}},
		"images backwards":    {Role: User, Text: "xyz", Images: append(im, im...), At: []int{2, 1}},
		"places":              {Role: User, Images: im, At: []int{0, 0}},
		"empty role":          {},
		"image of assistant":  {Role: Assistant, Images: im},
		"image of system":     {Role: System, Images: im},
		"ids of user":         {Role: User, TokenIDs: []int32{1}},
		"id too great":        {Role: Assistant, TokenIDs: []int32{int32(tok.Size())}},
		"negative id":         {Role: Assistant, TokenIDs: []int32{-1}},
		"sampled image token": {Role: Assistant, TokenIDs: []int32{1, pad}},
		"no grid":             {Role: User, Images: []Image{{}}},
		"negative grid":       {Role: User, Images: []Image{{Grid: [3]int32{1, -4, -4}}}},
		"huge grid":           {Role: User, Images: []Image{{Grid: [3]int32{1, 1 << 20, 1 << 20}}}},
	} {
		_, err := Qwen3VL.Render(tok, []Message{{Role: User, Text: "x"}, m}, nil, true)
		if err == nil || fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "row 2") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, tools := range []string{"{", `{"a": 1}`, `[{]`, `"x"`} {
		if _, err := Qwen3VL.Render(tok, nil, json.RawMessage(tools), true); err == nil || fail.KindOf(err) != fail.BadInput {
			t.Errorf("tools %s: %v", tools, err)
		}
	}
	plain, err := token.TrainBPE(slices.Values([]string{"x"}), 256, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Qwen3VL.Render(plain, nil, nil, true); err == nil || fail.KindOf(err) != fail.BadInput {
		t.Errorf("a tokenizer without chat marks: %v", err)
	}
}
