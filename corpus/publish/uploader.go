package publish

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/retry"
)

// Uploader puts single images where a search engine can see them, while a job runs.
// It makes each call once: limits, costs and repetitions are the caller's. Safe for
// concurrent use.
type Uploader struct {
	at storage

	mu   sync.Mutex
	seen bool // an image was read back from its address
}

// NewUploader opens the storage that o.To names.
func NewUploader(o Options) (*Uploader, error) {
	if o.Expires <= 0 || o.Expires > maxExpires {
		return nil, fail.New(fail.Usage, "publish", "", "--expires %v is not between 0 and %v", o.Expires, maxExpires)
	}
	at, err := open(o)
	if err != nil {
		return nil, err
	}
	return &Uploader{at: at}, nil
}

// Name is the object of a PNG image with this SHA-256, as lens --publish names it.
func Name(sha string) string { return sha[:2] + "/" + sha + ".png" }

// Put uploads an image under a name unless it is there. The first one is read back
// from its address: a storage that nobody may read ends the job (verdict Stop)
// instead of searches that find nothing.
func (u *Uploader) Put(ctx context.Context, name string, data []byte) *retry.Fault {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	there, f := u.at.has(ctx, name, len(data))
	if f == nil && !there {
		f = u.at.put(ctx, name, data)
	}
	if f != nil {
		return f
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.seen {
		return nil
	}
	url, _, err := u.at.address(ctx, name)
	if err != nil {
		return &retry.Fault{Verdict: retry.Again, Class: "sign address", Err: err}
	}
	switch got, f := readBack(ctx, url, len(data)); {
	case f != nil:
		return f
	case got != manifest.Hash(data):
		return &retry.Fault{Verdict: retry.Stop, Class: "something else is at the address of a published image"}
	}
	u.seen = true
	return nil
}

// Address is where the object of that name can be read; a signed one begins to run
// out now.
func (u *Uploader) Address(ctx context.Context, name string) (string, error) {
	url, _, err := u.at.address(ctx, name)
	return url, err
}

// Remedy is what helps when the storage refuses every call.
func (u *Uploader) Remedy() string { return u.at.remedy() }

// readBack reads an object as a search engine will, and gives its SHA-256.
func readBack(ctx context.Context, url string, size int) (sha string, f *retry.Fault) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", &retry.Fault{Verdict: retry.Never, Class: "request"} // its error holds the address
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", transport(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", ofStatus(resp.StatusCode, "")
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, int64(size)+1))
	if err != nil {
		return "", transport(ctx, err)
	}
	return manifest.Hash(data), nil
}

// withoutQuery is an address without what it may be signed with.
func withoutQuery(url string) string {
	url, _, _ = strings.Cut(url, "?")
	return url
}
