package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// maxBody bounds a response: beyond it a server is not sending a chat turn.
const maxBody = 64 << 20

// exchange is what one HTTP call carries beside what the OpenAI client knows. It
// travels in the request's context, because the client builds the request.
type exchange struct {
	request Request
	extras  bool // send the token-id extension
	keep    bool // ask for the stop text to be kept
	schema  bool // send the schema

	status int
	header http.Header
	body   []byte // of the response, whole or as far as it came
	err    error  // transport or reading failed
}

type exchangeKey struct{}

// wire is the client's HTTPDoer: it adds our fields to the request and keeps the
// response's bytes, from which ours are read and failures are told apart.
type wire struct{ http *http.Client }

func (w wire) Do(req *http.Request) (*http.Response, error) {
	x, _ := req.Context().Value(exchangeKey{}).(*exchange)
	if x == nil {
		return nil, errors.New("llm: request without an exchange")
	}
	if req.Body != nil {
		if err := x.extend(req); err != nil {
			return nil, err
		}
	}
	resp, err := w.http.Do(req)
	if err != nil {
		x.err = err
		return nil, err
	}
	defer resp.Body.Close()
	x.status, x.header = resp.StatusCode, resp.Header
	x.body, x.err = io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if x.err == nil && len(x.body) > maxBody {
		x.err = fmt.Errorf("response longer than %d bytes", maxBody)
	}
	if x.err != nil {
		return nil, x.err
	}
	resp.Body = io.NopCloser(bytes.NewReader(x.body))
	return resp, nil
}

// extend rewrites the body that the OpenAI client made: sampling numbers that it
// leaves out when zero, empty contents that it leaves out, and the extension.
func (x *exchange) extend(req *http.Request) error {
	var body map[string]json.RawMessage
	raw, err := io.ReadAll(req.Body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		return err
	}
	r := x.request
	body["temperature"] = json.RawMessage(strconv.FormatFloat(float64(r.Temperature), 'g', -1, 32))
	if r.TopP > 0 && r.TopP < 1 {
		body["top_p"] = json.RawMessage(strconv.FormatFloat(float64(r.TopP), 'g', -1, 32))
	} else {
		body["top_p"] = json.RawMessage("1")
	}
	if r.MaxTokens > 0 {
		// The older name: every server reads it, the newer one only some do.
		body["max_tokens"] = json.RawMessage(strconv.Itoa(r.MaxTokens))
	}
	if r.TopK > 0 {
		body["top_k"] = json.RawMessage(strconv.Itoa(r.TopK))
	}
	if x.extras {
		body["return_token_ids"] = json.RawMessage("true")
	}
	if x.keep && len(r.Stop) > 0 {
		body["include_stop_str_in_output"] = json.RawMessage("true") // vLLM's name and ours
		body["no_stop_trim"] = json.RawMessage("true")               // SGLang's
	}
	if r.goesOn() {
		body["continue_final_message"], body["add_generation_prompt"] = json.RawMessage("true"), json.RawMessage("false")
	}
	if x.schema && len(r.Schema) > 0 {
		body["response_format"] = append(append(json.RawMessage(`{"type":"json_schema","json_schema":{"name":"reply","strict":true,"schema":`), r.Schema...), "}}"...)
	}
	joined := r.joined()
	var messages []map[string]json.RawMessage
	if err := json.Unmarshal(body["messages"], &messages); err != nil {
		return err
	}
	for i, m := range messages {
		if _, ok := m["content"]; !ok {
			m["content"] = json.RawMessage(`""`)
		}
		if x.extras && joined[i].segments != nil {
			if m["segments"], err = json.Marshal(joined[i].segments); err != nil {
				return err
			}
		}
		if ids := joined[i].TokenIDs; x.extras && len(ids) > 0 {
			if m["token_ids"], err = json.Marshal(ids); err != nil {
				return err
			}
		}
	}
	if body["messages"], err = json.Marshal(messages); err != nil {
		return err
	}
	if raw, err = json.Marshal(body); err != nil {
		return err
	}
	req.Body = io.NopCloser(bytes.NewReader(raw))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil }
	req.ContentLength = int64(len(raw))
	return nil
}

func withExchange(ctx context.Context, x *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}
