package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/retry"
	"searchloop/internal/secret"
)

const okBody = `{"choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}`

// serve gives a client of a server in which h answers the n-th request.
func serve(t *testing.T, h func(n int, w http.ResponseWriter, r *http.Request)) (*Client, *atomic.Int32) {
	t.Helper()
	return serveWithin(t, time.Minute, h)
}

// serveWithin is serve with a time-out. What must come in time needs a machine that
// answers itself by then.
func serveWithin(t *testing.T, timeout time.Duration, h func(n int, w http.ResponseWriter, r *http.Request)) (*Client, *atomic.Int32) {
	t.Helper()
	var n atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h(int(n.Add(1)), w, r) }))
	t.Cleanup(s.Close)
	c, err := New(Options{Name: "test server", URL: s.URL, Model: "m", Timeout: timeout,
		Retry: retry.Options{Base: time.Millisecond, Cap: 4 * time.Millisecond, Open: 10 * time.Millisecond, Gone: 400 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	return c, &n
}

func ask(c *Client) (*Reply, error) {
	return c.Chat(context.Background(), Request{Messages: []Message{{Role: "user", Text: "hello"}}})
}

func TestEveryFailureHasItsClass(t *testing.T) {
	long := `{"error":{"message":"This model's maximum context length is 10 tokens","type":"BadRequestError","code":400}}`
	for _, c := range []struct {
		name, body string
		status     int
		class      string
		verdict    retry.Verdict
		calls      int32
	}{
		{"500", "boom", 500, "http 500", retry.Again, 5},
		{"503", "", 503, "http 503", retry.Again, 5},
		{"html with 200", "<html><body>login</body></html>", 200, HTML, retry.Again, 5},
		{"truncated json", okBody[:60], 200, NotJSON, retry.Again, 5},
		{"garbage", "\x00\xff{]", 200, NotJSON, retry.Again, 5},
		{"another type", `[1,2]`, 200, NotJSON, retry.Again, 5},
		{"choices of another type", `{"choices":["a"]}`, 200, NotJSON, retry.Again, 5},
		{"error object with 200", `{"error":{"message":"engine restarting"}}`, 200, ErrorObject, retry.Again, 5},
		{"no choices", `{"choices":[]}`, 200, NoChoices, retry.Again, 5},
		{"empty content", `{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}`, 200, Empty, retry.Again, 5},
		{"null content", `{"choices":[{"message":{"content":null},"finish_reason":"stop"}]}`, 200, Empty, retry.Again, 5},
		{"aborted", `{"choices":[{"message":{"content":"half"},"finish_reason":"abort"}]}`, 200, Aborted, retry.Again, 5},
		{"bad request", `{"error":{"message":"n must be 1"}}`, 400, "http 400", retry.Never, 1},
		{"context length, OpenAI", `{"error":{"message":"too long","code":"context_length_exceeded"}}`, 400, ContextLength, retry.Never, 1},
		{"context length, vLLM", long, 400, ContextLength, retry.Never, 1},
		{"filter", `{"error":{"message":"no","code":"content_filter"}}`, 400, Filtered, retry.Never, 1},
		{"401", `{"error":{"message":"bad key sk-secret-1234"}}`, 401, Unauthorised, retry.Stop, 1},
		{"403", ``, 403, Unauthorised, retry.Stop, 1},
		{"404", `{"error":{"message":"no model m"}}`, 404, NotFound, retry.Stop, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			secret.New("sk-secret-1234")
			cl, n := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			})
			_, err := ask(cl)
			f := FaultOf(err)
			if f == nil || f.Class != c.class || f.Verdict != c.verdict || n.Load() != c.calls {
				t.Fatalf("got %v (%+v) after %d calls, want class %q", err, f, n.Load(), c.class)
			}
			if fail.KindOf(err) != fail.Service || strings.Contains(err.Error(), "sk-secret") {
				t.Fatalf("kind %v, text %q", fail.KindOf(err), err)
			}
		})
	}
}

func TestARetryAnswers(t *testing.T) {
	for _, fault := range []func(w http.ResponseWriter){
		func(w http.ResponseWriter) { w.WriteHeader(500) },
		func(w http.ResponseWriter) { io.WriteString(w, "<html>") },
		func(w http.ResponseWriter) { w.Header().Set("Content-Length", "100"); io.WriteString(w, "{") },
		func(w http.ResponseWriter) { panic(http.ErrAbortHandler) }, // connection reset
	} {
		c, n := serve(t, func(n int, w http.ResponseWriter, _ *http.Request) {
			if n <= 2 {
				fault(w)
				return
			}
			io.WriteString(w, okBody)
		})
		r, err := ask(c)
		if err != nil || r.Text != "hi" || n.Load() != 3 || r.PromptTokens != 7 || r.ReplyTokens != 2 || r.LogprobMode != "none" || r.Attempts != 3 {
			t.Fatalf("%+v, %v, %d calls", r, err, n.Load())
		}
	}
	// A hang: nothing comes in time.
	c, n := serveWithin(t, time.Second, func(n int, w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if n <= 2 {
			<-r.Context().Done()
			return
		}
		io.WriteString(w, okBody)
	})
	// On a machine that is very busy, one more may be late.
	if r, err := ask(c); err != nil || r.Text != "hi" || n.Load() < 3 || r.Attempts < 3 {
		t.Fatalf("%+v, %v, %d calls", r, err, n.Load())
	}
}

func TestTheRequestSaysEverything(t *testing.T) {
	var body struct {
		Temperature *float64
		TopP        *float64 `json:"top_p"`
		TopK        *int     `json:"top_k"`
		Seed        *int64
		MaxTokens   int  `json:"max_tokens"`
		Return      bool `json:"return_token_ids"`
		Tools       []struct{ Function struct{ Name string } }
		Messages    []struct {
			Role     string
			Content  any
			TokenIDs []int32 `json:"token_ids"`
		}
	}
	var auth string
	var c *Client
	c, _ = serve(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		auth = r.Header.Get("Authorization")
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		io.WriteString(w, `{"choices":[{"message":{"content":"ab"},"finish_reason":"length","token_ids":[5,6],"token_logprobs":[-0.5,-1]}],
			"prompt_token_ids":[1,2,3],"prompt_images":[{"grid":[1,4,6],"offset":1}],"policy":"abc","logprobs_mode":"processed"}`)
	})
	r, err := c.Chat(t.Context(), Request{TokenIDs: true, MaxTokens: 9, Seed: 1 << 30, TopK: -1, Tools: []Tool{{Name: "f", Parameters: json.RawMessage(`{}`)}},
		Messages: []Message{{Role: "user", Text: "q", Images: [][]byte{{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}}}, {Role: "assistant", TokenIDs: []int32{4, 9}}, {Role: "tool"}}})
	if err != nil {
		t.Fatal(err)
	}
	if body.Temperature == nil || *body.Temperature != 0 || body.TopP == nil || *body.TopP != 1 || body.TopK != nil || *body.Seed != 1<<30 || body.MaxTokens != 9 || !body.Return {
		t.Errorf("sampling sent: %+v", body)
	}
	if got := fmt.Sprint(body.Messages); got != "[{user [map[image_url:map[url:data:image/png;base64,iVBORw0KGgo=] type:image_url] map[text:q type:text]] []} {assistant  [4 9]} {tool  []}]" {
		t.Errorf("messages sent: %s", got)
	}
	if auth != "" || len(body.Tools) != 1 || body.Tools[0].Function.Name != "f" {
		t.Errorf("auth %q, tools %v", auth, body.Tools)
	}
	want := "{Text:ab Finish:length TokenIDs:[5 6] Logprobs:[-0.5 -1] LogprobMode:processed PromptIDs:[1 2 3] Images:[{Grid:[1 4 6] Offset:1}] PromptTokens:3 ReplyTokens:2 Stop: Policy:abc Attempts:1}"
	if got := fmt.Sprintf("%+v", *r); got != want {
		t.Errorf("reply %s\nwant  %s", got, want)
	}
}

func TestRefusedExtensionIsDropped(t *testing.T) {
	c, n := serve(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if bytes.Contains(b, []byte("token_ids")) {
			w.WriteHeader(400)
			io.WriteString(w, `{"error":{"message":"Unrecognized request argument supplied: return_token_ids"}}`)
			return
		}
		io.WriteString(w, okBody)
	})
	for range 2 {
		r, err := c.Chat(t.Context(), Request{TokenIDs: true, Messages: []Message{{Role: "user", Text: "q"}, {Role: "assistant", Text: "a", TokenIDs: []int32{1}}}})
		if err != nil || r.TokenIDs != nil {
			t.Fatal(r, err)
		}
	}
	if n.Load() != 3 {
		t.Fatalf("%d calls: the refusal must be remembered", n.Load())
	}
}

func TestServersThatParse(t *testing.T) {
	c, _ := serve(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"choices":[{"message":{"content":null,"reasoning_content":"hm","tool_calls":[{"function":{"name":"text_search","arguments":"{\"query_list\":[\"a\"]}"}}]},"finish_reason":"tool_calls"}]}`)
	})
	r, err := ask(c)
	want := "<think>hm</think>\n\n<tool_call>\n{\"name\": \"text_search\", \"arguments\": {\"query_list\":[\"a\"]}}\n</tool_call>"
	if err != nil || r.Text != want || r.Finish != "stop" {
		t.Fatalf("%+v, %v", r, err)
	}
}

func TestProbe(t *testing.T) {
	list := `{"data":[{"id":"m"},{"id":"n"}]}`
	for _, c := range []struct {
		model, body string
		status      int
		want, kind  string
	}{
		{"m", list, 200, "m", ""},
		{"", `{"data":[{"id":"only"}]}`, 200, "only", ""},
		{"", list, 200, "", "usage"},
		{"other", list, 200, "", "service"},
		{"m", "", 404, "m", ""},
		{"", "", 404, "", "service"},
		{"m", "", 401, "", "service"},
		{"m", "<html>", 200, "", "service"},
	} {
		cl, _ := serve(t, func(_ int, w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/models" {
				t.Errorf("path %s", r.URL.Path)
			}
			w.WriteHeader(c.status)
			io.WriteString(w, c.body)
		})
		cl.opt.Model = c.model
		err := cl.Probe(t.Context())
		if c.kind == "" && (err != nil || cl.Model() != c.want) || c.kind != "" && (err == nil || fail.KindOf(err).String() != c.kind) {
			t.Errorf("%+v: model %q, %v", c, cl.Model(), err)
		}
	}
}

func TestGoneAndCancelled(t *testing.T) {
	c, _ := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
	var last error
	for range 200 {
		if _, last = ask(c); FaultOf(last).Verdict == retry.Stop {
			break
		}
	}
	if FaultOf(last).Class != "gone" || fail.ExitCode(last) != 69 || !strings.Contains(last.Error(), "run again") {
		t.Fatal(last)
	}
	c, _ = serve(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("trajectory deadline"))
	defer cancel()
	_, err := c.Chat(ctx, Request{})
	if f := FaultOf(err); f.Verdict != retry.Caller || !strings.Contains(err.Error(), "trajectory deadline") {
		t.Fatal(err)
	}
}

func TestBadAddressAndNoSecretsShown(t *testing.T) {
	for _, u := range []string{"", "localhost:80", "ftp://x", "http://"} {
		if _, err := New(Options{Name: "judge", URL: u}); fail.KindOf(err) != fail.Usage {
			t.Errorf("%q: %v", u, err)
		}
	}
	var log bytes.Buffer
	c, err := New(Options{Name: "judge", URL: "http://user:hunter22@127.0.0.1:1/v1", Key: secret.New("sk-abcdefgh"), Log: slog.New(slog.NewTextHandler(&log, nil)),
		Retry: retry.Options{Base: 1, Cap: 1, Open: time.Millisecond, Gone: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = ask(c)
	if s := fmt.Sprint(err, c.URL(), log.String()); strings.Contains(s, "hunter22") || strings.Contains(s, "sk-abcdefgh") {
		t.Fatal(s)
	}
}
