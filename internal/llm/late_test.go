package llm

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// F19: an answer that comes after the client's time-out, when the request has been
// repeated, is no answer: there is one, and it is that of the repetition.
func TestF19LateAnswer(t *testing.T) {
	var late sync.WaitGroup
	late.Add(1)
	c, n := serveWithin(t, time.Second, func(n int, w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if n == 1 {
			<-r.Context().Done() // the client waits no longer
			io.WriteString(w, strings.Replace(okBody, "hi", "too late", 1))
			late.Done()
			return
		}
		io.WriteString(w, okBody)
	})
	r, err := ask(c)
	if err != nil || r.Text != "hi" || r.Attempts < 2 { // more, if the machine is very busy
		t.Fatalf("%+v, %v", r, err)
	}
	late.Wait()
	if r.Text != "hi" || int(n.Load()) > r.Attempts {
		t.Errorf("after the late one: %q, %d calls", r.Text, n.Load())
	}
	if r, err := ask(c); err != nil || r.Text != "hi" {
		t.Errorf("the next request: %+v, %v", r, err)
	}
}
