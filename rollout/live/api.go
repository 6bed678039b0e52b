package live

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"searchloop/internal/retry"
	"searchloop/internal/secret"
)

// adapter is what is special about one provider.
type adapter struct {
	base    map[Kind]string // its addresses; a kind that is absent is not answered
	keyName string          // environment variable of its key
	keyless map[Kind]bool   // kinds that work without a key
	sign    func(r *http.Request, key string)
	put     func(a Ask, l Locale) call
	read    func(a Ask, body []byte) (Answer, error)
	broke   func(status int, message string) bool // whether this says that the account has no credit
}

// call is a request in the making: where it goes below the base address, and what is
// said. Without a body it is a GET.
type call struct {
	path   string
	query  url.Values
	body   any // sent as JSON
	header map[string]string
}

// adapters are the providers with an API.
var adapters = map[string]adapter{"serpapi": serpAPI, "serper": serper, "jina": jina}

// api makes calls to one provider.
type api struct {
	adapter
	locale  Locale
	gateway string // in the place of base
	key     secret.Value
	http    *http.Client
}

// client is for the providers themselves, whose addresses are the recipe's: it uses
// the environment's proxy, and no redirect, which could carry a key to somebody else.
func client() *http.Client {
	return &http.Client{
		Timeout: 90 * time.Second,
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2:   true,
			MaxIdleConnsPerHost: 64,
			IdleConnTimeout:     30 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// maxResponse bounds a response.
const maxResponse = 16 << 20

// once makes one call. No error of the HTTP client is passed on: it holds the
// address, and with it the key.
func (p *api) once(ctx context.Context, a Ask) (*Answer, *retry.Fault) {
	fault := func(v retry.Verdict, class, why string) (*Answer, *retry.Fault) {
		if ctx.Err() != nil {
			return nil, &retry.Fault{Verdict: retry.Caller, Class: "cancelled", Err: context.Cause(ctx)}
		}
		f := &retry.Fault{Verdict: v, Class: class, Down: class == "transport"}
		if why != "" {
			f.Err = errors.New(why)
		}
		return nil, f
	}
	req, shown, err := p.request(ctx, a)
	if err != nil {
		return fault(retry.Never, "request", "the question cannot be sent")
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return fault(retry.Again, "transport", "no connection or no response in time")
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case err != nil:
		return fault(retry.Again, "transport", "the response broke off")
	case len(text) > maxResponse:
		return fault(retry.Never, "too large", "")
	case resp.StatusCode != http.StatusOK:
		return nil, p.status(a, resp, said(text))
	}
	out, err := p.read(a, text)
	var no *retry.Fault
	switch {
	case errors.As(err, &no):
		return nil, no
	case err != nil:
		return fault(retry.Again, "not json", "the response is not what the provider documents")
	}
	out.URL, out.SHA256 = shown, digest(text)
	return &out, nil
}

// request is the request of a question, and its address without the key.
func (p *api) request(ctx context.Context, a Ask) (req *http.Request, shown string, err error) {
	c := p.put(a, p.locale)
	base := p.base[a.Kind]
	if p.gateway != "" {
		base = p.gateway
	}
	if base == "" {
		return nil, "", fmt.Errorf("no address for %s", a.Kind)
	}
	u, err := url.Parse(strings.TrimRight(base, "/") + c.path)
	if err != nil {
		return nil, "", err
	}
	u.RawQuery = c.query.Encode()
	method, body := http.MethodGet, io.Reader(nil)
	if c.body != nil {
		text, err := json.Marshal(c.body)
		if err != nil {
			return nil, "", err
		}
		method, body = http.MethodPost, bytes.NewReader(text)
	}
	if req, err = http.NewRequestWithContext(ctx, method, u.String(), body); err != nil {
		return nil, "", err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json")
	for k, v := range c.header {
		req.Header.Set(k, v)
	}
	if a.Kind == Lens && c.query.Has("url") { // the image's address may be signed
		q := u.Query()
		q.Set("url", unsigned(a.Text))
		u.RawQuery = q.Encode()
	}
	shown = secret.Scrub(u.String())
	if !p.key.IsZero() {
		p.sign(req, p.key.Reveal())
	}
	return req, shown, nil
}

// unsigned is an address without its query.
func unsigned(address string) string {
	address, _, _ = strings.Cut(address, "?")
	return address
}

// status says what a status that is not 200 means.
func (p *api) status(a Ask, resp *http.Response, message string) *retry.Fault {
	s := resp.StatusCode
	f := &retry.Fault{Verdict: retry.Never, Class: "http " + strconv.Itoa(s)}
	if message != "" {
		f.Err = errors.New(message)
	}
	switch {
	case s == http.StatusPaymentRequired || p.broke != nil && p.broke(s, message):
		f.Verdict, f.Class = retry.Stop, "no credit"
	case s == http.StatusUnauthorized || s == http.StatusForbidden:
		f.Verdict, f.Class = retry.Stop, "unauthorised"
	case s == http.StatusTooManyRequests:
		f.Verdict, f.After = retry.Busy, retry.After(resp.Header)
	case s >= 500 || s == http.StatusRequestTimeout:
		f.Verdict, f.After = retry.Again, retry.After(resp.Header)
	case s < 400 || s == http.StatusNotFound && a.Kind != Page: // not the provider that is meant
		f.Verdict = retry.Stop
	}
	return f
}

// said is the message of an error body, short and without secrets.
func said(body []byte) string {
	var o struct{ Error, Message, ReadableMessage any }
	text := ""
	if json.Unmarshal(body, &o) == nil {
		for _, v := range []any{o.Error, o.Message, o.ReadableMessage} {
			if s, ok := v.(string); ok && text == "" {
				text = s
			}
		}
	}
	return secret.Line(text)
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// KeyNames are the environment variables of the providers' keys.
func KeyNames() []string {
	var list []string
	for _, a := range adapters {
		list = append(list, a.keyName)
	}
	slices.Sort(list)
	return list
}
