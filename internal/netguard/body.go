package netguard

import (
	"compress/gzip"
	"context"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// limit is an error about one of our limits.
type limit struct{ class string }

func (l *limit) Error() string { return l.class }

var errLate = &limit{Timeout}

// unjudged is how much may be unpacked before the ratio counts: small texts of one
// letter are no bombs.
const unjudged = 1 << 20

// meter counts what comes over the network.
type meter struct {
	io.Reader
	n atomic.Int64
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	m.n.Add(int64(n))
	return n, err
}

// read reads a body within the limits. cancel ends the fetch when it is too slow.
func (c *Client) read(resp *http.Response, cancel context.CancelCauseFunc) ([]byte, error) {
	raw := &meter{Reader: resp.Body}
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(c.opt.Window)
		defer tick.Stop()
		for before := int64(0); ; {
			select {
			case <-done:
				return
			case <-tick.C:
				now := raw.n.Load()
				if now-before < c.opt.Floor {
					cancel(&limit{TooSlow})
					return
				}
				before = now
			}
		}
	}()
	var in io.Reader = raw
	switch e := strings.ToLower(resp.Header.Get("Content-Encoding")); e {
	case "", "identity":
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(raw)
		if err != nil {
			return nil, err
		}
		in = z
	default:
		return nil, &limit{WrongType}
	}
	var data []byte
	buf := make([]byte, 32<<10)
	for {
		n, err := in.Read(buf)
		data = append(data, buf[:n]...)
		switch {
		case int64(len(data)) > c.opt.MaxBytes:
			return nil, &limit{TooLarge}
		case len(data) > unjudged && int64(len(data)) > c.opt.Ratio*raw.n.Load():
			return nil, &limit{Bomb}
		case err == io.EOF:
			return data, nil
		case err != nil:
			return nil, err
		}
	}
}

// unknownType is what servers say that do not know.
const unknownType = "application/octet-stream"

// mediaType is a Content-Type without its parameters, in lower case.
func mediaType(contentType string) string {
	t, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		t, _, _ = strings.Cut(contentType, ";")
	}
	return strings.ToLower(strings.TrimSpace(t))
}

func (c *Client) takes(media string) bool {
	for _, t := range c.opt.Types {
		if media == t || strings.HasSuffix(t, "/") && strings.HasPrefix(media, t) {
			return true
		}
	}
	return len(c.opt.Types) == 0
}

// seenType is the declared Content-Type, or what the first bytes look like when
// none is declared. It is not ok when text is declared and something else came.
func seenType(declared string, data []byte) (string, bool) {
	looks := http.DetectContentType(data)
	t := mediaType(declared)
	switch {
	case t == "" || t == unknownType:
		return looks, true
	case !strings.HasPrefix(t, "text/") || strings.HasPrefix(looks, "text/"), strings.Contains(strings.ToLower(declared), "utf-16"):
		return declared, true
	}
	return looks, false
}

// accept is the header that asks for the types.
func accept(types []string) string {
	var list []string
	for _, t := range types {
		if strings.HasSuffix(t, "/") {
			t += "*"
		}
		list = append(list, t)
	}
	return strings.Join(list, ",") + ",*/*;q=0.1"
}
