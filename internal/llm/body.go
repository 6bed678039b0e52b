package llm

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"searchloop/internal/jsonscan"
)

// written is a conversation's request as it was sent last. The next one begins with
// the same messages, so that only the new ones are written: pictures and observations
// are put into JSON once, not once a turn. It belongs to one conversation.
type written struct {
	model  string
	extras bool
	text   []byte    // the request up to the end of the last message, and what was behind that
	have   []placed  // the messages in it
	list   []message // memory of Request.joined
	busy   atomic.Int32
}

// placed is a message of a request and where it ends.
type placed struct {
	msg Message
	end int
}

// same says whether two messages are the same one: equal texts, and the very pictures
// and ids.
func (m *Message) same(o *Message) bool {
	if m.Role != o.Role || len(m.Images) != len(o.Images) || !shared(m.TokenIDs, o.TokenIDs) || m.Text != o.Text {
		return false
	}
	for i, p := range m.Images {
		if !shared(p, o.Images[i]) {
			return false
		}
	}
	return true
}

func shared[T any](a, b []T) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// begin gives the request up to its messages, with as many of list in it as were
// written before, and how many those are.
func (w *written) begin(model string, extras bool, list []message) (text []byte, n int) {
	if w.busy.Load() > 0 {
		w.text, w.have = nil, nil // a call that has ended is still being sent
	}
	if len(w.text) == 0 || w.model != model || w.extras != extras {
		w.model, w.extras, w.have = model, extras, w.have[:0]
	}
	for n < min(len(list), len(w.have)) && list[n].segments == nil && w.have[n].msg.same(&list[n].Message) {
		n++
	}
	w.have = slices.Delete(w.have, n, len(w.have))
	if n > 0 {
		return w.text[:w.have[n-1].end], n
	}
	if w.text == nil {
		size := 1 << 10 // what stands before, between and behind the texts
		for _, m := range list {
			size += len(m.Text)
		}
		w.text = make([]byte, 0, size)
	}
	text = jsonscan.AppendText(append(w.text[:0], `{"model":`...), model)
	return append(text, `,"messages":[`...), 0
}

// text writes the request for the model.
func (x *exchange) text(model string) ([]byte, error) {
	r := &x.request
	w := r.kept
	if w == nil {
		w = new(written)
	}
	list := r.joined()
	text, n := w.begin(model, x.extras, list)
	w.have = slices.Grow(w.have, max(8, len(list))-n)
	for i := n; i < len(list); i++ {
		if i > 0 {
			text = append(text, ',')
		}
		text = list[i].append(text, x.extras)
		if len(w.have) == i && list[i].segments == nil { // one that goes on is written anew
			w.have = append(w.have, placed{list[i].Message, len(text)})
		}
	}
	if len(list) == 0 {
		text = append(text[:len(text)-1], "null"...)
	} else {
		text = append(text, ']')
	}
	rest := x.rest()
	text, err := rest.append(append(text, ','))
	if err != nil {
		return nil, err
	}
	w.text = text
	return text, nil
}

// append writes the fields and the end of the object that they stand in.
func (r *wireRest) append(b []byte) (_ []byte, err error) {
	if len(r.Tools) > 0 {
		if b, err = appendValue(append(b, `"tools":`...), r.Tools); err != nil {
			return nil, err
		}
		b = append(b, ',')
	}
	if b, err = appendFloat(append(b, `"temperature":`...), r.Temperature); err != nil {
		return nil, err
	}
	if b, err = appendFloat(append(b, `,"top_p":`...), r.TopP); err != nil {
		return nil, err
	}
	if r.TopK != 0 {
		b = strconv.AppendInt(append(b, `,"top_k":`...), int64(r.TopK), 10)
	}
	if r.MaxTokens != 0 {
		b = strconv.AppendInt(append(b, `,"max_tokens":`...), int64(r.MaxTokens), 10)
	}
	b = strconv.AppendInt(append(b, `,"seed":`...), r.Seed, 10)
	for i, s := range r.Stop {
		if i == 0 {
			b = append(b, `,"stop":[`...)
		} else {
			b = append(b, ',')
		}
		if b = jsonscan.AppendText(b, s); i == len(r.Stop)-1 {
			b = append(b, ']')
		}
	}
	for _, f := range []struct {
		name string
		set  bool
	}{{"logprobs", r.Logprobs}, {"return_token_ids", r.TokenIDs}, {"include_stop_str_in_output", r.IncludeStop}, {"no_stop_trim", r.NoStopTrim}, {"continue_final_message", r.Continue}} {
		if f.set {
			b = append(append(append(b, `,"`...), f.name...), `":true`...)
		}
	}
	if r.Begin != nil {
		b = strconv.AppendBool(append(b, `,"add_generation_prompt":`...), *r.Begin)
	}
	if r.Format != nil {
		if b, err = appendValue(append(b, `,"response_format":`...), r.Format); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func appendValue(b []byte, v any) ([]byte, error) {
	text, err := encode(v)
	return append(b, bytes.TrimSuffix(text, []byte("\n"))...), err
}

func appendFloat(b []byte, f float32) ([]byte, error) {
	if a := max(f, -f); a == 0 || a >= 1e-6 && a < 1e21 { // else it is written with an exponent
		return strconv.AppendFloat(b, float64(f), 'f', -1, 32), nil
	}
	return appendValue(b, f)
}

// append writes a message.
func (m *message) append(b []byte, extras bool) []byte {
	b = jsonscan.AppendText(append(b, `{"role":`...), m.Role)
	b = append(b, `,"content":`...)
	if len(m.Images) == 0 {
		b = jsonscan.AppendText(b, m.Text)
	} else {
		b = m.appendParts(b)
	}
	if extras && len(m.TokenIDs) > 0 {
		b = appendIDs(append(b, `,"token_ids":`...), m.TokenIDs)
	}
	if extras && len(m.segments) > 0 {
		b = append(b, `,"segments":[`...)
		for i, g := range m.segments {
			if i > 0 {
				b = append(b, ',')
			}
			switch {
			case len(g.TokenIDs) > 0:
				b = appendIDs(append(b, `{"token_ids":`...), g.TokenIDs)
			case g.Text != "":
				b = jsonscan.AppendText(append(b, `{"text":`...), g.Text)
			default:
				b = append(b, '{')
			}
			b = append(b, '}')
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// appendParts writes the content of a message with pictures: these first.
func (m *message) appendParts(b []byte) []byte {
	size := len(m.Text)
	for _, p := range m.Images {
		size += base64.StdEncoding.EncodedLen(len(p)) + 100
	}
	b = append(slices.Grow(b, size), '[')
	for i, p := range m.Images {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"type":"image_url","image_url":{"url":"data:`...)
		b = append(append(b, http.DetectContentType(p)...), ";base64,"...)
		b = append(base64.StdEncoding.AppendEncode(b, p), `"}}`...)
	}
	if m.Text != "" {
		b = jsonscan.AppendText(append(b, `,{"type":"text","text":`...), m.Text)
		b = append(b, '}')
	}
	return append(b, ']')
}

func appendIDs(b []byte, ids []int32) []byte {
	b = append(b, '[')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	return append(b, ']')
}

// sending is the body of a request that says when nobody reads it any more: net/http
// may go on for a while after a call has ended.
type sending struct {
	bytes.Reader
	w    *written
	once sync.Once
}

// send begins to read a body; w is what it lies in, or nil.
func (w *written) send(body []byte) io.ReadCloser {
	s := &sending{w: w}
	s.Reset(body)
	if w != nil {
		w.busy.Add(1)
	}
	return s
}

func (s *sending) Close() error {
	s.once.Do(func() {
		if s.w != nil {
			s.w.busy.Add(-1)
		}
	})
	return nil
}

// rest is a request without model and messages.
func (x *exchange) rest() wireRest {
	r := x.request
	out := wireRest{Tools: r.wireTools(), Temperature: r.Temperature, TopP: 1, TopK: max(r.TopK, 0), MaxTokens: r.MaxTokens, Seed: r.Seed, Stop: r.Stop,
		Logprobs: r.TokenIDs, TokenIDs: x.extras, Continue: r.goesOn()}
	if r.TopP > 0 && r.TopP < 1 {
		out.TopP = r.TopP
	}
	if out.Continue {
		out.Begin = new(bool)
	}
	out.IncludeStop = x.keep && len(r.Stop) > 0
	out.NoStopTrim = out.IncludeStop
	if x.schema && len(r.Schema) > 0 {
		out.Format = &wireFormat{Type: "json_schema"}
		out.Format.Schema.Name, out.Format.Schema.Strict, out.Format.Schema.Schema = "reply", true, r.Schema
	}
	return out
}

// wireRest is written behind the messages: OpenAI's shape, our extension, and the names
// of vLLM and SGLang for the same things. Sampling numbers that are zero are sent too:
// a temperature that is left out means 1 to most servers.
type wireRest struct {
	Tools       []wireTool  `json:"tools,omitempty"`
	Temperature float32     `json:"temperature"`
	TopP        float32     `json:"top_p"`
	TopK        int         `json:"top_k,omitempty"`
	MaxTokens   int         `json:"max_tokens,omitempty"` // the older name: every server reads it, the newer one only some do
	Seed        int64       `json:"seed"`
	Stop        []string    `json:"stop,omitempty"`
	Logprobs    bool        `json:"logprobs,omitempty"`
	TokenIDs    bool        `json:"return_token_ids,omitempty"`
	IncludeStop bool        `json:"include_stop_str_in_output,omitempty"` // vLLM's name and ours
	NoStopTrim  bool        `json:"no_stop_trim,omitempty"`               // SGLang's
	Continue    bool        `json:"continue_final_message,omitempty"`
	Begin       *bool       `json:"add_generation_prompt,omitempty"`
	Format      *wireFormat `json:"response_format,omitempty"`
}

type wireTool struct {
	Type     string       `json:"type"`
	Function wireFunction `json:"function"`
}

type wireFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

type wireFormat struct {
	Type   string `json:"type"`
	Schema struct {
		Name   string          `json:"name"`
		Strict bool            `json:"strict"`
		Schema json.RawMessage `json:"schema"`
	} `json:"json_schema"`
}

func (r Request) wireTools() (list []wireTool) {
	for _, t := range r.Tools {
		list = append(list, wireTool{"function", wireFunction(t)})
	}
	return list
}

// encode writes JSON with its tags as they are, which are many.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}
