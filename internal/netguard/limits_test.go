package netguard

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"searchloop/internal/retry"
)

// served is a server that may be asked although it is on loopback.
func served(t *testing.T, opt Options, h http.HandlerFunc) (*Client, string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	opt.Allow = append(opt.Allow, strings.TrimPrefix(s.URL, "http://"))
	return New(opt), s.URL
}

// F24: pages beyond all limits are cut short, each by its own.
func TestF24Limits(t *testing.T) {
	var sent atomic.Int64
	zip := func(n int) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(make([]byte, n))
		z.Close()
		return b.Bytes()
	}
	bomb := zip(64 << 20)
	opt := Options{Types: []string{"text/", "application/json"}, MaxBytes: 4 << 20, Window: time.Second, Timeout: 20 * time.Second}
	c, base := served(t, opt, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		switch r.URL.Path {
		case "/huge": // a gigabyte, of unknown length
			for range 1 << 15 {
				n, err := w.Write(make([]byte, 32<<10))
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		case "/long":
			w.Header().Set("Content-Length", "1000000000")
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(bomb)
		case "/brotli":
			w.Header().Set("Content-Encoding", "br")
			fmt.Fprint(w, "x")
		case "/slow": // a byte at a time, for ever
			for r.Context().Err() == nil {
				fmt.Fprint(w, "x")
				w.(http.Flusher).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		case "/silent":
			<-r.Context().Done()
		case "/round":
			http.Redirect(w, r, "/round?"+r.URL.RawQuery+"x", http.StatusFound)
		case "/out":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		case "/zip":
			w.Header().Set("Content-Type", "application/zip")
			fmt.Fprint(w, "PK\x03\x04")
		case "/lie":
			fmt.Fprint(w, "PK\x03\x04\x00\x00\x00\x00")
		case "/undeclared":
			w.Header()["Content-Type"] = nil
			w.Write([]byte("%PDF-1.7\n"))
		case "/gone":
			w.WriteHeader(http.StatusGone)
		case "/broken":
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "x")
		case "/head":
			w.Header().Set("X-Long", strings.Repeat("x", 2*maxHead))
		}
	})
	for path, want := range map[string]string{
		"/huge": TooLarge, "/long": TooLarge + ": 1000000000 bytes", "/bomb": Bomb, "/brotli": WrongType, "/slow": TooSlow, "/round": Redirects, "/out": BadURL, "/zip": WrongType + ": application/zip",
		"/lie": WrongType + ": application/zip", "/undeclared": WrongType + ": application/pdf", "/gone": "http 410", "/broken": Transport + ": the response broke off", "/head": Transport,
	} {
		_, f := c.Get(t.Context(), base+path)
		if f == nil || f.Error() != want || f.Verdict != retry.Never {
			t.Errorf("%s: %v, want %s", path, f, want)
		}
	}
	if n := sent.Load(); n == 0 || n > 200<<20 {
		t.Errorf("%d bytes of the huge page were sent", n)
	}
	opt.Timeout = 100 * time.Millisecond
	c, base = served(t, opt, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	if _, f := c.Get(t.Context(), base); f == nil || f.Class != Timeout {
		t.Error(f)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("deadline passed"))
	defer cancel()
	if _, f := c.Get(ctx, base); f == nil || f.Verdict != retry.Caller || f.Err.Error() != "deadline passed" {
		t.Error(f)
	}
}

func TestWhatIsFetched(t *testing.T) {
	small := strings.Repeat("a", 100_000) // repeats itself more than any ratio, and is no bomb
	c, base := served(t, Options{Types: []string{"text/", "image/"}}, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "text/*,image/*,*/*;q=0.1" || r.Header.Get("Accept-Encoding") != "gzip" || r.Header.Get("Authorization") != "" {
			t.Errorf("%v", r.Header)
		}
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/page#part", http.StatusMovedPermanently)
		case "/page":
			w.Header().Set("Content-Type", "TEXT/HTML; charset=iso-8859-1")
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			io.WriteString(z, small)
			z.Close()
		case "/image":
			w.Header().Set("Content-Type", unknownType)
			io.WriteString(w, "\x89PNG\r\n\x1a\n")
		case "/utf16":
			w.Header().Set("Content-Type", "text/html; charset=utf-16le")
			io.WriteString(w, "h\x00i\x00")
		}
	})
	b, f := c.Get(t.Context(), strings.Replace(base, "http://", "http://user:pass@", 1)+"/moved")
	if f != nil || b.URL != base+"/page#part" || b.Type != "TEXT/HTML; charset=iso-8859-1" || string(b.Data) != small {
		t.Errorf("%v %+v", f, b)
	}
	if b, f := c.Get(t.Context(), base+"/image"); f != nil || b.Type != "image/png" {
		t.Errorf("%v %+v", f, b)
	}
	if b, f := c.Get(t.Context(), base+"/utf16"); f != nil || string(b.Data) != "h\x00i\x00" {
		t.Errorf("%v %+v", f, b)
	}
}
