package serve

import (
	"net/http"
	"strconv"
	"time"

	"searchloop/internal/token"
)

// answer is what the turns of one request have in common.
type answer struct {
	s       *Server
	q       *chatRequest
	seq     *sequence
	id      string
	created int64
}

// head appends the fields that begin a response or a chunk.
func (a *answer) head(b []byte, object string) []byte {
	b = append(b, `{"id":`...)
	b = quote(b, a.id)
	b = append(b, `,"object":"`...)
	b = append(b, object...)
	b = append(b, `","created":`...)
	b = strconv.AppendInt(b, a.created, 10)
	b = append(b, `,"model":`...)
	return quote(b, a.s.opt.Name)
}

// extras appends the extensions that stand beside the choices.
func (a *answer) extras(b []byte) []byte {
	b = append(b, `,"policy":`...)
	b = quote(b, a.s.policy)
	b = append(b, `,"logprobs_mode":"processed"`...)
	if !a.q.TokenIDs {
		return b
	}
	p := a.seq.prompt
	b = append(b, `,"prompt_token_ids":`...)
	b = integers(b, p.ids)
	b = append(b, `,"prompt_images":[`...)
	for i, im := range p.images {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"grid":`...)
		b = integers(b, im.grid[:])
		b = append(b, `,"offset":`...)
		b = strconv.AppendInt(b, int64(im.offset), 10)
		b = append(b, '}')
	}
	return append(b, ']')
}

// tokens appends the tokens [from, to) of a choice in the forms asked for.
func (a *answer) tokens(b []byte, from, to int) []byte {
	s := a.seq
	b = append(b, `,"logprobs":`...)
	if a.q.Logprobs {
		b = append(b, `{"content":[`...)
		for i := from; i < to; i++ {
			if s.end[s.ids[i]] {
				continue // the end mark is not part of the content
			}
			if i > from {
				b = append(b, ',')
			}
			b = logprob(b, a.s.tok, s.ids[i], s.logprobs[i])
			b = append(b, `,"top_logprobs":[`...)
			if s.tops > 0 {
				for k, t := range s.likely[i] {
					if k > 0 {
						b = append(b, ',')
					}
					b = append(logprob(b, a.s.tok, t.id, t.logprob), '}')
				}
			}
			b = append(b, "]}"...)
		}
		b = append(b, "]}"...)
	} else {
		b = append(b, "null"...)
	}
	if a.q.TokenIDs {
		b = append(b, `,"token_ids":`...)
		b = integers(b, s.ids[from:to])
		b = append(b, `,"token_logprobs":`...)
		b = floats(b, s.logprobs[from:to])
	}
	return b
}

// logprob appends an object, still open.
func logprob(b []byte, tok *token.BPE, id int32, p float32) []byte {
	var buf [64]byte
	raw := tok.AppendBytes(buf[:0], id)
	b = append(b, `{"token":`...)
	b = quote(b, token.Text(raw))
	b = append(b, `,"logprob":`...)
	b = float(b, p)
	b = append(b, `,"bytes":`...)
	return integers(b, raw)
}

func (a *answer) usage(b []byte) []byte {
	s := a.seq
	b = append(b, `,"usage":{"prompt_tokens":`...)
	b = strconv.AppendInt(b, int64(len(s.prompt.ids)), 10)
	b = append(b, `,"completion_tokens":`...)
	b = strconv.AppendInt(b, int64(len(s.ids)), 10)
	b = append(b, `,"total_tokens":`...)
	b = strconv.AppendInt(b, int64(s.total()), 10)
	b = append(b, `,"prompt_tokens_details":{"cached_tokens":`...)
	b = strconv.AppendInt(b, int64(s.reused), 10)
	return append(b, "}}"...)
}

// whole answers with the finished turn.
func (a *answer) whole(w http.ResponseWriter) {
	s := a.seq
	b := make([]byte, 0, 1024+len(s.text)+8*len(s.prompt.ids)+128*len(s.ids))
	b = a.head(b, "chat.completion")
	b = append(b, `,"choices":[{"index":0,"message":{"role":"assistant","content":`...)
	b = quote(b, token.Text(s.text))
	b = append(b, '}')
	b = a.tokens(b, 0, len(s.ids))
	b = append(b, `,"finish_reason":"`...)
	b = append(b, s.finish...)
	b = append(b, `","stop_reason":`...) // vLLM's: the stop string, null for an end mark or a limit
	if s.stop == nil {
		b = append(b, "null"...)
	} else {
		b = quote(b, string(s.stop))
	}
	b = append(b, `}]`...)
	b = a.usage(b)
	b = a.extras(b)
	a.s.reply(w, http.StatusOK, append(b, '}'))
}

// stream answers with server-sent events: a chunk whenever there is something new
// to tell, so that a slow reader gets fewer and longer ones. Concatenated, the
// chunks' contents, token ids and log-probs are those of the whole answer.
func (a *answer) stream(w http.ResponseWriter, r *http.Request) {
	s := a.seq
	rc := http.NewResponseController(w)
	started := false
	var sentText, sentTokens int
	var b []byte
	send := func(delta func([]byte) []byte) bool {
		if !started {
			h := w.Header()
			h.Set("Content-Type", "text/event-stream")
			h.Set("Cache-Control", "no-cache")
			h.Set("X-Accel-Buffering", "no")
			w.WriteHeader(http.StatusOK)
			started = true
		}
		b = append(delta(append(b[:0], "data: "...)), "\n\n"...)
		_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := w.Write(b); err != nil {
			return false
		}
		return rc.Flush() == nil
	}
	for {
		over := false
		select {
		case <-s.wake:
		case <-s.done:
			over = true
		case <-r.Context().Done():
			a.s.meter.request(499)
			return
		}
		s.mu.Lock()
		err, finish := s.err, s.finish
		upTo := max(s.settled(), sentText)
		text := token.Text(s.text[sentText:upTo])
		from, to := sentTokens, len(s.ids)
		var chunk []byte
		if err == nil && (text != "" || finish != "" && over || to > from && (a.q.TokenIDs || a.q.Logprobs)) {
			chunk = a.chunk(nil, text, from, to, finish, sentTokens == 0 && !started, over)
			sentText, sentTokens = upTo, to
		}
		s.mu.Unlock()
		if err != nil {
			if !started {
				a.s.refuse(w, err)
				return
			}
			api := a.s.asAPI(err)
			a.s.meter.request(api.status)
			send(api.appendJSON)
			return
		}
		if chunk != nil && !send(func(b []byte) []byte { return append(b, chunk...) }) {
			a.s.meter.request(499)
			return
		}
		if over {
			break
		}
	}
	if a.q.StreamOpt != nil && a.q.StreamOpt.Usage {
		send(func(b []byte) []byte {
			b = append(a.head(b, "chat.completion.chunk"), `,"choices":[]`...)
			return append(a.usage(b), '}')
		})
	}
	send(func(b []byte) []byte { return append(b, "[DONE]"...) })
	a.s.meter.request(http.StatusOK)
}

// chunk appends one event's object. With the sequence's mu held.
func (a *answer) chunk(b []byte, text string, from, to int, finish string, first, last bool) []byte {
	b = a.head(b, "chat.completion.chunk")
	b = append(b, `,"choices":[{"index":0,"delta":{`...)
	if first {
		b = append(b, `"role":"assistant",`...)
	}
	b = append(b, `"content":`...)
	b = append(quote(b, text), '}')
	b = a.tokens(b, from, to)
	b = append(b, `,"finish_reason":`...)
	if last {
		b = quote(b, finish)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, "}]"...)
	if first {
		b = a.extras(b)
	}
	return append(b, '}')
}
