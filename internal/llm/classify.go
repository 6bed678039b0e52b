package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"searchloop/internal/retry"
	"searchloop/internal/secret"
)

// Classes of failures, as they stand in records. "http NNN" is the class of any
// other status.
const (
	Transport     = "transport"      // no connection, or it broke
	Timeout       = "timeout"        // nothing came in time
	HTML          = "html"           // a page instead of JSON: a proxy, or the wrong address
	NotJSON       = "not json"       // garbage or a JSON text that ends too early
	ErrorObject   = "error object"   // status 200 with an error inside
	NoChoices     = "no choices"     // a response without a turn
	Empty         = "empty reply"    // a turn of no text and no tokens
	Aborted       = "aborted"        // the server gave the turn up half way
	ContextLength = "context length" // the prompt does not fit the model
	Filtered      = "content filter" // the server refuses this content
	Unauthorised  = "unauthorised"   // 401, 403
	NotFound      = "not found"      // 404: no such model or no such address
)

// fault tells what a failed call or a status that is not 200 means. parent is the
// caller's context, without the time-out of the one call.
func (x *exchange) fault(parent context.Context) *retry.Fault {
	if x.err != nil {
		switch {
		case parent.Err() != nil:
			return &retry.Fault{Verdict: retry.Caller, Class: "cancelled", Err: context.Cause(parent)}
		case errors.Is(x.err, context.DeadlineExceeded):
			return &retry.Fault{Verdict: retry.Again, Class: Timeout, Err: errors.New("no complete response in time")}
		}
		return &retry.Fault{Verdict: retry.Again, Class: Transport, Down: true, Err: plain(x.err)}
	}
	message, code := errorObject(x.body)
	err := fmt.Errorf("status %d: %s", x.status, message)
	f := &retry.Fault{Class: "http " + strconv.Itoa(x.status), Err: err, After: retry.After(x.header)}
	switch {
	case x.status < 300:
		return nil
	case x.status == http.StatusUnauthorized || x.status == http.StatusForbidden:
		f.Verdict, f.Class = retry.Stop, Unauthorised
	case x.status == http.StatusNotFound && x.beside:
		f.Verdict, f.Class = retry.Never, NotFound
	case x.status == http.StatusNotFound:
		f.Verdict, f.Class = retry.Stop, NotFound
	case x.status == http.StatusTooManyRequests || x.status == 529:
		f.Verdict = retry.Busy
	case x.status == http.StatusRequestTimeout || x.status == http.StatusConflict || x.status == http.StatusTooEarly ||
		x.status == http.StatusFailedDependency || x.status >= 500: // 424: TEI's for a failed forward pass
		f.Verdict = retry.Again
		f.Down = x.status >= 502 && x.status <= 504
	default:
		f.Verdict = retry.Never
		if tooLong(message, code) {
			f.Class = ContextLength
		} else if strings.Contains(code, "content_filter") {
			f.Class = Filtered
		}
	}
	return f
}

// tooLong recognises the ways in which servers say that a prompt does not fit:
// OpenAI's code, and the sentences of vLLM, SGLang and llama.cpp.
func tooLong(message, code string) bool {
	m := strings.ToLower(message)
	return code == "context_length_exceeded" || strings.Contains(code, "exceed_context_size") ||
		strings.Contains(m, "context length") || strings.Contains(m, "context size") || strings.Contains(m, "context window")
}

// unknownField recognises a refusal of fields that the API does not know.
func unknownField(f *retry.Fault, names ...string) bool {
	return f != nil && f.Verdict == retry.Never && f.Err != nil &&
		slices.ContainsFunc(names, func(n string) bool { return strings.Contains(f.Err.Error(), n) })
}

// errorObject reads an OpenAI error body, or cuts what else stands there short.
func errorObject(body []byte) (message, code string) {
	var o struct {
		Error  json.RawMessage `json:"error"`
		Detail json.RawMessage `json:"detail"`
		// vLLM also answers with the error at the top.
		Message string `json:"message"`
		Code    any    `json:"code"`
	}
	if json.Unmarshal(body, &o) != nil {
		return secret.Line(string(body)), ""
	}
	var in struct {
		Message string `json:"message"`
		Code    any    `json:"code"`
		Type    string `json:"type"`
	}
	switch {
	case len(o.Error) > 0 && json.Unmarshal(o.Error, &in) == nil:
		if c, ok := in.Code.(string); ok {
			return secret.Line(in.Message), c
		}
		return secret.Line(in.Message), in.Type
	case len(o.Error) > 0:
		return secret.Line(string(o.Error)), ""
	case o.Message != "":
		c, _ := o.Code.(string)
		return secret.Line(o.Message), c
	}
	return secret.Line(string(body)), ""
}

// notReply tells why a response of status 200 is no chat turn.
func notReply(x *exchange) *retry.Fault {
	body := bytes.TrimSpace(x.body)
	again := func(class, format string, args ...any) *retry.Fault {
		return &retry.Fault{Verdict: retry.Again, Class: class, Err: fmt.Errorf(format, args...)}
	}
	switch {
	case len(body) > 0 && body[0] == '<' || strings.HasPrefix(x.header.Get("Content-Type"), "text/html"):
		return again(HTML, "%s", secret.Line(string(body)))
	case !json.Valid(body):
		return again(NotJSON, "%d bytes: %s", len(body), secret.Line(string(body)))
	}
	var o struct {
		Error   json.RawMessage `json:"error"`
		Choices []json.RawMessage
	}
	if json.Unmarshal(body, &o) != nil {
		return again(NotJSON, "not a chat completion: %s", secret.Line(string(body)))
	}
	if len(o.Error) > 0 && string(o.Error) != "null" {
		message, code := errorObject(body)
		if tooLong(message, code) {
			return &retry.Fault{Verdict: retry.Never, Class: ContextLength, Err: errors.New(message)}
		}
		return again(ErrorObject, "%s", message)
	}
	if len(o.Choices) == 0 {
		return again(NoChoices, "%s", secret.Line(string(body)))
	}
	return nil
}

// plain gives transport errors without addresses that change from run to run.
func plain(err error) error {
	var dial interface{ Timeout() bool }
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return errors.New("connection closed before the response was complete")
	case errors.As(err, &dial) && dial.Timeout():
		return errors.New("connection timed out")
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		err = e
	}
	return errors.New(secret.Line(err.Error()))
}
