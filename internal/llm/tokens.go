package llm

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/retry"
	"searchloop/internal/secret"
)

// Cut shortens text to at most limit of the model's tokens, by the server's
// /tokenize and /detokenize (vLLM, SGLang, jobs/serve). A text of so few bytes
// that it must fit is not sent. Errors are as of Chat; a server without these
// addresses gives a usage error.
func (c *Client) Cut(ctx context.Context, text string, limit int) (string, error) {
	if limit <= 0 || len(text) <= limit {
		return text, nil
	}
	request := map[string]any{"to": c.opt.Name, "model": c.opt.Model, "text": text, "limit": limit}
	return taped(c, "count tokens", cutKind, request, func() (string, error) { return c.cut(ctx, text, limit) })
}

func (c *Client) cut(ctx context.Context, text string, limit int) (string, error) {
	if c.tokens != nil {
		return c.tokens.cut(text, limit), nil
	}
	var in struct {
		Tokens []int32 `json:"tokens"`
	}
	if err := c.post(ctx, "/tokenize", map[string]any{"model": c.opt.Model, "prompt": text, "add_special_tokens": false}, &in); err != nil {
		return "", err
	}
	if len(in.Tokens) <= limit {
		return text, nil
	}
	var out struct {
		Prompt *string `json:"prompt"` // vLLM
		Text   *string `json:"text"`   // SGLang
	}
	if err := c.post(ctx, "/detokenize", map[string]any{"model": c.opt.Model, "tokens": in.Tokens[:limit]}, &out); err != nil {
		return "", err
	}
	head := out.Prompt
	if head == nil {
		head = out.Text
	}
	// What comes back must be a beginning of the text, but for a broken last character.
	if head == nil || !strings.HasPrefix(text, strings.TrimRight(*head, "\uFFFD")) {
		return "", &fail.Error{Kind: fail.Service, Op: "cut text", Path: c.shown,
			Err: &retry.Fault{Verdict: retry.Never, Class: "detokenize", Err: errors.New("the text of the first tokens is no beginning of the text")}}
	}
	return strings.TrimRight(*head, "\uFFFD"), nil
}

// post calls an address beside /v1.
func (c *Client) post(ctx context.Context, path string, body, into any) error {
	data, err := encode(body)
	if err != nil {
		return fail.Wrap(fail.Bug, "count tokens", "", err)
	}
	x := &exchange{beside: true}
	f := c.ask(ctx, x, http.MethodPost, strings.TrimSuffix(c.base, "/v1")+path, data, func(x *exchange) *retry.Fault {
		if err := json.Unmarshal(x.body, into); err != nil {
			return &retry.Fault{Verdict: retry.Again, Class: NotJSON, Err: errors.New(secret.Line(string(x.body)))}
		}
		return nil
	})
	missing := x.status == http.StatusNotFound || x.status == http.StatusMethodNotAllowed
	switch {
	case f == nil:
		return nil
	case missing:
		return fail.WithHint(fail.New(fail.Usage, "count tokens", c.shown, "the %s has no %s", c.opt.Name, path),
			"set protocol.observation_tokens=0 and bound observations by protocol.tool_chars")
	case f.Verdict == retry.Caller:
		return &fail.Error{Kind: fail.Interrupted, Op: "count tokens", Path: c.shown, Err: f}
	}
	return &fail.Error{Kind: fail.Service, Op: "count tokens", Path: c.shown, Err: f}
}
