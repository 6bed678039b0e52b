package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"searchloop/internal/fail"
)

// apiError is an error as OpenAI's API spells it.
type apiError struct {
	status  int
	kind    string // error.type
	code    string
	param   string
	message string
	after   int // Retry-After in seconds
}

func (e *apiError) Error() string { return e.message }

func badRequest(param, code, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: "invalid_request_error", code: code, param: param, message: fmt.Sprintf(format, args...)}
}

// asAPI gives any error its place in the API.
func (s *Server) asAPI(err error) *apiError {
	var api *apiError
	switch {
	case errors.As(err, &api):
		return api
	case errors.Is(err, errBusy):
		return &apiError{status: http.StatusTooManyRequests, kind: "overloaded_error", code: "queue_full", after: s.retryAfter(),
			message: fmt.Sprintf("%d requests are waiting already; try again later", s.engine.waiting)}
	case errors.Is(err, errClosing):
		return &apiError{status: http.StatusServiceUnavailable, kind: "server_error", code: "shutting_down", after: 5, message: "the server is shutting down"}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &apiError{status: 499, kind: "server_error", code: "client_closed", message: "the client went away"}
	case fail.KindOf(err) == fail.BadInput:
		return badRequest("messages", "invalid_messages", "%s", reason(err))
	}
	return &apiError{status: http.StatusInternalServerError, kind: "server_error", code: "internal_error", message: err.Error()}
}

// reason is a *fail.Error for a client: without our op.
func reason(err error) string {
	var e *fail.Error
	if !errors.As(err, &e) || e.Err == nil {
		return err.Error()
	}
	if e.Row > 0 {
		return fmt.Sprintf("message %d: %v", e.Row, e.Err)
	}
	return e.Err.Error()
}

// appendJSON appends {"error": …}.
func (e *apiError) appendJSON(b []byte) []byte {
	opt := func(b []byte, s string) []byte {
		if s == "" {
			return append(b, "null"...)
		}
		return quote(b, s)
	}
	b = append(b, `{"error":{"message":`...)
	b = quote(b, e.message)
	b = append(b, `,"type":`...)
	b = quote(b, e.kind)
	b = append(b, `,"param":`...)
	b = opt(b, e.param)
	b = append(b, `,"code":`...)
	b = opt(b, e.code)
	return append(b, "}}"...)
}

func (s *Server) refuse(w http.ResponseWriter, err error) {
	e := s.asAPI(err)
	if e.after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(e.after))
	}
	if e.status == http.StatusRequestEntityTooLarge {
		w.Header().Set("Connection", "close")
	}
	s.reply(w, e.status, e.appendJSON(nil))
}

func (s *Server) reply(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
	s.meter.request(status)
}
