package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/retry"
)

// Cut shortens text to at most limit of the model's tokens, by the server's
// /tokenize and /detokenize (vLLM, SGLang, jobs/serve). A text of so few bytes
// that it must fit is not sent. Errors are as of Chat; a server without these
// addresses gives a usage error.
func (c *Client) Cut(ctx context.Context, text string, limit int) (string, error) {
	if limit <= 0 || len(text) <= limit {
		return text, nil
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
	data, err := json.Marshal(body)
	if err != nil {
		return fail.Wrap(fail.Bug, "count tokens", "", err)
	}
	url := strings.TrimSuffix(c.base, "/v1") + path
	missing := false
	f := c.line.Do(ctx, func(ctx context.Context) *retry.Fault {
		timed, cancel := context.WithTimeout(ctx, c.opt.Timeout)
		defer cancel()
		x := &exchange{}
		req, err := http.NewRequestWithContext(timed, http.MethodPost, url, bytes.NewReader(data))
		if err != nil {
			return &retry.Fault{Verdict: retry.Never, Class: "request", Err: err}
		}
		req.Header.Set("Content-Type", "application/json")
		if !c.opt.Key.IsZero() {
			req.Header.Set("Authorization", "Bearer "+c.opt.Key.Reveal())
		}
		resp, err := c.http.Do(req)
		if err != nil {
			x.err = err
			return x.fault(ctx)
		}
		defer resp.Body.Close()
		x.status, x.header = resp.StatusCode, resp.Header
		if x.body, x.err = io.ReadAll(io.LimitReader(resp.Body, maxBody)); x.err != nil {
			return x.fault(ctx)
		}
		if missing = x.status == http.StatusNotFound || x.status == http.StatusMethodNotAllowed; missing {
			return &retry.Fault{Verdict: retry.Never, Class: NotFound, Err: fmt.Errorf("no %s", path)}
		}
		if f := x.fault(ctx); f != nil {
			return f
		}
		if err := json.Unmarshal(x.body, into); err != nil {
			return &retry.Fault{Verdict: retry.Again, Class: NotJSON, Err: errors.New(short(string(x.body)))}
		}
		return nil
	})
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
