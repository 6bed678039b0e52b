package llm

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// vllmReply is a response of vLLM 0.11 to 0.15 with return_token_ids: ids of the prompt beside
// the choices, ids of the turn in the choice, log-probs in OpenAI's form.
const vllmReply = `{"id":"chatcmpl-3f","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":CONTENT,
	"refusal":null,"annotations":null,"audio":null,"function_call":null,"tool_calls":[],REASON},"logprobs":LOGPROBS,"finish_reason":FINISH,"stop_reason":STOP,"token_ids":IDS}],
	"service_tier":null,"system_fingerprint":null,"usage":{"prompt_tokens":3,"total_tokens":5,"completion_tokens":2,"prompt_tokens_details":null},"prompt_logprobs":null,"prompt_token_ids":PROMPT,"kv_transfer_params":null}`

// vLLM's replies in their documented forms: with and without the end mark and the stop
// text, with thoughts taken out under both of their names, and with parts left out.
func TestVLLMReplies(t *testing.T) {
	two := `{"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[]},{"token":"","logprob":-9999.0,"bytes":[],"top_logprobs":[]}]}`
	for name, c := range map[string]struct {
		change []string // pairs
		want   string   // text, finish, stop text, mode, sampled ids, prompt ids
	}{
		"end mark among the ids": {nil, "a|stop||raw|[97 151645]|[1 2 3]"},
		"second end mark":        {[]string{"STOP", "151643"}, "a|stop||raw|[97 151645]|[1 2 3]"},
		"stop text kept":         {[]string{"STOP", `"</s>"`, "CONTENT", `"a</s>"`}, "a</s>|stop|</s>|raw|[97 151645]|[1 2 3]"},
		"stop text cut off":      {[]string{"STOP", `"</s>"`}, "a</s>|stop|</s>|raw|[97 151645]|[1 2 3]"},
		"a stop nobody asked":    {[]string{"STOP", `"x"`}, "a|stop||raw|[97 151645]|[1 2 3]"},
		"length":                 {[]string{"FINISH", `"length"`}, "a|length||raw|[97 151645]|[1 2 3]"},
		"nothing but the end":    {[]string{"CONTENT", `""`, "IDS", "[151645]", "LOGPROBS", `{"content":[{"token":"","logprob":-1,"bytes":[],"top_logprobs":[]}]}`}, "|stop||raw|[151645]|[1 2 3]"},
		"reasoning_content":      {[]string{"REASON", `"reasoning_content":"t"`}, "<think>t</think>\na|stop||raw|[97 151645]|[1 2 3]"},
		"reasoning":              {[]string{"REASON", `"reasoning":"t","reasoning_content":null`}, "<think>t</think>\na|stop||raw|[97 151645]|[1 2 3]"},
		"both":                   {[]string{"REASON", `"reasoning":"t","reasoning_content":"t"`}, "<think>t</think>\na|stop||raw|[97 151645]|[1 2 3]"},
		"reasoning, an object":   {[]string{"REASON", `"reasoning":{"effort":"low"}`}, "a|stop||raw|[97 151645]|[1 2 3]"},
		"no log-probs":           {[]string{"LOGPROBS", "null"}, "a|stop||none|[97 151645]|[1 2 3]"},
		"log-probs of others":    {[]string{"LOGPROBS", `{"content":[]}`}, "a|stop||none|[97 151645]|[1 2 3]"},
		"no ids":                 {[]string{"IDS", "null"}, "a|stop||none|[]|[1 2 3]"},
		"no prompt ids":          {[]string{"PROMPT", "null"}, "a|stop||none|[]|[]"},
	} {
		body := vllmReply
		for pair := range slices.Chunk(c.change, 2) {
			body = strings.Replace(body, pair[0], pair[1], 1)
		}
		body = strings.NewReplacer("CONTENT", `"a"`, "REASON", `"reasoning_content":null`, "LOGPROBS", two, "FINISH", `"stop"`, "STOP", "null", "IDS", "[97,151645]", "PROMPT", "[1,2,3]").Replace(body)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) }))
		client, err := New(Options{Name: "policy server", URL: s.URL, Model: "m"})
		if err != nil {
			t.Fatal(err)
		}
		r, err := client.Chat(t.Context(), Request{TokenIDs: true, Stop: []string{"</s>"}, Messages: []Message{{Role: "user", Text: "q"}}})
		s.Close()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := fmt.Sprintf("%s|%s|%s|%s|%v|%v", r.Text, r.Finish, r.Stop, r.LogprobMode, r.TokenIDs, r.PromptIDs); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
