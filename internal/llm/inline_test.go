package llm

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"searchloop/internal/fail"
)

// A turn that the environment wrote into is one message: its text for every
// server, its pieces for those that keep exact tokens.
func TestInlineTextsAreOneMessage(t *testing.T) {
	for _, plain := range []bool{false, true} {
		var got []string
		c, _ := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			got = append(got, string(b))
			if plain && n == 1 {
				w.WriteHeader(400)
				io.WriteString(w, `{"error":{"message":"unknown field segments"}}`)
				return
			}
			io.WriteString(w, `{"choices":[{"message":{"content":"<search>b"},"finish_reason":"stop","stop_reason":"</search>"}]}`)
		})
		r, err := c.Chat(t.Context(), Request{Messages: []Message{{Role: "user", Text: "q"}, {Role: "assistant", Text: "<search>a</search>", TokenIDs: []int32{5, 6}},
			{Role: Inline, Text: "<information>i</information>"}, {Role: "assistant", Text: "x", TokenIDs: []int32{7}}, {Role: Inline, Text: "no"}}, Stop: []string{"</search>"}, TokenIDs: true})
		if err != nil || r.Text != "<search>b</search>" || r.Stop != "</search>" {
			t.Fatalf("%+v %v", r, err)
		}
		last := got[len(got)-1]
		var in struct {
			Messages []struct {
				Role, Content string
				Segments      json.RawMessage
			}
			Continue bool  `json:"continue_final_message"`
			Begin    *bool `json:"add_generation_prompt"`
			Include  bool  `json:"include_stop_str_in_output"`
		}
		if err := json.Unmarshal([]byte(last), &in); err != nil {
			t.Fatal(err)
		}
		m := in.Messages[len(in.Messages)-1]
		segments := `[{"token_ids":[5,6]},{"text":"<information>i</information>"},{"token_ids":[7]},{"text":"no"}]`
		if plain {
			segments = ""
		}
		if len(in.Messages) != 2 || m.Role != "assistant" || m.Content != "<search>a</search><information>i</information>xno" || string(m.Segments) != segments ||
			!in.Continue || in.Begin == nil || *in.Begin || in.Include == plain {
			t.Errorf("plain %v: %s", plain, last)
		}
	}
}

func TestSchemaIsOptional(t *testing.T) {
	var with, without int
	c, _ := serve(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if strings.Contains(string(b), `"response_format":{"type":"json_schema","json_schema":{"name":"reply","strict":true,"schema":{"type":"object"}}}`) {
			with++
			w.WriteHeader(400)
			io.WriteString(w, `{"error":{"message":"response_format \"json_schema\" is not supported, only text"}}`)
			return
		}
		without++
		io.WriteString(w, okBody)
	})
	for range 3 {
		if _, err := c.Chat(t.Context(), Request{Messages: []Message{{Role: "user", Text: "q"}}, Schema: json.RawMessage(`{"type":"object"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	if with != 1 || without != 3 {
		t.Errorf("%d requests with a schema, %d without", with, without)
	}
}

func TestCut(t *testing.T) {
	// A tokenizer of two bytes a token.
	h := func(detokenize string) func(int, http.ResponseWriter, *http.Request) {
		return func(_ int, w http.ResponseWriter, r *http.Request) {
			var in struct {
				Prompt string
				Tokens []int
			}
			b, _ := io.ReadAll(r.Body)
			json.Unmarshal(b, &in)
			switch r.URL.Path {
			case "/tokenize":
				var ids []int
				for i := 0; i < len(in.Prompt); i += 2 {
					ids = append(ids, int(in.Prompt[i])<<8|int(in.Prompt[min(i+1, len(in.Prompt)-1)]))
				}
				json.NewEncoder(w).Encode(map[string]any{"tokens": ids})
			case "/detokenize":
				var text []byte
				for _, id := range in.Tokens {
					text = append(text, byte(id>>8), byte(id))
				}
				if detokenize == "x" {
					text = []byte("xx")
				}
				json.NewEncoder(w).Encode(map[string]any{"prompt": string(text)})
			default:
				w.WriteHeader(404)
			}
		}
	}
	c, n := serve(t, h(""))
	for _, x := range []struct {
		text  string
		limit int
		want  string
	}{{"abcdef", 6, "abcdef"}, {"abcdef", 3, "abcdef"}, {"abcdef", 2, "abcd"}, {"abcéf", 2, "abc"}, {"abc", 0, "abc"}} {
		if got, err := c.Cut(t.Context(), x.text, x.limit); err != nil || got != x.want {
			t.Errorf("%q to %d: %q %v", x.text, x.limit, got, err)
		}
	}
	if n.Load() != 5 {
		t.Errorf("%d requests", n.Load())
	}
	c, _ = serve(t, h("x"))
	if _, err := c.Cut(t.Context(), "abcdef", 2); fail.KindOf(err) != fail.Service {
		t.Error(err)
	}
	c, _ = serve(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		if w.WriteHeader(404); r.URL.Path == "/v1/chat/completions" {
			t.Error("asked for a turn")
		}
	})
	for range 2 {
		if _, err := c.Cut(t.Context(), "abcdef", 2); fail.KindOf(err) != fail.Usage || !strings.Contains(err.Error(), "tool_chars") && !strings.Contains(err.Error(), "/tokenize") {
			t.Error(err)
		}
	}
}
