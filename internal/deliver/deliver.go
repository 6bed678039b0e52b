// Package deliver sends small documents to services that a job can do without: a
// webhook, a server of metrics. What goes in is a request with its body; what comes
// out is the answer, or an error that says what the service answered and names no
// address, since addresses may be secrets. It follows no redirect, which could carry
// a key to somebody else, and gives up in bounded time.
package deliver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/retry"
	"searchloop/internal/secret"
)

const (
	maxAnswer  = 1 << 20
	perRequest = 10 * time.Second
	inAll      = 30 * time.Second // of one document, tries included
)

// Client sends to one service. Safe for concurrent use.
type Client struct {
	name string
	http *http.Client
	line *retry.Line
	all  time.Duration
}

// New makes a Client; name is what errors call the service.
func New(name string) *Client {
	return &Client{name: name, all: inAll, line: retry.New(retry.Options{Name: name, Tries: 3, Base: 300 * time.Millisecond, Cap: 5 * time.Second}),
		http: &http.Client{
			Timeout: perRequest,
			Transport: &http.Transport{
				Proxy:               http.ProxyFromEnvironment,
				DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
				TLSHandshakeTimeout: 5 * time.Second,
				ForceAttemptHTTP2:   true,
				IdleConnTimeout:     30 * time.Second,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}}
}

// Check says whether to is an address that can be sent to.
func Check(to string) error {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("the address is not an http or https URL") // and is not repeated: it may hold a secret
	}
	return nil
}

// Send makes one request and returns the body of the answer. What fails for the
// moment is tried again, three times in all.
func (c *Client) Send(ctx context.Context, method, to string, header map[string]string, body []byte) ([]byte, error) {
	if err := Check(to); err != nil {
		return nil, fail.Wrap(fail.Usage, "send", c.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.all)
	defer cancel()
	var answer []byte
	f := c.line.Do(ctx, func(ctx context.Context) (f *retry.Fault) {
		answer, f = c.once(ctx, method, to, header, body)
		return f
	})
	if f != nil {
		return nil, fail.Wrap(fail.Service, "send", c.name, f)
	}
	return answer, nil
}

func (c *Client) once(ctx context.Context, method, to string, header map[string]string, body []byte) ([]byte, *retry.Fault) {
	req, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	if err != nil {
		return nil, &retry.Fault{Verdict: retry.Never, Class: "request", Err: secret.WithoutURL(err)}
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	res, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, &retry.Fault{Verdict: retry.Caller, Class: "too slow", Err: context.Cause(ctx)}
		}
		return nil, &retry.Fault{Verdict: retry.Again, Class: "no connection", Down: true, Err: secret.WithoutURL(err)}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	switch code := res.StatusCode; {
	case err != nil:
		return nil, &retry.Fault{Verdict: retry.Again, Class: "answer", Err: secret.WithoutURL(err)}
	case code >= 200 && code < 300:
		return text, nil
	case code == http.StatusTooManyRequests:
		return nil, &retry.Fault{Verdict: retry.Busy, Class: "http 429", After: retry.After(res.Header)}
	case code >= 500 || code == http.StatusRequestTimeout:
		return nil, &retry.Fault{Verdict: retry.Again, Class: fmt.Sprint("http ", code), Err: said(text)}
	default:
		return nil, &retry.Fault{Verdict: retry.Never, Class: fmt.Sprint("http ", code), Err: said(text)}
	}
}

// said is the beginning of what the service answered; nil for nothing.
func said(text []byte) error {
	s := strings.Join(strings.Fields(string(text[:min(len(text), 300)])), " ")
	if s == "" {
		return nil
	}
	return errors.New(s)
}
