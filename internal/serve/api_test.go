package serve

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	openai "github.com/sashabaranov/go-openai"

	"searchloop/internal/token"
)

// collect reads a stream to its end.
func collect(t *testing.T, c *openai.Client, q openai.ChatCompletionRequest) (text string, logprobs []float64, finish string, usage *openai.Usage) {
	t.Helper()
	q.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
	st, err := c.CreateChatCompletionStream(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for n := 0; ; n++ {
		r, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.Usage != nil {
			usage = r.Usage
		}
		for _, ch := range r.Choices {
			if n == 0 && ch.Delta.Role != "assistant" {
				t.Errorf("first chunk has role %q", ch.Delta.Role)
			}
			text += ch.Delta.Content
			if ch.Logprobs != nil {
				for _, l := range ch.Logprobs.Content {
					logprobs = append(logprobs, l.Logprob)
				}
			}
			if ch.FinishReason != "" {
				finish = string(ch.FinishReason)
			}
		}
	}
}

// TestClient talks to the server with the OpenAI client, whole and streaming.
func TestClient(t *testing.T) {
	_, _, c := toyServer(t, Options{}, nil)
	ctx := context.Background()
	list, err := c.ListModels(ctx)
	if err != nil || len(list.Models) != 1 || list.Models[0].ID != "toy" {
		t.Fatalf("models %+v: %v", list, err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	finished := map[string]int{}
	for i := range 60 {
		q := ask(randomText(r, 1+r.IntN(20)), i, 1+r.IntN(60))
		q.LogProbs = true
		q.TopLogProbs = i % 4
		if i%3 == 0 {
			q.Stop = []string{"a", "to", "é7"}
		}
		if i%5 == 0 {
			q.Temperature = 0.5
			q.TopP = 0.9
		}
		whole, err := c.CreateChatCompletion(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		ch := whole.Choices[0]
		text, logprobs, finish, usage := collect(t, c, q)
		if text != ch.Message.Content || finish != string(ch.FinishReason) || usage == nil || usage.TotalTokens != whole.Usage.TotalTokens {
			t.Fatalf("stream %q %s %+v, whole %q %s %+v", text, finish, usage, ch.Message.Content, ch.FinishReason, whole.Usage)
		}
		finished[finish]++
		var want []float64
		joined := []byte{}
		for k, l := range ch.LogProbs.Content {
			want = append(want, l.LogProb)
			joined = append(joined, l.Bytes...)
			if len(l.TopLogProbs) != i%4 || l.LogProb > 0 {
				t.Fatalf("token %d: %+v", k, l)
			}
		}
		if !slices.Equal(logprobs, want) {
			t.Fatalf("log-probs differ: %v and %v", logprobs, want)
		}
		if len(q.Stop) == 0 && token.Text(joined) != text {
			t.Fatalf("the tokens' bytes are %q, the text is %q", joined, text)
		}
		for _, w := range q.Stop {
			if strings.Contains(text, w) {
				t.Fatalf("text %q holds the stop string %q", text, w)
			}
		}
		if n := whole.Usage.CompletionTokens; n > q.MaxCompletionTokens || finish == "length" && n != q.MaxCompletionTokens {
			t.Fatalf("%d tokens of at most %d, finish %s", n, q.MaxCompletionTokens, finish)
		}
	}
	if finished["stop"] == 0 || finished["length"] == 0 {
		t.Errorf("finish reasons %v", finished)
	}
}

// post sends a raw body.
func post(t testing.TB, base, body string) (int, http.Header, []byte) {
	t.Helper()
	r, err := http.Post(base+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, r.Header, data
}

func pngURL(w, h int, shade uint8) string {
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := range w * h {
		m.Set(i%w, i/w, color.RGBA{shade, uint8(i), uint8(i / 7), 255})
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		panic(err)
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes())
}

type extended struct {
	Choices []struct {
		Message  struct{ Content string } `json:"message"`
		TokenIDs []int32                  `json:"token_ids"`
		Logprobs []float32                `json:"token_logprobs"`
		Finish   string                   `json:"finish_reason"`
	} `json:"choices"`
	PromptIDs []int32 `json:"prompt_token_ids"`
	Images    []struct {
		Grid   [3]int32 `json:"grid"`
		Offset int      `json:"offset"`
	} `json:"prompt_images"`
	Policy string `json:"policy"`
	Mode   string `json:"logprobs_mode"`
	Usage  struct {
		Prompt  int `json:"prompt_tokens"`
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
}

// TestConversation: the extensions carry a conversation with images and tools
// through several turns without ever encoding a sampled turn again, and each turn
// reads only what is new.
func TestConversation(t *testing.T) {
	s, m, _ := toyServer(t, Options{}, func(m *toy) { m.sharp = 8 })
	base := baseURL(s, t)
	pad, _ := s.tok.ID("<|image_pad|>")
	msgs := []map[string]any{
		{"role": "system", "content": "Be brief."},
		{"role": "user", "content": []any{
			map[string]any{"type": "image_url", "image_url": map[string]any{"url": pngURL(24, 16, 9)}},
			map[string]any{"type": "text", "text": "Which river?"},
			map[string]any{"type": "image_url", "image_url": map[string]any{"url": pngURL(40, 40, 77)}},
		}},
	}
	var before []int32
	for turn := range 5 {
		body, _ := json.Marshal(map[string]any{"model": "toy", "messages": msgs, "seed": turn, "max_tokens": 25, "return_token_ids": true, "include_stop_str_in_output": true,
			"stop": []string{"ow"}, "tools": []any{map[string]any{"type": "function", "function": map[string]any{"name": "lens"}}}})
		read := m.read.Load()
		code, _, data := post(t, base, string(body))
		var r extended
		if err := json.Unmarshal(data, &r); err != nil || code != 200 {
			t.Fatalf("turn %d: %d %s", turn, code, data)
		}
		c := r.Choices[0]
		if len(c.TokenIDs) == 0 || len(c.TokenIDs) != len(c.Logprobs) || r.Policy != "abc123" || r.Mode != "processed" {
			t.Fatalf("turn %d: %s", turn, data)
		}
		if !slices.Equal(r.PromptIDs[:len(before)], before) {
			t.Fatalf("turn %d: the prompt does not begin with the last one and its turn", turn)
		}
		if turn > 0 {
			// All but the last sampled token was in the cache.
			if want := len(before) - 1; r.Usage.Details.Cached != want {
				t.Errorf("turn %d: %d tokens reused, want %d", turn, r.Usage.Details.Cached, want)
			}
			if got, want := int(m.read.Load()-read), len(r.PromptIDs)-len(before)+len(c.TokenIDs); got != want {
				t.Errorf("turn %d: the model read %d tokens, want %d", turn, got, want)
			}
		}
		for i, im := range r.Images {
			n := int(im.Grid[1]*im.Grid[2]) / 4
			for k := range n {
				if r.PromptIDs[im.Offset+k] != pad {
					t.Fatalf("turn %d: image %d is not at %d", turn, i, im.Offset)
				}
			}
		}
		if want := 2 + turn/2; len(r.Images) != want {
			t.Fatalf("turn %d: %d images, want %d", turn, len(r.Images), want)
		}
		if strings.Contains(c.Message.Content, "ow") != strings.HasSuffix(c.Message.Content, "ow") {
			t.Errorf("text goes on after its stop string: %q", c.Message.Content)
		}
		before = append(slices.Clone(r.PromptIDs), c.TokenIDs...)
		msgs = append(msgs, map[string]any{"role": "assistant", "content": c.Message.Content, "token_ids": c.TokenIDs})
		if turn%2 == 1 {
			msgs = append(msgs, map[string]any{"role": "tool", "content": []any{map[string]any{"type": "image_url", "image_url": map[string]any{"url": pngURL(16, 16, uint8(turn))}}}})
		}
		msgs = append(msgs, map[string]any{"role": "tool", "content": fmt.Sprint("result ", turn)})
	}
}

// TestStreamExtensions: the chunks' extensions add up to those of the whole answer.
func TestStreamExtensions(t *testing.T) {
	s, _, _ := toyServer(t, Options{}, nil)
	base := baseURL(s, t)
	const q = `{"messages":[{"role":"user","content":"river"}],"seed":5,"max_tokens":30,"return_token_ids":true`
	_, _, data := post(t, base, q+"}")
	var want extended
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	_, h, data := post(t, base, q+`,"stream":true}`)
	if h.Get("Content-Type") != "text/event-stream" {
		t.Error(h)
	}
	events := strings.Split(strings.TrimSpace(string(data)), "\n\n")
	if events[len(events)-1] != "data: [DONE]" {
		t.Errorf("the last event is %q", events[len(events)-1])
	}
	var got extended
	for i, e := range events[:len(events)-1] {
		var r extended
		if err := json.Unmarshal([]byte(strings.TrimPrefix(e, "data: ")), &r); err != nil {
			t.Fatalf("%v: %s", err, e)
		}
		if i == 0 {
			got = r
			continue
		}
		got.Choices[0].TokenIDs = append(got.Choices[0].TokenIDs, r.Choices[0].TokenIDs...)
		got.Choices[0].Logprobs = append(got.Choices[0].Logprobs, r.Choices[0].Logprobs...)
	}
	if !slices.Equal(got.PromptIDs, want.PromptIDs) || got.Policy != want.Policy ||
		!slices.Equal(got.Choices[0].TokenIDs, want.Choices[0].TokenIDs) || !slices.Equal(got.Choices[0].Logprobs, want.Choices[0].Logprobs) {
		t.Errorf("stream %+v\nwhole %+v", got, want)
	}
}

func TestOtherPaths(t *testing.T) {
	s, _, _ := toyServer(t, Options{}, nil)
	base := baseURL(s, t)
	post(t, base, `{"messages":[{"role":"user","content":"x"}],"max_tokens":7,"temperature":0,"seed":1}`)
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/health": {200, `"status":"ok"`}, "/v1/models": {200, `"max_model_len":1024`}, "/nothing": {404, "/nothing"}, "/v1/chat/completions": {405, "POST only"},
		"/metrics": {200, "searchloop_sampled_tokens_total 7\n"},
	} {
		r, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != want.code || !strings.Contains(string(data), want.text) {
			t.Errorf("%s: %d %s", path, r.StatusCode, data)
		}
		if path != "/metrics" && !json.Valid(data) {
			t.Errorf("%s is not JSON: %s", path, data)
		}
	}
}
