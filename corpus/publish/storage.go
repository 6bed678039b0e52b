package publish

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/retry"
	"searchloop/internal/secret"
)

// storage is where images are uploaded to. Implementations are safe for concurrent
// use and make each call once; package retry repeats it.
type storage interface {
	// has says whether an object of that size is there.
	has(ctx context.Context, name string, size int) (bool, *retry.Fault)
	put(ctx context.Context, name string, data []byte) *retry.Fault
	// address is where the object can be read, and until when; zero: always.
	address(ctx context.Context, name string) (url string, expires time.Time, err error)
	// remedy is what helps when it refuses every call.
	remedy() string
}

// open opens the storage that o.To names.
func open(o Options) (storage, error) {
	u, err := url.Parse(o.To)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, fail.WithHint(fail.New(fail.Usage, "publish", "", "--publish is no address of a storage, or holds a user name or a query"), "give s3://BUCKET/PREFIX or https://HOST/FOLDER")
	}
	for _, a := range []string{o.Public, o.Endpoint} {
		if v, err := url.Parse(a); err != nil || a != "" && (v.Host == "" || v.User != nil || v.Scheme != "http" && v.Scheme != "https") {
			return nil, fail.New(fail.Usage, "publish", secret.Scrub(a), "not an http address, or one with a user name")
		}
	}
	switch u.Scheme {
	case "s3":
		return openS3(u.Host, strings.Trim(u.Path, "/"), o)
	case "http", "https":
		if o.Endpoint != "" {
			return nil, fail.New(fail.Usage, "publish", o.To, "--endpoint is for s3:// alone")
		}
		return openPut(o), nil
	}
	return nil, fail.New(fail.Usage, "publish", o.To, "unknown kind of storage %q", u.Scheme)
}

// ofStatus says what an HTTP status that is no success means for an upload.
func ofStatus(status int, message string) *retry.Fault {
	f := &retry.Fault{Verdict: retry.Never, Class: fmt.Sprintf("http %d", status)}
	if message != "" {
		f.Err = errors.New(secret.Scrub(message))
	}
	switch {
	case status == http.StatusTooManyRequests:
		f.Verdict = retry.Busy
	case status == http.StatusInsufficientStorage:
		f.Verdict = retry.Stop
	case status >= 500 || status == http.StatusRequestTimeout || status == http.StatusConflict:
		f.Verdict, f.Down = retry.Again, status >= 502 && status <= 504
	default: // a storage that refuses one image refuses them all
		f.Verdict = retry.Stop
	}
	return f
}

// transport is the fault of a call that got no answer.
func transport(ctx context.Context, err error) *retry.Fault {
	if errors.Is(ctx.Err(), context.Canceled) {
		return &retry.Fault{Verdict: retry.Caller, Class: "cancelled", Err: context.Cause(ctx)}
	}
	err = secret.WithoutURL(err) // which may be signed
	return &retry.Fault{Verdict: retry.Again, Class: "transport", Down: true, Err: errors.New(secret.Scrub(err.Error()))}
}

// check reads one image back from its address, as a search engine will: an upload
// that nobody can see would only show as searches that find nothing.
func (p *publisher) check(ctx context.Context, line Image) error {
	var got string
	f := p.line.Do(ctx, func(ctx context.Context) (f *retry.Fault) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		got, f = readBack(ctx, line.URL, line.Bytes)
		return f
	})
	shown := withoutQuery(line.URL)
	switch {
	case f != nil && f.Verdict == retry.Caller:
		return fail.Wrap(fail.Interrupted, "read published image", shown, f)
	case f != nil:
		return &fail.Error{Kind: fail.Service, Op: "read published image", Path: shown, Err: f, Hint: "the images are uploaded, but cannot be read there; is --public right, and may everyone read?"}
	case got != line.Image:
		return fail.WithHint(fail.New(fail.Service, "read published image", shown, "something else is there"), "is --public right?")
	}
	return nil
}
