package serve

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"searchloop/internal/token"
)

// tokenize answers POST /tokenize as vLLM does: {"prompt": text} gives the text's
// tokens as it is read inside a message, where marks are ordinary characters.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Prompt *string `json:"prompt"`
	}
	if err := s.small(w, r, &in); err != nil {
		s.refuse(w, err)
		return
	}
	if in.Prompt == nil {
		s.refuse(w, badRequest("prompt", "missing", "prompt is missing; messages are counted by asking for a turn"))
		return
	}
	ids := s.tok.EncodeOrdinary(*in.Prompt)
	b := append([]byte(nil), `{"count":`...)
	b = strconv.AppendInt(b, int64(len(ids)), 10)
	b = append(b, `,"max_model_len":`...)
	b = strconv.AppendInt(b, int64(s.engine.context), 10)
	b = append(b, `,"tokens":`...)
	s.reply(w, http.StatusOK, append(integers(b, ids), '}'))
}

// detokenize answers POST /detokenize: {"tokens": ids} gives their text. A
// character that the ids end in the middle of is left out.
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Tokens []int32 `json:"tokens"`
	}
	if err := s.small(w, r, &in); err != nil {
		s.refuse(w, err)
		return
	}
	var text []byte
	for i, id := range in.Tokens {
		if id < 0 || int(id) >= s.tok.Size() {
			s.refuse(w, badRequest("tokens", "out_of_range", "token %d is %d, outside of the vocabulary of %d", i, id, s.tok.Size()))
			return
		}
		text = s.tok.AppendBytes(text, id)
	}
	text = text[:len(text)-token.Partial(text)]
	b := append([]byte(nil), `{"prompt":`...)
	s.reply(w, http.StatusOK, append(quote(b, token.Text(text)), '}'))
}

// small reads a request without pictures.
func (s *Server) small(w http.ResponseWriter, r *http.Request, v any) error {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, min(s.opt.MaxBody, 16<<20)))
	var long *http.MaxBytesError
	if errors.As(err, &long) {
		return &apiError{status: http.StatusRequestEntityTooLarge, kind: "invalid_request_error", code: "request_too_large", message: "the request is too large"}
	}
	if err != nil {
		return badRequest("", "unreadable", "the request ended too early: %v", err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return jsonError(err)
	}
	return nil
}
