package scripted

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"searchloop/internal/fail"
)

// Fault is one way of failing, for some of the chat requests.
type Fault struct {
	Kind string        // see faultKinds, or an HTTP status: "500"
	From int           // first request to fail, counted from 1
	Num  int           // requests to fail; 0: all from From on
	For  time.Duration // how long "slow" waits; 0: 1 s
}

var faultKinds = map[string]string{
	"hang":        "sends nothing until the client gives up",
	"slow":        "answers after a while",
	"garbage":     "sends bytes that are no JSON",
	"truncated":   "sends half of the answer and ends",
	"cut":         "closes the connection in the middle of the answer",
	"html":        "sends a web page with status 200",
	"empty":       "sends a turn of no text",
	"errorobject": "sends an error with status 200",
	"context":     "says that the prompt is too long",
}

// ParseFault reads kind[:requests][@first], as in "500:20", "401@10" or "slow=3s:2@5".
// Kinds are hang, slow, garbage, truncated, cut, html, empty, errorobject,
// context, and HTTP statuses such as 500 or 429.
func ParseFault(s string) (Fault, error) {
	f := Fault{From: 1}
	bad := func() (Fault, error) {
		return Fault{}, fail.WithHint(fail.New(fail.Usage, "--fault", s, "no such fault"),
			"write kind[:requests][@first], for example 500:20, hang:1@5, slow=3s; kinds: hang, slow, garbage, truncated, cut, html, empty, errorobject, context or a status")
	}
	var err error
	kind, from, ok := strings.Cut(s, "@")
	if ok {
		if f.From, err = strconv.Atoi(from); err != nil || f.From < 1 {
			return bad()
		}
	}
	kind, num, ok := strings.Cut(kind, ":")
	if ok {
		if f.Num, err = strconv.Atoi(num); err != nil || f.Num < 0 {
			return bad()
		}
	}
	kind, d, ok := strings.Cut(kind, "=")
	if ok {
		if f.For, err = time.ParseDuration(d); err != nil {
			return bad()
		}
	}
	f.Kind = kind
	if status, err := strconv.Atoi(kind); err == nil {
		if status < 400 || status > 599 {
			return bad()
		}
	} else if faultKinds[kind] == "" {
		return bad()
	}
	return f, nil
}

// faults counts the chat requests and picks the fault of each.
type faults struct {
	mu   sync.Mutex
	n    int
	list []Fault
}

func (f *faults) next() (Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	for _, x := range f.list {
		if f.n >= x.From && (x.Num == 0 || f.n < x.From+x.Num) {
			return x, true
		}
	}
	return Fault{}, false
}

// serve fails. done says that the response is complete; otherwise the answer
// follows as usual. full is a good answer, for the faults that spoil one.
func (f Fault) serve(w http.ResponseWriter, r *http.Request, full []byte) (done bool) {
	switch f.Kind {
	case "hang":
		<-r.Context().Done()
		return true
	case "slow":
		wait := f.For
		if wait == 0 {
			wait = time.Second
		}
		select {
		case <-time.After(wait):
			return false
		case <-r.Context().Done():
			return true
		}
	case "garbage":
		io.WriteString(w, "\x00\x01{\"choices\": [}]")
	case "truncated":
		w.Write(full[:len(full)/2])
	case "cut":
		w.Header().Set("Content-Length", strconv.Itoa(len(full)))
		w.Write(full[:len(full)/2])
		if fl, ok := w.(http.Flusher); ok {
			fl.Flush()
		}
		panic(http.ErrAbortHandler)
	case "html":
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<html><body>The service is being updated.</body></html>")
	case "empty":
		io.WriteString(w, `{"choices":[{"message":{"role":"assistant","content":""},"finish_reason":"stop"}]}`)
	case "errorobject":
		io.WriteString(w, `{"error":{"message":"the engine restarts","type":"internal_error"}}`)
	case "context":
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, `{"error":{"message":"the prompt is too long","code":"context_length_exceeded"}}`)
	default:
		status, _ := strconv.Atoi(f.Kind)
		if status == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":{"message":"fault on demand: %d"}}`, status)
	}
	return true
}
