package llm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"searchloop/internal/plainhttp"
	"searchloop/internal/retry"
)

// maxBody bounds a response: beyond it a server is not sending a chat turn.
const maxBody = 64 << 20

// exchange is one HTTP call and what came of it.
type exchange struct {
	request Request
	extras  bool // send the token-id extension
	keep    bool // ask for the stop text to be kept
	schema  bool // send the schema
	beside  bool // an address beside the API, which a server may lack

	attempts int
	status   int
	header   http.Header
	body     []byte // of the response, whole or as far as it came
	err      error  // transport or reading failed
}

var jsonType = []string{"application/json"}

// prepared is the shorter way of calls to an address; nil when there is none.
func (c *Client) prepared(url string) *plainhttp.Post {
	if p, ok := c.posts.Load(url); ok {
		return p.(*plainhttp.Post)
	}
	header := http.Header{"Content-Type": jsonType, "Accept": jsonType}
	if !c.opt.Key.IsZero() {
		header.Set("Authorization", "Bearer "+c.opt.Key.Reveal())
	}
	p, _ := c.posts.LoadOrStore(url, c.conns.Post(url, header))
	return p.(*plainhttp.Post)
}

// send makes the call and reads the response whole.
func (c *Client) send(ctx context.Context, x *exchange, method, url string, body []byte) error {
	if method == http.MethodPost {
		if p := c.prepared(url); p != nil {
			a, ok, err := p.Do(ctx, body, c.opt.Timeout, maxBody)
			if ok {
				x.status, x.header, x.body, x.err = a.Status, a.Header, a.Body, err
				x.bound()
				return nil
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header["Content-Type"] = jsonType
		req.ContentLength = int64(len(body))
		req.Body = x.request.kept.send(body)
		req.GetBody = func() (io.ReadCloser, error) { return x.request.kept.send(body), nil }
	}
	req.Header["Accept"] = jsonType
	if !c.opt.Key.IsZero() {
		req.Header.Set("Authorization", "Bearer "+c.opt.Key.Reveal())
	}
	resp, err := c.http.Do(req)
	if err != nil {
		x.err = err
		return nil
	}
	defer resp.Body.Close()
	x.status, x.header = resp.StatusCode, resp.Header
	b := bytes.NewBuffer(make([]byte, 0, max(0, min(resp.ContentLength, 1<<20))+bytes.MinRead))
	_, x.err = b.ReadFrom(io.LimitReader(resp.Body, maxBody+1))
	x.body = b.Bytes()
	x.bound()
	return nil
}

// bound makes a response that is too long a failure.
func (x *exchange) bound() {
	if x.err == nil && len(x.body) > maxBody {
		x.err = fmt.Errorf("response longer than %d bytes", maxBody)
	}
}

// ask makes a call through the line, with tries and waits as it has them. read
// turns a response of status 200 into a fault or keeps its content.
func (c *Client) ask(ctx context.Context, x *exchange, method, url string, body []byte, read func(*exchange) *retry.Fault) *retry.Fault {
	first := *x
	return c.line.Do(ctx, func(ctx context.Context) *retry.Fault {
		first.attempts++
		*x = first
		if err := c.send(ctx, x, method, url, body); err != nil {
			// The request never left: our own mistake, not the server's.
			return &retry.Fault{Verdict: retry.Never, Class: "request", Err: err}
		}
		if x.err != nil || x.status >= 300 {
			return x.fault(ctx)
		}
		return read(x)
	})
}
