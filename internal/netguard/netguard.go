// Package netguard fetches what strangers name: pages and images whose addresses
// come out of search results, pages and policies. An address goes in; a bounded
// body comes out, or a fault that says why not.
//
// Only public addresses are dialled. The check is made on the address that the
// connection is opened to, after names are resolved, so that redirects, names that
// point inward and names that change their answer are covered. No proxy is ever
// used: behind one the check would see the proxy alone. Sizes, time, redirects and
// types are limited. The package reads no content and keeps none.
package netguard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"searchloop/internal/retry"
)

// Options of a Client. Zero values mean the stated defaults.
type Options struct {
	Allow     []string      // host:port, as URLs name them, that may be private: an intranet
	Types     []string      // media types that are taken; "image/" takes all images. None: every type
	MaxBytes  int64         // of a body, unpacked: 16 MiB
	Ratio     int64         // unpacked bytes for each that came: 100
	Timeout   time.Duration // one fetch, redirects and body included: 30 s
	Window    time.Duration // in which at least Floor bytes of a body must come: 10 s
	Floor     int64         // 512
	Redirects int           // 5
	Resolver  *net.Resolver // nil: the system's
}

// Classes of faults, as policies read them and records keep them. "http NNN" is
// the class of a status.
const (
	Blocked   = "blocked address"
	BadURL    = "not an http address"
	TooLarge  = "too large"
	Bomb      = "compressed beyond reason"
	TooSlow   = "too slow"
	Timeout   = "timeout"
	Redirects = "too many redirects"
	WrongType = "wrong type"
	NoHost    = "no such host"
	Transport = "no connection"
	Network   = "our network fails" // nothing to do with the page: worth another try
)

// Client fetches. Safe for concurrent use.
type Client struct {
	opt  Options
	http *http.Client
}

// Body is what was fetched.
type Body struct {
	URL  string // after redirects
	Type string // Content-Type, or what the first bytes look like
	Data []byte
}

// userAgent names us; many sites refuse clients without the first word.
const userAgent = "Mozilla/5.0 (compatible; searchloop)"

// maxHead bounds the header of a response.
const maxHead = 256 << 10

// ports that pages are served on; everything else is some other service.
var ports = []uint16{80, 443, 8000, 8080, 8443}

// wireServer is Azure's metadata service, whose address is a public one.
const wireServer = "168.63.129.16"

var errRedirects = errors.New("redirects")

// New makes a Client.
func New(opt Options) *Client { return build(opt, ssrf.WithPorts(ports...)) }

func build(opt Options, reach ssrf.Option) *Client {
	def := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&opt.MaxBytes, 16<<20)
	def(&opt.Ratio, 100)
	def(&opt.Floor, 512)
	def((*int64)(&opt.Timeout), int64(30*time.Second))
	def((*int64)(&opt.Window), int64(10*time.Second))
	if opt.Redirects <= 0 {
		opt.Redirects = 5
	}
	c := &Client{opt: opt}
	open := &net.Dialer{Timeout: 10 * time.Second, Resolver: opt.Resolver}
	guarded := *open
	guard := ssrf.New(reach)
	guarded.Control = func(network, address string, raw syscall.RawConn) error {
		if host, _, _ := net.SplitHostPort(address); host == wireServer {
			return fmt.Errorf("%w: %s", ssrf.ErrProhibitedIP, host)
		}
		return guard.Safe(network, address, raw)
	}
	c.http = &http.Client{
		Transport: &http.Transport{
			Proxy: nil, // also not from the environment
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				for _, a := range opt.Allow {
					if strings.EqualFold(a, address) {
						return open.DialContext(ctx, network, address)
					}
				}
				return guarded.DialContext(ctx, network, address)
			},
			DisableCompression:     true, // unpacked here, where both sizes are seen
			ForceAttemptHTTP2:      true,
			MaxIdleConnsPerHost:    4,
			IdleConnTimeout:        20 * time.Second,
			TLSHandshakeTimeout:    10 * time.Second,
			MaxResponseHeaderBytes: maxHead,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > opt.Redirects {
				return errRedirects
			}
			return checkURL(r.URL)
		},
	}
	return c
}

var errURL = errors.New(BadURL)

// checkURL refuses what is no web address. User names are dropped: they would be
// sent on.
func checkURL(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return errURL
	}
	u.User = nil
	return nil
}

// Get fetches address. A fault of verdict Never is about the page, Again about our
// own network, Caller about ctx.
func (c *Client) Get(ctx context.Context, address string) (*Body, *retry.Fault) {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || checkURL(u) != nil {
		return nil, &retry.Fault{Verdict: retry.Never, Class: BadURL}
	}
	timed, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(c.opt.Timeout, func() { cancel(errLate) })
	defer late.Stop()
	req, err := http.NewRequestWithContext(timed, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, &retry.Fault{Verdict: retry.Never, Class: BadURL}
	}
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Accept-Encoding", "gzip")
	if len(c.opt.Types) > 0 {
		req.Header.Set("Accept", accept(c.opt.Types))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fault(ctx, timed, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, &retry.Fault{Verdict: retry.Never, Class: fmt.Sprintf("http %d", resp.StatusCode)}
	}
	declared := resp.Header.Get("Content-Type")
	if t := mediaType(declared); t != "" && t != unknownType && !c.takes(t) {
		return nil, &retry.Fault{Verdict: retry.Never, Class: WrongType, Err: errors.New(t)}
	}
	if resp.ContentLength > c.opt.MaxBytes {
		return nil, &retry.Fault{Verdict: retry.Never, Class: TooLarge, Err: fmt.Errorf("%d bytes", resp.ContentLength)}
	}
	data, err := c.read(resp, cancel)
	if err != nil {
		return nil, fault(ctx, timed, err)
	}
	seen, ok := seenType(declared, data)
	if !ok || !c.takes(mediaType(seen)) {
		return nil, &retry.Fault{Verdict: retry.Never, Class: WrongType, Err: errors.New(mediaType(seen))}
	}
	return &Body{URL: resp.Request.URL.String(), Type: seen, Data: data}, nil
}

// fault says what an error of a fetch means, without addresses that were resolved.
func fault(parent, timed context.Context, err error) *retry.Fault {
	never := func(class string) *retry.Fault { return &retry.Fault{Verdict: retry.Never, Class: class} }
	cause := context.Cause(timed)
	var dns *net.DNSError
	var l *limit
	switch {
	case parent.Err() != nil:
		return &retry.Fault{Verdict: retry.Caller, Class: "cancelled", Err: context.Cause(parent)}
	case errors.As(err, &l) || errors.As(cause, &l):
		return never(l.class)
	case errors.Is(err, ssrf.ErrProhibitedIP), errors.Is(err, ssrf.ErrProhibitedPort), errors.Is(err, ssrf.ErrProhibitedNetwork), errors.Is(err, ssrf.ErrInvalidHostPort):
		return never(Blocked)
	case errors.Is(err, errRedirects):
		return never(Redirects)
	case errors.Is(err, errURL):
		return never(BadURL)
	case errors.As(err, &dns) && !dns.IsNotFound:
		return &retry.Fault{Verdict: retry.Again, Class: Network, Down: true, Err: errors.New("names are not resolved")}
	case errors.As(err, &dns):
		return never(NoHost)
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EMFILE):
		return &retry.Fault{Verdict: retry.Again, Class: Network, Down: true, Err: errors.New("no connection can be opened")}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &retry.Fault{Verdict: retry.Never, Class: Transport, Err: errors.New("the response broke off")}
	}
	return never(Transport)
}
