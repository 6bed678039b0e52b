package llm

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"searchloop/internal/fail"
	"searchloop/internal/retry"
	"searchloop/internal/secret"
	"searchloop/internal/tape"
)

// TestTaped records conversations with a server that refuses some and breaks on
// others, and plays them again without it: the same replies and the same failures.
func TestTaped(t *testing.T) {
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := calls.Add(1)
		body, _ := io.ReadAll(r.Body)
		switch {
		case strings.HasSuffix(r.URL.Path, "/models"):
			fmt.Fprint(w, `{"data": [{"id": "m"}]}`)
		case strings.HasSuffix(r.URL.Path, "/detokenize"):
			fmt.Fprint(w, `{"prompt": "ab"}`)
		case strings.HasSuffix(r.URL.Path, "/tokenize"):
			fmt.Fprint(w, `{"tokens": [1, 2, 3]}`)
		case strings.Contains(string(body), "too long"):
			http.Error(w, `{"error": {"message": "maximum context length is 10 tokens"}}`, http.StatusBadRequest)
		case strings.Contains(string(body), "break"):
			http.Error(w, "oops", http.StatusInternalServerError)
		default:
			fmt.Fprintf(w, `{"choices": [{"message": {"content": "turn %d"}, "finish_reason": "stop", "token_ids": [7, 8], "token_logprobs": [-0.1, -1e-7]}], "prompt_token_ids": [5], "logprobs_mode": "processed", "policy": "p"}`, n)
		}
	}))
	defer server.Close()
	ask := func(text string, seed int64, images ...[]byte) Request {
		return Request{Messages: []Message{{Role: "user", Text: text, Images: images}}, Seed: seed, TokenIDs: true}
	}
	requests := []Request{ask("a", 1), ask("a", 2), ask("a", 1, []byte("picture")), ask("too long", 1), ask("break", 1)}
	play := func(url, record, replay string) (out []any) {
		tp, err := tape.Open(record, replay)
		if err != nil {
			t.Fatal(err)
		}
		c, err := New(Options{Name: "policy server", URL: url, Key: secret.New("canary-of-the-tape"), Tape: tp, Timeout: time.Minute,
			Retry: retry.Options{Tries: 2, Base: time.Millisecond}})
		if err == nil {
			err = c.Probe(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c.Model())
		for _, r := range requests {
			reply, err := c.Chat(context.Background(), r)
			why := ""
			if f := FaultOf(err); f != nil {
				why = fmt.Sprint(fail.KindOf(err), f.Verdict, f)
			} else if err != nil {
				why = err.Error()
			}
			out = append(out, reply, why)
		}
		cut, err := c.Cut(context.Background(), "abcdef", 2)
		return append(out, cut, err)
	}
	dir := filepath.Join(t.TempDir(), "tape")
	recorded := play(server.URL, dir, "")
	before := calls.Load()
	if again := play(server.URL, dir, ""); calls.Load() != before+2 || !reflect.DeepEqual(again, recorded) {
		t.Errorf("recording again made %d calls, want the 2 of the request that broke", calls.Load()-before)
	}
	server.Close()
	if replayed := play("http://nobody.invalid", "", dir); !reflect.DeepEqual(replayed, recorded) {
		t.Errorf("recorded %v\nreplayed %v", recorded, replayed)
	}
	requests = []Request{ask("a", 3)}
	if out := play("http://nobody.invalid", "", dir); !strings.Contains(out[2].(string), "not recorded: chat") || !strings.Contains(out[2].(string), `"seed":3`) {
		t.Error(out[2])
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
	unpacker, _ := zstd.NewReader(nil)
	for _, f := range files {
		packed, _ := os.ReadFile(f)
		text, err := unpacker.DecodeAll(packed, nil)
		if err != nil || !strings.Contains(string(text), `"policy server"`) || strings.Contains(string(text), "canary-of-the-tape") {
			t.Errorf("%s: %v: %s", f, err, text)
		}
	}
	if len(files) != 7 {
		t.Errorf("%d records", len(files))
	}
}
