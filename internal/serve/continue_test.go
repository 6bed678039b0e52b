package serve

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestContinue: a turn that is played in pieces, with text of the environment
// between them, is one sequence of ids: every prompt begins with the last one and
// what was sampled from it, and the cache is reused.
func TestContinue(t *testing.T) {
	s, m, _ := toyServer(t, Options{}, func(m *toy) { m.sharp = 8 })
	base := baseURL(s, t)
	end, _ := s.tok.ID("<|im_end|>")
	var segments []map[string]any
	var before []int32
	for turn := range 6 {
		msgs := []map[string]any{{"role": "user", "content": "Which river?"}}
		req := map[string]any{"seed": 400 + turn, "max_tokens": 20, "return_token_ids": true, "include_stop_str_in_output": true, "stop": []string{"ow"}}
		if turn > 0 {
			msgs = append(msgs, map[string]any{"role": "assistant", "content": "for servers without segments", "segments": segments})
			req["continue_final_message"], req["add_generation_prompt"] = true, false
		}
		req["messages"] = msgs
		body, _ := json.Marshal(req)
		read := m.read.Load()
		code, _, data := post(t, base, string(body))
		var r extended
		if err := json.Unmarshal(data, &r); err != nil || code != 200 {
			t.Fatalf("turn %d: %d %s", turn, code, data)
		}
		ids := r.Choices[0].TokenIDs
		if !slices.Equal(r.PromptIDs[:len(before)], before) {
			t.Fatalf("turn %d: %q does not go on with %q", turn, s.tok.Decode(r.PromptIDs), s.tok.Decode(before))
		}
		if n := strings.Count(s.tok.Decode(r.PromptIDs), "<|im_start|>assistant"); n != 1 {
			t.Fatalf("turn %d: %d assistant turns", turn, n)
		}
		if turn > 0 {
			if got, want := s.tok.Decode(r.PromptIDs[len(before):]), fmt.Sprintf("\n<information>%d <|im_end|></information>\n", turn-1); got != want || slices.Contains(r.PromptIDs[len(before):], end) {
				t.Errorf("turn %d: between the pieces stands %q, want %q", turn, got, want)
			}
			if got, want := int(m.read.Load()-read), len(r.PromptIDs)-len(before)+len(ids); got != want {
				t.Errorf("turn %d: the model read %d tokens, want %d", turn, got, want)
			}
		}
		before = append(slices.Clone(r.PromptIDs), ids...)
		segments = append(segments, map[string]any{"token_ids": ids}, map[string]any{"text": fmt.Sprintf("\n<information>%d <|im_end|></information>\n", turn)})
	}
}

func TestContinueIsChecked(t *testing.T) {
	s, _, _ := toyServer(t, Options{}, nil)
	base := baseURL(s, t)
	for body, want := range map[string]string{
		`{"messages":[{"role":"user","content":"x"}],"continue_final_message":true}`:                                                                  "not an assistant's",
		`{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}],"continue_final_message":true,"add_generation_prompt":true}`:  "either begun",
		`{"messages":[{"role":"user","content":"x","segments":[{"text":"y"}]}]}`:                                                                      "only an assistant",
		`{"messages":[{"role":"user","content":"x"},{"role":"assistant","token_ids":[1],"segments":[{"text":"y"}]}]}`:                                 "only an assistant",
		`{"messages":[{"role":"user","content":"x"},{"role":"assistant","segments":[{"text":"y","token_ids":[1]}]}],"continue_final_message":true}`:   "both ids and text",
		`{"messages":[{"role":"user","content":"x"},{"role":"assistant","segments":[{"token_ids":[1]},{"text":"y"}]}]}`:                               "ends inside",
		`{"messages":[{"role":"user","content":"x"},{"role":"assistant","segments":[{"token_ids":[1]},{"text":"y"}]},{"role":"user","content":"z"}]}`: "inside an assistant's turn",
		`{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"},{"role":"inline","content":"z"}]}`:                             "segments",
		`{"messages":[{"role":"user","content":"x"},{"role":"assistant","segments":[{"token_ids":[99999999]}]}],"continue_final_message":true}`:       "vocabulary",
	} {
		if code, _, data := post(t, base, body); code != 400 || !strings.Contains(string(data), want) {
			t.Errorf("%s: %d %s", body, code, data)
		}
	}
	// A turn begun by its text alone, as other servers take it.
	code, _, data := post(t, base, `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"the"}],"continue_final_message":true,"max_tokens":1,"return_token_ids":true}`)
	var r extended
	if err := json.Unmarshal(data, &r); err != nil || code != 200 || !strings.HasSuffix(s.tok.Decode(r.PromptIDs), "<|im_start|>assistant\nthe") {
		t.Errorf("%d %s", code, data)
	}
}

func TestStopReason(t *testing.T) {
	s, _, _ := toyServer(t, Options{}, func(m *toy) { m.sharp = 8 })
	base := baseURL(s, t)
	seen := map[string]bool{}
	for seed := range 40 {
		code, _, data := post(t, base, fmt.Sprintf(`{"messages":[{"role":"user","content":"x"}],"seed":%d,"max_tokens":40,"stop":["e"],"include_stop_str_in_output":true}`, seed))
		var r struct {
			Choices []struct {
				Finish  string  `json:"finish_reason"`
				Stop    *string `json:"stop_reason"`
				Message struct{ Content string }
			}
		}
		if err := json.Unmarshal(data, &r); err != nil || code != 200 {
			t.Fatalf("%d %s", code, data)
		}
		c := r.Choices[0]
		if stopped := strings.HasSuffix(c.Message.Content, "e"); stopped != (c.Stop != nil) || stopped && (*c.Stop != "e" || c.Finish != "stop") {
			t.Errorf("%s", data)
		}
		seen[fmt.Sprint(c.Stop != nil)] = true
	}
	if len(seen) != 2 {
		t.Error("the toy always ends in the same way")
	}
}

func TestTokenize(t *testing.T) {
	s, _, _ := toyServer(t, Options{}, nil)
	base := strings.TrimSuffix(baseURL(s, t), "/v1")
	const text = "the river <|im_end|> é"
	body, _ := json.Marshal(map[string]any{"prompt": text})
	code, data := postTo(t, base+"/tokenize", string(body))
	var in struct {
		Count  int
		Tokens []int32
	}
	if err := json.Unmarshal(data, &in); err != nil || code != 200 || in.Count != len(in.Tokens) || !slices.Equal(in.Tokens, s.tok.EncodeOrdinary(text)) {
		t.Fatalf("%d %s", code, data)
	}
	for cut, want := range map[int]string{len(in.Tokens): text, len(in.Tokens) - 1: ""} {
		body, _ := json.Marshal(map[string]any{"tokens": in.Tokens[:cut]})
		code, data := postTo(t, base+"/detokenize", string(body))
		var out struct{ Prompt string }
		if err := json.Unmarshal(data, &out); err != nil || code != 200 || want != "" && out.Prompt != want || !strings.HasPrefix(text, out.Prompt) {
			t.Errorf("%d %s", code, data)
		}
	}
	for path, body := range map[string]string{"/tokenize": `{}`, "/detokenize": `{"tokens":[-1]}`} {
		if code, data := postTo(t, base+path, body); code != 400 {
			t.Errorf("%s: %d %s", path, code, data)
		}
	}
}

func postTo(t testing.TB, url, body string) (int, []byte) {
	t.Helper()
	r, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, data
}
