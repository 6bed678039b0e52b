// Package plainhttp makes calls of plain HTTP/1.1 in the goroutine that asks for
// them. net/http gives every connection two goroutines of its own, and every call
// goes through both: with thousands of calls in flight most of the time of the
// processors is spent between them. Here a call writes, waits and reads by itself.
//
// It is a http.RoundTripper, for http.Client, and has a shorter way for calls that are
// made thousands of times (Post). HTTPS, proxies and whatever else net/http does better
// go through net/http's own transport. Responses that are not of the usual form are
// parsed by net/http.
package plainhttp

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// Transport makes calls on kept connections. Safe for concurrent use.
type Transport struct {
	next *http.Transport // for all but plain HTTP
	keep int
	idle time.Duration

	mu    sync.Mutex
	hosts map[string]*pool
}

// IdleTimeout is how long a connection is kept that nobody uses.
const IdleTimeout = 30 * time.Second

// New makes a transport that keeps that many connections to each host for the calls
// to come.
func New(keep int) *Transport {
	return &Transport{keep: keep, idle: IdleTimeout, hosts: map[string]*pool{}, next: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		MaxIdleConns:        keep,
		MaxIdleConnsPerHost: keep,
		IdleConnTimeout:     IdleTimeout,
		TLSHandshakeTimeout: 10 * time.Second,
	}}
}

var dialer = &net.Dialer{Timeout: 10 * time.Second}

// RoundTrip makes one call. The response's body must be read to its end or closed.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !t.ours(req) {
		return t.next.RoundTrip(req)
	}
	resp, err := t.roundTrip(req)
	if req.Body != nil {
		req.Body.Close()
	}
	return resp, err
}

// ours says whether a call is one of plain HTTP to the host itself. What is not
// valid is left to net/http to say so.
func (t *Transport) ours(req *http.Request) bool {
	if req.URL == nil || req.URL.Scheme != "http" || req.URL.Host == "" || req.Header.Get("Expect") != "" || req.Header.Get("Upgrade") != "" || !valid(req.Header) {
		return false
	}
	proxy, err := t.next.Proxy(req)
	return proxy == nil && err == nil
}

func (t *Transport) roundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := t.pool(req.URL.Host)
	c := p.take()
	if c == nil {
		raw, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(req.URL.Hostname(), cmp.Or(req.URL.Port(), "80")))
		if err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return nil, err
		}
		c = &conn{Conn: raw, pool: p}
	}
	return c.call(ctx, req)
}

// CloseIdleConnections closes the connections that are kept.
func (t *Transport) CloseIdleConnections() {
	t.next.CloseIdleConnections()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.hosts {
		p.drop(time.Now())
	}
}

// conn is one connection: in a call, or kept for the next.
type conn struct {
	net.Conn
	pool  *pool
	in    *bufio.Reader // nil before a response was parsed by net/http
	back  []byte        // what has been read already, before all else
	talk  *talk         // nil before its first Post
	since time.Time     // when it was put back
	timed bool          // it has a deadline
	until time.Time     // which one, if a Post has set it
	head  int           // bytes that may still come before the head of the response must have ended
}

// maxHead bounds the head of a response.
const maxHead = 1 << 20

// Read is what the head is parsed from; a body has no bound here.
func (c *conn) Read(p []byte) (int, error) {
	if c.head <= 0 {
		return 0, errors.New("the head of the response is too long")
	}
	var n int
	var err error
	if len(c.back) > 0 {
		n = copy(p, c.back)
		c.back = c.back[n:]
	} else {
		n, err = c.Conn.Read(p)
	}
	if c.head != inBody {
		c.head -= n
	}
	return n, err
}

// inBody is conn.head after the head.
const inBody = math.MaxInt

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// writers buffer what is sent: a request is one write.
var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 16<<10) }}

// call writes the request and reads the head of the response. The connection goes
// back when the body has been read.
func (c *conn) call(ctx context.Context, req *http.Request) (*http.Response, error) {
	c.until = time.Time{}
	if d, ok := ctx.Deadline(); ok {
		c.timed = true
		_ = c.SetDeadline(d) // an error shows in the first write
	} else if c.timed {
		c.timed = false
		_ = c.SetDeadline(time.Time{})
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(past) })
	resp, err := c.exchange(req)
	if err != nil {
		stop()
		c.Close()
		return nil, reason(ctx, err)
	}
	resp.Request = req
	b := &body{ReadCloser: resp.Body, conn: c, ctx: ctx, stop: stop, last: resp.Close || req.Close || resp.StatusCode == http.StatusSwitchingProtocols}
	resp.Body = b
	if resp.ContentLength == 0 {
		b.end(io.EOF)
	}
	return resp, nil
}

// exchange writes the request and reads the head of the response.
func (c *conn) exchange(req *http.Request) (*http.Response, error) {
	w := writers.Get().(*bufio.Writer)
	w.Reset(c.Conn)
	err := write(w, req)
	if err == nil {
		err = w.Flush()
	}
	w.Reset(nil)
	writers.Put(w)
	if err != nil {
		// A server may answer before it has read all, and read no more.
		c.head = maxHead
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if resp, rerr := c.response(req); rerr == nil {
			c.head, resp.Close = inBody, true
			return resp, nil
		}
		return nil, err
	}
	c.head = maxHead // of all heads: a server may announce the response
	resp, err := c.response(req)
	c.head = inBody
	return resp, err
}

// response reads the head of the response, and those that announce it.
func (c *conn) response(req *http.Request) (*http.Response, error) {
	if c.in == nil {
		c.in = bufio.NewReader(c)
	}
	for {
		resp, err := http.ReadResponse(c.in, req)
		if err != nil || resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, err
		}
	}
}

// reason is the error of a call in the words of net/http: an end by the context is
// the context's.
func reason(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, timed := ctx.Deadline(); timed && errors.Is(err, os.ErrDeadlineExceeded) {
		return context.DeadlineExceeded // the connection's clock was the faster one
	}
	return err
}

// body is the body of a response; its end gives the connection back.
type body struct {
	io.ReadCloser
	conn *conn // nil when it is over
	ctx  context.Context
	stop func() bool
	last bool // the connection ends with it
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && b.conn != nil {
		b.end(err)
		if err != io.EOF {
			err = reason(b.ctx, err)
		}
	}
	return n, err
}

func (b *body) Close() error {
	if b.conn == nil {
		return b.ReadCloser.Close()
	}
	b.end(errors.New("closed before its end")) // what is left is not waited for
	return nil
}

// end gives the connection back after a whole body, and closes it otherwise.
func (b *body) end(err error) {
	c := b.conn
	b.conn = nil
	if !b.stop() || err != io.EOF || b.last || c.in.Buffered() > 0 || !c.pool.put(c) {
		c.Close()
	}
}
