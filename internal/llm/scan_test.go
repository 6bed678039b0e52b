package llm

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// usual are responses as servers write them.
var usual = []string{
	`{"object":"chat.completion","model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"<think>I \"look\" it\nup.<\/think> \u00e9 é"},"finish_reason":"stop"}],"usage":{"prompt_tokens":300,"completion_tokens":40,"total_tokens":340}}`,
	`{"choices":[{"message":{"content":"hi","reasoning_content":"so","reasoning":"so","tool_calls":null},"finish_reason":"length","token_ids":[1,2,-3],"token_logprobs":[-0.5,-1e-3,0],"stop_reason":"</search>"}],"prompt_token_ids":[5,6,7],"prompt_images":[{"grid":[1,4,4],"offset":3}],"policy":"abc","logprobs_mode":"processed"}`,
	` {"choices" : [ {"message":{"content":""}, "matched_stop":151645, "finish_reason":null, "logprobs":{"content":[{"token":"a","logprob":-0.25,"top_logprobs":[]},{"token":"b","logprob":-1}],"refusal":null}} ], "error":null, "prompt_logprobs":null, "usage":{"prompt_tokens":null}} `,
}

// What scanReply reads is what encoding/json reads.
func same(t *testing.T, body []byte) (scanned bool) {
	got, ok := scanReply(body)
	if !ok {
		return false
	}
	var want reply
	if err := json.Unmarshal(body, &want); err != nil {
		t.Fatalf("%q: was read, and is no reply: %v", body, err)
	}
	want.Error = nil
	for i := range want.Choices {
		w := &want.Choices[i]
		w.Message.said, w.Message.Content = text(w.Message.Content), nil
		for _, p := range []*any{&w.Stop, &w.Matched} {
			if _, ok := (*p).(string); !ok {
				*p = nil
			}
		}
		if len(w.Message.ToolCalls) == 0 {
			w.Message.ToolCalls = nil
		}
	}
	if len(want.Choices) == 0 {
		want.Choices, got.Choices = nil, nil
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q:\n got %+v\nwant %+v", body, got, want)
	}
	return true
}

func TestScanReply(t *testing.T) {
	for _, text := range usual {
		if !same(t, []byte(text)) {
			t.Errorf("not read in one pass: %s", text)
		}
		for i := range text { // whatever is cut or put in
			same(t, []byte(text[:i]))
			for _, c := range []string{"x", `"`, "{", "]", ",", "1", "\\", "\xff", "null", "[]", "A"} {
				same(t, []byte(text[:i]+c+text[i:]))
			}
		}
	}
	// What is read by encoding/json instead.
	for _, text := range []string{"", "{", "[]", `{"choices":[]} x`, `{"choices":[],"choices":[]}`, `{"Choices":[]}`, `{"ch\u006fices":[]}`,
		`{"choices":[{"message":{"content":[{"type":"text","text":"a"}]}}]}`, `{"choices":[{"message":{"content":"\ud83d"}}` + strings.Repeat("]", 3),
		`{"choices":[{"message":{"content":"` + "\xff" + `"}}]}`, `{"choices":[{"token_ids":[1.5]}]}`, `{"choices":[{"token_ids":[01]}]}`, `{"choices":[{"token_ids":[99999999999]}]}`,
		`{"choices":[{"token_logprobs":[1e99]}]}`, `{"prompt_images":[{"grid":[1,2]}]}`, `{"error":{"message":"no"}}`, `{"x":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`} {
		if _, ok := scanReply([]byte(text)); ok {
			t.Errorf("was read in one pass: %.60s", text)
		}
	}
	if got, ok := scanReply([]byte(`{"choices":[{"message":{"content":"\ud83d\ude00 \/"}}]}`)); !ok || got.Choices[0].Message.said != "😀 /" {
		t.Errorf("%v, %+v", ok, got)
	}
}

func FuzzScanReply(f *testing.F) {
	for _, text := range usual {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) { same(t, body) })
}

// BenchmarkReadReply reads a turn of 300 tokens after a prompt of 8,000, in one pass
// and with encoding/json.
func BenchmarkReadReply(b *testing.B) {
	ids := func(n int) string {
		var s []string
		for i := range n {
			s = append(s, fmt.Sprint(100000+i))
		}
		return strings.Join(s, ",")
	}
	body := []byte(`{"choices":[{"message":{"content":"` + strings.Repeat(`some \"text\"\n`, 80) + `"},"finish_reason":"stop","token_ids":[` + ids(300) + `],"token_logprobs":[` +
		strings.TrimSuffix(strings.Repeat("-0.12345678,", 300), ",") + `]}],"prompt_token_ids":[` + ids(8000) + `],"logprobs_mode":"processed"}`)
	b.Run("one pass", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			if _, ok := scanReply(body); !ok {
				b.Fatal("not read")
			}
		}
	})
	b.Run("encoding json", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			var r reply
			if err := json.Unmarshal(body, &r); err != nil {
				b.Fatal(err)
			}
		}
	})
}
