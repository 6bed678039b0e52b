package publish

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"searchloop/internal/retry"
	"searchloop/internal/secret"
)

// putToken is the environment variable of the bearer token for PUT.
const putToken = "PUBLISH_TOKEN"

// KeyNames are the environment variables that hold secrets of a storage.
func KeyNames() []string { return []string{putToken, s3Key, s3Session} }

// putter is a server that takes files by HTTP PUT: WebDAV, nginx, a CDN's origin.
type putter struct {
	base, public string
	token        secret.Value
}

func openPut(o Options) *putter {
	base := strings.TrimRight(o.To, "/")
	return &putter{base: base, public: strings.TrimRight(cmp.Or(o.Public, base), "/"), token: secret.FromEnv(putToken)}
}

func (p *putter) call(ctx context.Context, method, name string, data []byte) (*http.Response, *retry.Fault) {
	var body io.Reader
	if data != nil {
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, p.base+"/"+name, body)
	if err != nil {
		return nil, &retry.Fault{Verdict: retry.Never, Class: "request", Err: err}
	}
	if data != nil {
		req.Header.Set("Content-Type", http.DetectContentType(data))
	}
	if !p.token.IsZero() {
		req.Header.Set("Authorization", "Bearer "+p.token.Reveal())
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, transport(ctx, err)
	}
	io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16)) // so that the connection is used again
	resp.Body.Close()
	return resp, nil
}

// has takes every refusal of HEAD for a no: a server that takes PUT need not know it.
func (p *putter) has(ctx context.Context, name string, size int) (bool, *retry.Fault) {
	resp, f := p.call(ctx, http.MethodHead, name, nil)
	if f != nil {
		return false, f
	}
	return resp.StatusCode == http.StatusOK && resp.ContentLength == int64(size), nil
}

func (p *putter) put(ctx context.Context, name string, data []byte) *retry.Fault {
	resp, f := p.call(ctx, http.MethodPut, name, data)
	if f == nil && resp.StatusCode >= 300 {
		f = ofStatus(resp.StatusCode, "")
	}
	return f
}

func (p *putter) address(_ context.Context, name string) (string, time.Time, error) {
	return p.public + "/" + name, time.Time{}, nil
}

func (p *putter) remedy() string {
	return "does the server take PUT below that address, and is " + putToken + " right?"
}
