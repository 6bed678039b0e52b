package plainhttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// counted is a server that counts its connections.
func counted(t *testing.T, h http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	return closing(t, 0, h)
}

// closing is one that closes connections that are idle for so long.
func closing(t *testing.T, idle time.Duration, h http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	var conns atomic.Int64
	s := httptest.NewUnstartedServer(h)
	s.Config.IdleTimeout = idle
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s, &conns
}

func post(ctx context.Context, c *http.Client, url, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return fmt.Sprint(resp.StatusCode, " ", string(b)), err
}

func TestConnectionsAreKept(t *testing.T) {
	s, conns := counted(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/chunked" {
			w.(http.Flusher).Flush()
		}
		if r.URL.Path == "/early" {
			w.WriteHeader(http.StatusEarlyHints)
		}
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
			return
		}
		if r.URL.Path == "/nothing" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		user, _, _ := r.BasicAuth()
		fmt.Fprint(w, r.Method, len(b), user)
	})
	c := &http.Client{Transport: New(4)}
	for _, x := range []struct{ path, body, want string }{
		{"/", "abc", "200 POST3"}, {"/chunked", "", "200 POST0"}, {"/early", "a", "200 POST1"}, {"/moved", "abcd", "200 POST4"},
		{"/nothing", "", "204 "}, {"/", strings.Repeat("x", 1<<20), "200 POST1048576"},
	} {
		if got, err := post(t.Context(), c, s.URL+x.path, x.body); got != x.want || err != nil {
			t.Errorf("%s: %q, %v", x.path, got, err)
		}
	}
	if got, err := post(t.Context(), c, strings.Replace(s.URL, "http://", "http://me:secret@", 1), ""); got != "200 POST0me" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if conns.Load() != 1 {
		t.Errorf("%d connections for calls one after the other", conns.Load())
	}
	c.CloseIdleConnections()
	if _, err := post(t.Context(), c, s.URL, ""); err != nil || conns.Load() != 2 {
		t.Errorf("%v, %d connections", err, conns.Load())
	}
}

func TestManyAtOnce(t *testing.T) {
	s, conns := counted(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	tr := New(3)
	c := &http.Client{Transport: tr}
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for k := range 20 {
				said := fmt.Sprint(i, ":", k)
				if got, err := post(t.Context(), c, s.URL, said); got != "200 "+said || err != nil {
					t.Errorf("%q, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
	for _, p := range tr.hosts {
		if len(p.kept) != 3 {
			t.Errorf("%d connections are kept", len(p.kept))
		}
	}
	if conns.Load() < 3 {
		t.Error(conns.Load())
	}
}

// A server may close a connection that nobody uses, as uvicorn does after seconds.
func TestClosedByTheServer(t *testing.T) {
	s, conns := closing(t, time.Millisecond, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "ok") })
	tr := New(4)
	for range 5 {
		if got, err := post(t.Context(), &http.Client{Transport: tr}, s.URL, "x"); got != "200 ok" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
		for kept := tr.pool(strings.TrimPrefix(s.URL, "http://")).kept[0]; kept.quiet(); {
			time.Sleep(time.Millisecond)
		}
	}
	if conns.Load() != 5 {
		t.Errorf("%d connections", conns.Load())
	}
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	s, _ := counted(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "ok") })
	tr := New(4)
	tr.idle = 10 * time.Millisecond
	if _, err := post(t.Context(), &http.Client{Transport: tr}, s.URL, ""); err != nil {
		t.Fatal(err)
	}
	p := tr.pool(strings.TrimPrefix(s.URL, "http://"))
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		p.mu.Lock()
		n, sweeps := len(p.kept), p.sweep != nil
		p.mu.Unlock()
		if n == 0 && !sweeps {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d kept, sweeps %v", n, sweeps)
		}
	}
}

func TestContextEndsACall(t *testing.T) {
	gone := make(chan struct{}, 8)
	s, conns := counted(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/half" {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "half")
			w.(http.Flusher).Flush()
		}
		if r.URL.Path != "/" {
			<-r.Context().Done()
			gone <- struct{}{}
		}
	})
	c := &http.Client{Transport: New(4)}
	for _, path := range []string{"/hang", "/half"} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := post(ctx, c, s.URL+path, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", path, err)
		}
		cancel()
		<-gone
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		if _, err := post(ctx, c, s.URL+path, "x"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", path, err)
		}
		<-gone
		if _, err := post(ctx, c, s.URL, "x"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", path, err)
		}
	}
	// A deadline of a call is none of the next one on its connection.
	was := conns.Load()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if _, err := post(ctx, c, s.URL, "x"); err != nil {
			t.Error(err)
		}
		cancel()
		if _, err := post(t.Context(), c, s.URL, "x"); err != nil {
			t.Error(err)
		}
	}
	if conns.Load() != was+1 {
		t.Errorf("%d connections more", conns.Load()-was)
	}
}

// raw answers every connection with a text, whatever is asked.
func raw(t *testing.T, read bool, answer string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if read {
				_, _ = http.ReadRequest(bufio.NewReader(c))
			}
			io.WriteString(c, answer)
			c.Close()
		}
	}()
	return "http://" + l.Addr().String()
}

func TestLyingServers(t *testing.T) {
	c := &http.Client{Transport: New(4)}
	for _, x := range []struct{ name, answer, want, err string }{
		{"to the end", "HTTP/1.1 200 OK\r\n\r\nall of it", "200 all of it", ""},
		{"old", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "200 ok", ""},
		{"nothing", "", "", "EOF"},
		{"half a head", "HTTP/1.1 200 OK\r\nContent-", "", "malformed"},
		{"half a body", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok", "200 ok", "EOF"},
		{"no HTTP", "SSH-2.0-server\r\n\r\n", "", "malformed"},
		{"long head", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHead) + "\r\n\r\n", "", "too long"},
		{"more than said", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "200 ok", ""},
	} {
		url := raw(t, true, x.answer)
		for range 2 {
			got, err := post(t.Context(), c, url, "x")
			if got != x.want || (err != nil) != (x.err != "") || err != nil && !strings.Contains(err.Error(), x.err) {
				t.Errorf("%s: %.40q, %v", x.name, got, err)
			}
		}
	}
}

// A server may refuse a request before it has read it.
func TestAnswerBeforeTheRequestEnds(t *testing.T) {
	s, _ := counted(t, func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
	})
	c := &http.Client{Transport: New(4)}
	refused := 0
	for range 5 {
		got, err := post(t.Context(), c, s.URL, strings.Repeat("x", 32<<20))
		if err == nil && strings.HasPrefix(got, "413") {
			refused++
		}
	}
	if refused == 0 {
		t.Error("the refusal was never read")
	}
}

func TestClosedBeforeTheEnd(t *testing.T) {
	s, conns := counted(t, func(w http.ResponseWriter, r *http.Request) { w.Write(make([]byte, 1<<20)) })
	c := &http.Client{Transport: New(4)}
	for range 2 {
		resp, err := c.Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := resp.Body.Read(make([]byte, 10)); n == 0 || err != nil {
			t.Error(n, err)
		}
		resp.Body.Close()
		resp.Body.Close()
	}
	if conns.Load() != 2 {
		t.Errorf("%d connections: one was used before its response had ended", conns.Load())
	}
}

// A request is what net/http sends.
func TestWrittenAsByNetHTTP(t *testing.T) {
	var mu sync.Mutex
	var heard []string
	s, _ := counted(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, fmt.Sprintln(r.Method, r.RequestURI, r.Host, r.ContentLength, r.TransferEncoding, r.Header, string(b), err))
	})
	unzipped := New(4).next
	unzipped.DisableCompression = true
	for _, x := range []struct {
		method, path string
		body         func() io.Reader
		header       http.Header
	}{
		{"GET", "/a%20b/../c?q=1&r=%2F#f", nil, nil},
		{"POST", "/x", func() io.Reader { return strings.NewReader("text") }, http.Header{"Content-Type": {"application/json"}, "X": {"1", "2"}}},
		{"POST", "/x", func() io.Reader { return io.MultiReader(strings.NewReader("of no known length")) }, http.Header{"User-Agent": {"us"}}},
		{"POST", "/x", func() io.Reader { return http.NoBody }, http.Header{"Content-Length": {"7"}}},
		{"PUT", "/x", func() io.Reader { return bytes.NewReader([]byte("y")) }, http.Header{"Authorization": {"Bearer k"}}},
	} {
		heard = nil
		for _, tr := range []http.RoundTripper{unzipped, New(4)} {
			var body io.Reader
			if x.body != nil {
				body = x.body()
			}
			req, err := http.NewRequest(x.method, s.URL+x.path, body)
			if err != nil {
				t.Fatal(err)
			}
			if x.header != nil {
				req.Header = x.header.Clone()
			}
			resp, err := (&http.Client{Transport: tr}).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		if len(heard) != 2 || heard[0] != heard[1] {
			t.Errorf("%q", heard)
		}
	}
	req, _ := http.NewRequest("GET", s.URL, nil)
	req.Header["Authorization"] = []string{"two\nlines"}
	if _, err := (&http.Client{Transport: New(4)}).Do(req); err == nil {
		t.Error("a header of two lines was sent")
	}
	// A body that is shorter than it says.
	req, _ = http.NewRequest("POST", s.URL, io.NopCloser(strings.NewReader("abc")))
	req.ContentLength = 10
	if _, err := (&http.Client{Transport: New(4)}).Do(req); err == nil {
		t.Error("half a body was taken for a whole one")
	}
}

// What is not plain HTTP goes through net/http.
func TestOthers(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "ok") }))
	defer s.Close()
	tr := New(4)
	tr.next.TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig
	if got, err := post(t.Context(), &http.Client{Transport: tr}, s.URL, "x"); got != "200 ok" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, url := range []string{"ftp://127.0.0.1/x", "http://"} {
		if _, err := post(t.Context(), &http.Client{Transport: tr}, url, "x"); err == nil {
			t.Errorf("%s: no error", url)
		}
	}
}

// BenchmarkCall is one call on a kept connection, server included, beside net/http's.
func BenchmarkCall(b *testing.B) {
	answer := bytes.Repeat([]byte("x"), 400)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body); w.Write(answer) }))
	defer s.Close()
	for name, tr := range map[string]http.RoundTripper{"ours": New(64), "net/http": New(64).next} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := post(b.Context(), &http.Client{Transport: tr}, s.URL, "a question"); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
