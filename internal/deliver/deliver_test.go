package deliver

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"searchloop/internal/fail"
)

func TestSend(t *testing.T) {
	var asked, followed atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := asked.Add(1)
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/flaky":
			if n < 3 {
				http.Error(w, "tired", http.StatusServiceUnavailable)
				return
			}
			io.WriteString(w, r.Method+" "+r.Header.Get("X")+" "+string(body))
		case "/away":
			http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
		case "/other":
			followed.Add(1)
		case "/busy":
			w.WriteHeader(http.StatusTooManyRequests)
		case "/hang":
			<-r.Context().Done()
		default:
			http.Error(w, "not this", http.StatusBadRequest)
		}
	}))
	defer s.Close()
	c := New("webhook")
	c.all = 900 * time.Millisecond
	send := func(path string) (string, int64, error) {
		asked.Store(0)
		text, err := c.Send(context.Background(), http.MethodPut, s.URL+path, map[string]string{"X": "y"}, []byte("z"))
		return string(text), asked.Load(), err
	}
	c.all = 10 * time.Second
	if got, n, err := send("/flaky"); got != "PUT y z" || n != 3 || err != nil {
		t.Errorf("%q after %d tries, %v", got, n, err)
	}
	c.all = 900 * time.Millisecond
	for path, want := range map[string]string{"/away?token=canary": "http 307", "/wrong?token=canary": "http 400: not this", "/hang?token=canary": "too slow"} {
		_, n, err := send(path)
		if fail.KindOf(err) != fail.Service || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") || n != 1 {
			t.Errorf("%s: %d tries, %v", path, n, err)
		}
	}
	if _, n, err := send("/busy?token=canary"); err == nil || n < 1 || strings.Contains(err.Error(), "canary") {
		t.Errorf("busy: %d tries, %v", n, err)
	}
	if followed.Load() != 0 {
		t.Error("a redirect was followed")
	}
	gone := New("webhook")
	gone.all = 500 * time.Millisecond
	if _, err := gone.Send(context.Background(), "POST", "http://127.0.0.1:1/canary", nil, nil); err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("nobody there: %v", err)
	}
	for _, bad := range []string{"canary", "file:///canary", "http://", "http://x y/canary"} {
		if _, err := c.Send(context.Background(), "POST", bad, nil, nil); fail.KindOf(err) != fail.Usage || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
