package plainhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const long = 10 * time.Minute // of a call that must not end by the clock

func prepare(t *testing.T, tr *Transport, url string) *Post {
	t.Helper()
	p := tr.Post(url, http.Header{"Content-Type": {"application/json"}})
	if p == nil {
		t.Fatal("no short way to", url)
	}
	return p
}

func TestPost(t *testing.T) {
	s, conns := counted(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		user, _, _ := r.BasicAuth()
		said := fmt.Sprintf("%s %v%d%s", r.Method, r.Header["Content-Type"], len(b), user)
		switch r.URL.Path {
		case "/json":
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
		case "/chunked":
			w.Header().Set("Content-Type", "application/json")
			w.(http.Flusher).Flush()
		case "/early":
			w.WriteHeader(http.StatusEarlyHints)
		case "/nothing":
			w.WriteHeader(http.StatusNoContent)
			return
		case "/busy":
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/large":
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", fmt.Sprint(300<<10))
			w.Write(make([]byte, 300<<10))
			return
		case "/moved":
			http.Redirect(w, r, "/json", http.StatusTemporaryRedirect)
			return
		}
		fmt.Fprint(w, said)
	})
	tr := New(4)
	for _, x := range []struct {
		path, text, want string
		status           int
	}{
		{"/json", "abc", "POST [application/json]3", 200}, {"/chunked", "", "POST [application/json]0", 200}, {"/early", "a", "POST [application/json]1", 200},
		{"/nothing", "a", "", 204}, {"/busy", "ab", "POST [application/json]2", 429}, {"/html", "a", "POST [application/json]1", 200},
		{"/json", strings.Repeat("x", maxText), "POST [application/json]65536", 200}, {"/large", "a", string(make([]byte, 300<<10)), 200}, {"/json", "b", "POST [application/json]1", 200},
	} {
		a, ok, err := prepare(t, tr, s.URL+x.path).Do(t.Context(), []byte(x.text), long, 1<<20)
		if !ok || err != nil || a.Status != x.status || string(a.Body) != x.want {
			t.Errorf("%s: %d, %.60q, %v, %v", x.path, a.Status, a.Body, ok, err)
		}
		if x.status == 429 && a.Header.Get("Retry-After") != "7" || x.path == "/html" && !strings.HasPrefix(a.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("%s: %v", x.path, a.Header)
		}
	}
	if conns.Load() != 1 {
		t.Errorf("%d connections for calls one after the other", conns.Load())
	}
	for path, text := range map[string]string{"/moved": "a", "/json": strings.Repeat("x", maxText+1)} {
		if _, ok, err := prepare(t, tr, s.URL+path).Do(t.Context(), []byte(text), long, 1<<20); ok || err != nil {
			t.Errorf("%s: %v, %v: an http.Client has to do that", path, ok, err)
		}
	}
	if a, ok, err := prepare(t, tr, strings.Replace(s.URL, "http://", "http://me:secret@", 1)).Do(t.Context(), nil, long, 1<<20); !ok || err != nil || string(a.Body) != "POST [application/json]0me" {
		t.Errorf("%q, %v, %v", a.Body, ok, err)
	}
	if a, _, err := prepare(t, tr, s.URL+"/html").Do(t.Context(), nil, long, 3); err != nil || string(a.Body) != "POST" {
		t.Errorf("%q, %v: one byte more than most", a.Body, err)
	}
	for _, url := range []string{"https://host/x", "ftp://host/x", "http://", "http://ho st/", "http://höst/"} {
		if tr.Post(url, nil) != nil {
			t.Errorf("a short way to %q", url)
		}
	}
	if tr.Post(s.URL, http.Header{"Authorization": {"two\nlines"}}) != nil {
		t.Error("a header of two lines was taken")
	}
}

// Whatever a server sends is read as an http.Client reads it.
func TestPostReadsAsAClient(t *testing.T) {
	const typed = "Content-Type: application/json\r\n"
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\n" + typed + "Content-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\n" + typed + "content-length:2\r\nX-Any: \ta b\r\n\r\nok",
		"HTTP/1.1 200 \r\n" + typed + "Content-Length: 0\r\n\r\n",
		"HTTP/1.1 200\r\n" + typed + "Content-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\n" + typed + "Content-Length: 2\n\nok",
		"HTTP/1.1 200 OK\r\n" + typed + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\n" + typed + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nok",
		"HTTP/1.1 200 OK\r\n" + typed + "Content-Length: +2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\n" + typed + "Content-Length: -2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\n" + typed + "Content-Length: 2 \r\n\r\nok",
		"HTTP/1.1 200 OK\r\n" + typed + "Content-Length: \r\n\r\nok",
		"HTTP/1.1 200 OK\r\n" + typed + "Content-Length: 99999999999999999999\r\n\r\nok",
		"HTTP/1.1 200 OK\r\n" + typed + "Content-Length: 9999999\r\n\r\nok",
		"HTTP/1.1 200 OK\r\n" + typed + "Content-Length: 100\r\n\r\nok",
		"HTTP/1.1 200 OK\r\n" + typed + "\r\nall of it",
		"HTTP/1.1 200 OK\r\n" + typed + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\n" + typed + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\n" + typed + "Content-Length: 2\r\nConnection: close\r\n\r\nok",
		"HTTP/1.1 200 OK\r\n" + typed + "Content-Length: 2\r\nConnection: Keep-Alive\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
		"HTTP/1.1 200 OK\r\n" + typed + "No colon\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\n" + typed + "Bad name: x\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\n" + typed + "X: a\r\n folded\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\n" + typed + "X: a\x00b\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\n" + typed + ": x\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.0 200 OK\r\n" + typed + "Content-Length: 2\r\n\r\nok",
		"HTTP/1.1 500 No\r\n" + typed + "Content-Length: 2\r\n\r\nno",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n" + typed + "Content-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 40<<10) + "\r\n" + typed + "Content-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHead) + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\n" + typed + "Content-", "SSH-2.0-server\r\n\r\n", "",
	} {
		url := raw(t, true, answer)
		tr := New(4)
		for range 2 {
			a, ok, err := prepare(t, tr, url).Do(t.Context(), []byte("x"), long, 1<<20)
			got := ""
			if a.Status != 0 {
				got = fmt.Sprint(a.Status, " ", string(a.Body))
			}
			want, werr := post(t.Context(), &http.Client{Transport: New(4)}, url, "x")
			if !ok || got != want || (err != nil) != (werr != nil) {
				t.Errorf("%.90q: %.40q, %v, %v; a client reads %.40q, %v", answer, got, ok, err, want, werr)
			}
		}
	}
}

// An answer may come in any pieces.
func TestPostInPieces(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const answer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\ntext"
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b := make([]byte, 1<<10)
		for cut := 0; cut <= len(answer); cut++ {
			if _, err := c.Read(b); err != nil {
				return
			}
			io.WriteString(c, answer[:cut])
			time.Sleep(time.Millisecond)
			io.WriteString(c, answer[cut:])
		}
	}()
	p := prepare(t, New(4), "http://"+l.Addr().String())
	for range len(answer) + 1 {
		if a, ok, err := p.Do(t.Context(), []byte("x"), long, 1<<20); !ok || err != nil || string(a.Body) != "text" {
			t.Fatalf("%q, %v, %v", a.Body, ok, err)
		}
	}
}

// A text is sent whole to a server that takes its time.
func TestPostToASlowReader(t *testing.T) {
	small := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1) })
	}}
	l, err := small.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{}, 4)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond)
		b, err := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, "%d%v", len(b), err)
		read <- struct{}{}
	})}
	go s.Serve(l)
	defer s.Close()
	p := prepare(t, New(4), "http://"+l.Addr().String())
	for range 3 {
		if a, ok, err := p.Do(t.Context(), make([]byte, maxText), long, 1<<20); !ok || err != nil || string(a.Body) != "65536<nil>" {
			t.Fatalf("%q, %v, %v", a.Body, ok, err)
		}
		<-read
	}
}

func TestPostEnds(t *testing.T) {
	gone := make(chan struct{}, 8)
	s, _ := counted(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/half" {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "half")
			w.(http.Flusher).Flush()
		}
		if r.URL.Path != "/" {
			<-r.Context().Done()
			gone <- struct{}{}
			return
		}
		fmt.Fprint(w, "ok")
	})
	tr := New(4)
	fine := func() {
		t.Helper()
		if a, ok, err := prepare(t, tr, s.URL).Do(t.Context(), []byte("x"), long, 1<<20); !ok || err != nil || string(a.Body) != "ok" {
			t.Errorf("%q, %v, %v", a.Body, ok, err)
		}
	}
	for _, path := range []string{"/hang", "/half"} {
		p := prepare(t, tr, s.URL+path)
		if _, ok, err := p.Do(t.Context(), []byte("x"), 50*time.Millisecond, 1<<20); !ok || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, %v", path, ok, err)
		}
		<-gone
		fine()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, ok, err := p.Do(ctx, []byte("x"), long, 1<<20); !ok || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, %v", path, ok, err)
		}
		cancel()
		<-gone
		fine()
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		if _, ok, err := p.Do(ctx, []byte("x"), long, 1<<20); !ok || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, %v", path, ok, err)
		}
		<-gone
		if _, ok, err := p.Do(ctx, []byte("x"), long, 1<<20); !ok || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, %v", path, ok, err)
		}
		fine()
	}
	s.Close()
	if _, ok, err := prepare(t, tr, s.URL).Do(t.Context(), []byte("x"), long, 1<<20); !ok || err == nil {
		t.Errorf("%v, %v: nobody is there", ok, err)
	}
}

// A connection that the server closed meanwhile is no failure: nothing was sent on it.
func TestPostOnAClosedConnection(t *testing.T) {
	s, conns := closing(t, time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, "ok")
	})
	tr := New(4)
	p := prepare(t, tr, s.URL)
	for range 5 {
		if a, ok, err := p.Do(t.Context(), []byte("x"), long, 1<<20); !ok || err != nil || string(a.Body) != "ok" {
			t.Fatalf("%q, %v, %v", a.Body, ok, err)
		}
		for kept := p.pool.kept[0]; kept.quiet(); {
			time.Sleep(time.Millisecond)
		}
	}
	if conns.Load() != 5 {
		t.Errorf("%d connections", conns.Load())
	}
}

// Calls side by side, some of them given up, never get each other's answers.
func TestPostManyAtOnce(t *testing.T) {
	s, _ := counted(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Write(b)
	})
	p := prepare(t, New(8), s.URL)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for k := range 50 {
				said := fmt.Sprint(i, ":", k)
				ctx, cancel := context.WithCancel(t.Context())
				if k%3 == 0 {
					go cancel()
				}
				a, ok, err := p.Do(ctx, []byte(said), long, 1<<20)
				if !ok || err == nil && string(a.Body) != said || err != nil && (k%3 != 0 || !errors.Is(err, context.Canceled)) {
					t.Errorf("%q, %v, %v", a.Body, ok, err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
}

// BenchmarkPost is one call on a kept connection, server included.
func BenchmarkPost(b *testing.B) {
	url := serve(b, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 400\r\n\r\n"+strings.Repeat("x", 400))
	p := New(64).Post(url, nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := p.Do(b.Context(), []byte("a question"), long, 1<<20); err != nil {
			b.Fatal(err)
		}
	}
}

// serve gives the same answer to every text that is read at once.
func serve(b *testing.B, answer string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := make([]byte, 4<<10)
				for {
					if _, err := c.Read(in); err != nil {
						return
					}
					io.WriteString(c, answer)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// A context that is watched ends its calls as any other does: the one of the moment, a
// second one beside it, and one of a context below it that ends earlier.
func TestWatched(t *testing.T) {
	gone := make(chan struct{}, 8)
	s, _ := counted(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/hang" {
			<-r.Context().Done()
			gone <- struct{}{}
			return
		}
		fmt.Fprint(w, "ok")
	})
	tr := New(4)
	hang, fine := prepare(t, tr, s.URL+"/hang"), prepare(t, tr, s.URL)
	all, cancel := context.WithCancel(t.Context())
	defer cancel()
	ctx, end := Watched(all)
	defer end()
	for range 3 {
		if a, ok, err := fine.Do(ctx, []byte("x"), long, 1<<20); !ok || err != nil || string(a.Body) != "ok" {
			t.Fatalf("%q, %v, %v", a.Body, ok, err)
		}
	}
	short, stop := context.WithTimeout(ctx, 20*time.Millisecond)
	defer stop()
	if _, ok, err := hang.Do(short, []byte("x"), long, 1<<20); !ok || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, %v", ok, err)
	}
	<-gone
	time.AfterFunc(20*time.Millisecond, cancel)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if _, ok, err := hang.Do(ctx, []byte("x"), long, 1<<20); !ok || !errors.Is(err, context.Canceled) {
				t.Errorf("%v, %v", ok, err)
			}
		})
	}
	wg.Wait()
	if _, ok, err := fine.Do(ctx, []byte("x"), long, 1<<20); !ok || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v: the context has ended", ok, err)
	}
	if a, ok, err := fine.Do(t.Context(), []byte("x"), long, 1<<20); !ok || err != nil || string(a.Body) != "ok" {
		t.Errorf("%q, %v, %v", a.Body, ok, err)
	}
}
