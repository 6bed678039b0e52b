package llm

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
)

// whole is a request as encoding/json writes it from its parts.
func whole(t *testing.T, x *exchange, model string) string {
	type part struct {
		Type  string            `json:"type"`
		Text  string            `json:"text,omitempty"`
		Image map[string]string `json:"image_url,omitempty"`
	}
	type msg struct {
		Role     string    `json:"role"`
		Content  any       `json:"content"`
		TokenIDs []int32   `json:"token_ids,omitempty"`
		Segments []segment `json:"segments,omitempty"`
	}
	out := struct {
		Model    string `json:"model"`
		Messages []msg  `json:"messages"`
		wireRest
	}{Model: model, wireRest: x.rest()}
	for _, m := range x.request.joined() {
		w := msg{Role: m.Role, Content: m.Text}
		if len(m.Images) > 0 {
			var list []part
			for _, p := range m.Images {
				list = append(list, part{Type: "image_url", Image: map[string]string{"url": DataURL(p)}})
			}
			if m.Text != "" {
				list = append(list, part{Type: "text", Text: m.Text})
			}
			w.Content = list
		}
		if x.extras {
			w.TokenIDs, w.Segments = m.TokenIDs, m.segments
		}
		out.Messages = append(out.Messages, w)
	}
	b, err := encode(out)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(b), "\n")
}

// Every turn's request, made of the one before, is what encoding/json makes of all of
// its messages.
func TestRequestsOfAConversation(t *testing.T) {
	odd := "<a & b>\u2028\x00\x1f\x7f\xff\"\\/\n\t\r\b\f é 😀"
	talk := []Message{
		{Role: "system", Text: "You search."}, {Role: "user", Text: odd, Images: [][]byte{[]byte("\x89PNG\r\n\x1a\n…"), []byte("plain")}},
		{Role: "assistant", Text: "one", TokenIDs: []int32{1, -2, 3}}, {Role: "tool", Text: "found", Images: [][]byte{{0xff, 0xd8, 0xff}}},
		{Role: "assistant", Text: "two"}, {Role: Inline, Text: "inside"}, {Role: "assistant", Text: "three", TokenIDs: []int32{7}}, {Role: Inline, Text: ""},
		{Role: "assistant", Text: "four"}, {Role: "tool", Text: ""}, {Role: "assistant", Text: ""},
	}
	kept := new(written)
	check := func(x *exchange, model string) {
		t.Helper()
		x.request.kept = kept
		got, err := x.text(model)
		if want := whole(t, x, model); err != nil || string(got) != want {
			t.Errorf("%v\n got %s\nwant %s", err, got, want)
		}
		if !json.Valid(got) {
			t.Errorf("no JSON: %s", got)
		}
	}
	for n := range len(talk) + 1 {
		req := Request{Messages: talk[:n], MaxTokens: n, TopP: 0.5, Seed: int64(n), TokenIDs: n%3 > 0, Stop: []string{"</search>"}[:n%2], Tools: []Tool{{Name: "t", Parameters: json.RawMessage(`{"a":1}`)}}[:n%2]}
		check(&exchange{request: req, extras: true, keep: true, schema: true}, "m")
	}
	for _, f := range []float32{0, -0.5, 1, 0.7, 1e-7, 1e-6, 3e20, 1e21, 1e-30, 16777216} {
		check(&exchange{request: Request{Messages: talk[:2], Temperature: f, TopP: 0.9, TopK: 40, Stop: []string{"a", "<b>", odd}}, keep: true}, "m")
		check(&exchange{request: Request{Messages: talk[:2], Temperature: f, TopP: f, TopK: -1, Stop: []string{"a", ""}}}, "m")
	}
	if _, err := (&exchange{request: Request{Temperature: float32(math.NaN())}}).text("m"); err == nil {
		t.Error("a temperature that is no number was written")
	}
	// A server that takes no ids, another model, a conversation that was changed, a picture that is another one.
	check(&exchange{request: Request{Messages: talk}}, "m")
	check(&exchange{request: Request{Messages: talk}}, "other \"model\"")
	check(&exchange{request: Request{Messages: talk, Schema: json.RawMessage(`{"type":"object"}`)}, schema: true}, "m")
	other := append([]Message(nil), talk...)
	other[3].Images = [][]byte{{0xff, 0xd8, 0xfe}}
	check(&exchange{request: Request{Messages: other}}, "m")
	other[0].Text = "You do not search."
	check(&exchange{request: Request{Messages: other[:4]}}, "m")
	check(&exchange{request: Request{Messages: other[:2]}}, "m")
}

// What was written is not written over while it is still being sent.
func TestRequestStillBeingSent(t *testing.T) {
	kept := new(written)
	x := &exchange{request: Request{Messages: []Message{{Role: "user", Text: "first"}}, kept: kept}}
	first, err := x.text("m")
	if err != nil {
		t.Fatal(err)
	}
	sent := kept.send(first)
	x.request.Messages = append(x.request.Messages, Message{Role: "assistant", Text: strings.Repeat("x", 1000)})
	if _, err := x.text("m"); err != nil {
		t.Fatal(err)
	}
	x.request.Messages = x.request.Messages[:1]
	x.request.Seed = 12345
	if _, err := x.text("m"); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(sent)
	x.request.Seed = 0
	if want := whole(t, x, "m"); err != nil || string(got) != want {
		t.Errorf("%v, %s", err, got)
	}
	sent.Close()
	sent.Close()
	if kept.busy.Load() != 0 {
		t.Error("still busy")
	}
}

// BenchmarkRequest writes the requests of a conversation of ten turns with two pictures
// of 300 kB, keeping what was written and anew every turn.
func BenchmarkRequest(b *testing.B) {
	picture := make([]byte, 300<<10)
	talk := []Message{{Role: "system", Text: "You search."}, {Role: "user", Text: "Which?", Images: [][]byte{picture, picture}}}
	for i := range 20 {
		talk = append(talk, Message{Role: []string{"assistant", "tool"}[i%2], Text: strings.Repeat("Some \"text\" of a turn.\n", 100)})
	}
	for _, keep := range []bool{true, false} {
		b.Run(fmt.Sprintf("kept=%v", keep), func(b *testing.B) {
			for b.Loop() {
				kept := new(written)
				for n := 2; n <= len(talk); n += 2 {
					x := &exchange{request: Request{Messages: talk[:n]}}
					if keep {
						x.request.kept = kept
					}
					if _, err := x.text("m"); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
