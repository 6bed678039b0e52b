package plainhttp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Post is a call that is made again and again: POST to one address with the same
// header. What an http.Client does for every call is done once: the head is written
// beforehand, no request and no response is built, and the usual answer, which is a
// JSON text of a known length, is taken apart by hand. Safe for concurrent use.
type Post struct {
	pool *pool
	addr string
	head []byte // of the request, up to the length of its text
}

// Answer is a response, read whole.
type Answer struct {
	Status int
	Header http.Header // nil for a JSON text of status 200
	Body   []byte      // as far as it came
}

const (
	maxText  = 64 << 10 // of a request: a long one is not copied behind its head
	maxPlain = 1 << 20  // of an answer for which memory is taken before it has come
)

// Post prepares calls to an address. It is nil for one that net/http has to be asked
// for: HTTPS, a proxy, anything that is not valid.
func (t *Transport) Post(url string, header http.Header) *Post {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(" "))
	if err != nil {
		return nil
	}
	if header != nil {
		req.Header = header.Clone()
	}
	if u := req.URL.User; u != nil && req.Header.Get("Authorization") == "" {
		password, _ := u.Password()
		req.SetBasicAuth(u.Username(), password)
	}
	if !t.ours(req) || !simple(req) {
		return nil
	}
	var head bytes.Buffer
	w := bufio.NewWriter(&head)
	start(w, req)
	if req.Header.Write(w) != nil || w.Flush() != nil {
		return nil
	}
	head.WriteString("Content-Length: ")
	return &Post{pool: t.pool(req.URL.Host), addr: net.JoinHostPort(req.URL.Hostname(), cmp.Or(req.URL.Port(), "80")), head: head.Bytes()}
}

// Do sends a text and reads the answer, of which it keeps one byte more than most. It
// ends with context.DeadlineExceeded after the timeout or up to an eighth of it later. ok is false when the call has
// to be made by an http.Client, as if this one had not been: the text is long, or the
// server sends elsewhere.
func (p *Post) Do(ctx context.Context, text []byte, timeout time.Duration, most int64) (a Answer, ok bool, err error) {
	if len(text) > maxText {
		return a, false, nil
	}
	if err := ctx.Err(); err != nil {
		return a, true, err
	}
	now := time.Now()
	out := buffers.Get().(*[]byte)
	*out = append((*out)[:0], p.head...)
	*out = strconv.AppendInt(*out, int64(len(text)), 10)
	*out = append(*out, "\r\n\r\n"...)
	*out = append(*out, text...)
	for {
		c := p.pool.pop()
		kept := c != nil
		if !kept {
			if c, err = p.dial(ctx, timeout); err != nil {
				buffers.Put(out)
				return a, true, err
			}
		}
		if a, ok, err = c.post(ctx, now, timeout, out, kept, most); err != errStale {
			return a, ok, err
		}
	}
}

// buffers hold what is sent, and the answers as they come.
var buffers = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}

func (p *Post) dial(ctx context.Context, timeout time.Duration) (*conn, error) {
	timed, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	raw, err := dialer.DialContext(timed, "tcp", p.addr)
	if err != nil {
		if timed.Err() != nil {
			err = timed.Err()
		}
		return nil, err
	}
	return &conn{Conn: raw, pool: p.pool}, nil
}

// errStale is the error of a kept connection that cannot be used: nothing was sent.
var errStale = errors.New("the server has closed the connection")

// talk is a call on a connection, as far as it has come. Its writing and its first
// read are one visit to the poller: nothing is read before something may be there.
type talk struct {
	raw   syscall.RawConn
	visit func(fd uintptr) bool // of this talk
	stop  func()                // sets a deadline that has passed

	conn  *conn
	check bool    // the connection was kept: it must have nothing to say
	out   *[]byte // to be sent; nil when it is
	in    *[]byte // what came
	n     int     // bytes of it
	werr  error
	rerr  error
}

// begin makes a connection one that talks.
func (c *conn) begin() error {
	if c.talk != nil {
		return nil
	}
	sys, ok := c.Conn.(syscall.Conn)
	if !ok {
		return errors.New("a connection that is no socket")
	}
	raw, err := sys.SyscallConn()
	if err != nil {
		return err
	}
	t := &talk{raw: raw, conn: c, stop: func() { _ = c.SetDeadline(past) }}
	t.visit = t.step
	c.talk = t
	return nil
}

// step sends the text, and at the next visit reads what came.
func (t *talk) step(fd uintptr) bool {
	if t.check {
		t.check = false
		if !silent(fd) {
			t.werr = errStale
			return true
		}
	}
	if t.out != nil {
		out := *t.out
		if n := writeSome(fd, out); n < len(out) {
			_, t.werr = t.conn.Conn.Write(out[n:])
		}
		buffers.Put(t.out) // the answer may take its time
		t.out = nil
		return t.werr != nil
	}
	if t.in == nil {
		t.in = buffers.Get().(*[]byte)
		*t.in = (*t.in)[:cap(*t.in)]
	}
	n, err := readSome(fd, *t.in)
	switch {
	case err == syscall.EAGAIN:
		return false
	case err != nil:
		t.rerr = err
	case n == 0:
		t.rerr = io.EOF
	}
	t.n = max(n, 0)
	return true
}

// post makes a call. The buffer out is used up, except after errStale.
func (c *conn) post(ctx context.Context, now time.Time, timeout time.Duration, out *[]byte, kept bool, most int64) (a Answer, ok bool, err error) {
	if err := c.begin(); err != nil {
		buffers.Put(out)
		c.Close()
		return a, true, err
	}
	// A deadline of the last call that is late enough for this one stays.
	if end := now.Add(timeout); c.until.Before(end) || c.until.After(end.Add(timeout/8)) {
		c.timed, c.until = true, end.Add(timeout/8)
		_ = c.SetDeadline(c.until) // an error shows in the first write
	}
	w := watching(ctx)
	var free func() bool
	if !w.take(c) {
		w, free = nil, context.AfterFunc(ctx, c.talk.stop)
	}
	t := c.talk
	t.check, t.out, t.n, t.werr, t.rerr = kept, out, 0, nil, nil
	err = t.raw.Read(t.visit)
	if t.out != nil && t.werr != errStale {
		buffers.Put(t.out) // nothing was sent
	}
	t.out = nil
	whole := false
	switch {
	case t.werr == errStale:
		err = errStale
	case t.werr != nil:
		// A server may answer before it has read all, and read no more.
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if a, ok, _, err = c.listen(nil, most); a.Status == 0 {
			ok, err = true, t.werr
		}
	case err == nil && t.rerr == nil:
		came := (*t.in)[:t.n]
		if a, whole, err = c.plain(came); a.Status == 0 {
			a, ok, whole, err = c.listen(came, most)
		} else {
			ok = true
		}
	default:
		ok, err = true, cmp.Or(err, t.rerr)
	}
	if t.in != nil {
		buffers.Put(t.in)
		t.in = nil
	}
	ended := false
	if w != nil {
		ended = w.leave()
	} else {
		ended = !free()
	}
	if ended || err != nil || !whole || !c.pool.put(c) {
		c.Close()
	}
	if err == nil || err == errStale {
		return a, ok, err
	}
	if ctx.Err() == nil && isTimeout(err) {
		return a, ok, context.DeadlineExceeded
	}
	return a, ok, reason(ctx, err)
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// plain reads an answer that is a JSON text of a known length and status 200, of which
// the head has come; without a status: it is another one. whole: the connection can be
// used again.
func (c *conn) plain(came []byte) (a Answer, whole bool, err error) {
	rest, ok := bytes.CutPrefix(came, []byte("HTTP/1.1 200 "))
	to := bytes.Index(rest, []byte("\r\n\r\n"))
	if !ok || to < 0 {
		return a, false, nil
	}
	n, ok := plainHead(rest[:to])
	if !ok {
		return a, false, nil
	}
	a.Status = http.StatusOK
	rest = rest[to+4:]
	if len(rest) >= n {
		a.Body = append([]byte(nil), rest[:n]...)
		return a, len(rest) == n, nil
	}
	body := make([]byte, n)
	at := copy(body, rest)
	more, err := io.ReadFull(c.Conn, body[at:])
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	a.Body = body[:at+more]
	return a, true, err
}

// plainHead reads the head of an answer from behind its status; ok is false for one
// that says more than how long its JSON text is.
func plainHead(head []byte) (length int, ok bool) {
	length, typed := -1, false
	_, head, _ = bytes.Cut(head, []byte("\r\n")) // behind the words of the status
	for len(head) > 0 {
		var line []byte
		line, head, _ = bytes.Cut(head, []byte("\r\n"))
		colon := bytes.IndexByte(line, ':')
		if colon < 1 {
			return 0, false
		}
		for _, c := range line[:colon] {
			if !(c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '-') {
				return 0, false // or a name that is rare
			}
		}
		name, value := line[:colon], line[colon+1:]
		for _, c := range value {
			if c < ' ' && c != '\t' {
				return 0, false
			}
		}
		for len(value) > 0 && (value[0] == ' ' || value[0] == '\t') {
			value = value[1:]
		}
		switch len(name) {
		case len("Content-Length"):
			if !fold(name, "content-length") {
				break
			}
			if length >= 0 || len(value) == 0 || len(value) > 7 {
				return 0, false
			}
			length = 0
			for _, c := range value {
				if c < '0' || c > '9' {
					return 0, false
				}
				length = 10*length + int(c-'0')
			}
			if length > maxPlain {
				return 0, false
			}
		case len("Content-Type"):
			typed = typed || fold(name, "content-type") && bytes.HasPrefix(value, []byte("application/json"))
		case len("Connection"):
			if fold(name, "connection") && !fold(value, "keep-alive") {
				return 0, false
			}
		case len("Transfer-Encoding"):
			if fold(name, "transfer-encoding") {
				return 0, false
			}
		}
	}
	return length, typed && length >= 0
}

// fold says whether a text is a word of small letters, in letters of any size.
func fold(b []byte, word string) bool {
	return len(b) == len(word) && strings.EqualFold(string(b), word)
}

// listen reads an answer of any kind, of which some bytes have come. An answer without
// a status is none. ok is false when it sends elsewhere.
func (c *conn) listen(came []byte, most int64) (a Answer, ok, whole bool, err error) {
	c.back = came
	defer func() { c.back = nil }()
	c.head = maxHead
	resp, err := c.response(nil)
	c.head = inBody
	if err != nil {
		return a, true, false, err
	}
	defer resp.Body.Close()
	a.Status, a.Header = resp.StatusCode, resp.Header
	a.Body, err = io.ReadAll(io.LimitReader(resp.Body, most+1))
	whole = err == nil && !resp.Close && int64(len(a.Body)) <= most && c.in.Buffered() == 0 && len(c.back) == 0 && a.Status != http.StatusSwitchingProtocols
	return a, a.Status < 300 || a.Status >= 400 || a.Header.Get("Location") == "", whole, err
}
