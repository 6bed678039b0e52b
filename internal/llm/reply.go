package llm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"searchloop/internal/retry"
	"searchloop/internal/secret"
)

// reply is the response as we read it: OpenAI's shape and the extension.
type reply struct {
	Choices   []choice        `json:"choices"`
	Error     json.RawMessage `json:"error"`
	PromptIDs []int32         `json:"prompt_token_ids"`
	Images    []PromptImage   `json:"prompt_images"`
	Policy    string          `json:"policy"`
	Mode      string          `json:"logprobs_mode"`
	Usage     struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	} `json:"usage"`
}

type choice struct {
	Message struct {
		Content   json.RawMessage `json:"content"`
		Reasoning string          `json:"reasoning_content"`
		Thought   json.RawMessage `json:"reasoning"` // its name since vLLM 0.12; elsewhere it may be an object
		ToolCalls []struct {
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`

		said string // Content, when scanReply has read it
	} `json:"message"`
	Finish   string    `json:"finish_reason"`
	TokenIDs []int32   `json:"token_ids"`
	Logprobs []float32 `json:"token_logprobs"`
	Stop     any       `json:"stop_reason"`  // vLLM: the stop text, or the id of an end mark
	Matched  any       `json:"matched_stop"` // SGLang: likewise
	Content  *struct {
		Content []tokenLogprob `json:"content"`
	} `json:"logprobs"`
}

type tokenLogprob struct {
	Logprob float32 `json:"logprob"`
}

// readReply turns a response of status 200 into a Reply, or says why it is none.
func readReply(x *exchange) (*Reply, *retry.Fault) {
	bad := func(class, format string, args ...any) (*Reply, *retry.Fault) {
		return nil, &retry.Fault{Verdict: retry.Again, Class: class, Err: fmt.Errorf(format, args...)}
	}
	in, ok := scanReply(x.body)
	var err error
	if !ok {
		in = reply{}
		err = json.Unmarshal(x.body, &in)
	}
	if err != nil || len(in.Choices) == 0 || len(in.Error) > 0 && string(in.Error) != "null" {
		if f := notReply(x); f != nil {
			return nil, f
		}
		return bad(NotJSON, "not a chat completion: %s", secret.Line(string(x.body)))
	}
	c := in.Choices[0]
	out := &Reply{Finish: c.Finish, TokenIDs: c.TokenIDs, Logprobs: c.Logprobs, PromptIDs: in.PromptIDs,
		Images: in.Images, Policy: in.Policy, LogprobMode: in.Mode,
		PromptTokens: in.Usage.Prompt, ReplyTokens: in.Usage.Completion}
	if c.Finish == "content_filter" {
		return nil, &retry.Fault{Verdict: retry.Never, Class: Filtered, Err: fmt.Errorf("the server stopped the turn")}
	}
	if c.Finish == "abort" || c.Finish == "error" {
		return bad(Aborted, "finish_reason %q", c.Finish)
	}
	if out.Text = c.Message.said; out.Text == "" {
		out.Text = text(c.Message.Content)
	}
	if thought := cmp.Or(c.Message.Reasoning, text(c.Message.Thought)); thought != "" {
		// The server's reasoning parser took the thought out of the text: put it back.
		out.Text = "<think>" + thought + "</think>\n" + strings.TrimLeft(out.Text, "\n")
	}
	for _, t := range c.Message.ToolCalls {
		// Likewise its tool-call parser.
		name, _ := json.Marshal(t.Function.Name)
		out.Text += fmt.Sprintf("\n<tool_call>\n{\"name\": %s, \"arguments\": %s}\n</tool_call>", name, t.Function.Arguments)
		out.Text = strings.TrimPrefix(out.Text, "\n")
	}
	if out.Finish != "length" {
		out.Finish = "stop"
		out.Stop = stopText(x.request.Stop, c.Stop, c.Matched)
		if out.Stop != "" && !strings.HasSuffix(out.Text, out.Stop) {
			out.Text += out.Stop // a server that cuts it off, whatever it was asked
		}
	}
	if len(out.PromptIDs) == 0 {
		// Sampled ids are of no use without the prompt they continue.
		out.TokenIDs, out.Logprobs, out.Images = nil, nil, nil
	}
	if len(out.TokenIDs) > 0 {
		out.ReplyTokens, out.PromptTokens = len(out.TokenIDs), len(out.PromptIDs)
		if out.Logprobs == nil && c.Content != nil && len(c.Content.Content) == len(out.TokenIDs) {
			// vLLM's form. Its log-probs are those of the raw logits unless it says otherwise.
			for _, t := range c.Content.Content {
				out.Logprobs = append(out.Logprobs, t.Logprob)
			}
			if out.LogprobMode == "" {
				out.LogprobMode = "raw"
			}
		}
	}
	if out.Logprobs != nil && len(out.Logprobs) != len(out.TokenIDs) {
		return bad(NotJSON, "%d log-probs for %d tokens", len(out.Logprobs), len(out.TokenIDs))
	}
	for _, p := range out.Logprobs {
		if math.IsNaN(float64(p)) || math.IsInf(float64(p), 0) || p > 1e-3 {
			return bad(NotJSON, "a log-prob of %g", p)
		}
	}
	if out.Logprobs == nil {
		out.LogprobMode = "none"
	} else if out.LogprobMode == "" {
		return bad(NotJSON, "log-probs without logprobs_mode")
	}
	if out.Text == "" && len(out.TokenIDs) == 0 && out.Finish != "length" {
		return bad(Empty, "finish_reason %q", c.Finish)
	}
	return out, nil
}

// stopText is the one of the stop texts that the server says it met.
func stopText(stops []string, said ...any) string {
	for _, v := range said {
		if s, ok := v.(string); ok && slices.Contains(stops, s) {
			return s
		}
	}
	return ""
}

// text reads a message's content: a string, null, or a list of typed parts.
func text(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct {
		Type, Text string
	}
	if json.Unmarshal(raw, &parts) != nil {
		return ""
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Type == "text" {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}
