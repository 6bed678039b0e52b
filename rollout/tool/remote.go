package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/jsonscan"
	"searchloop/internal/plainhttp"
	"searchloop/internal/retry"
)

// Remote searches through POST /retrieve, as the servers of Search-R1,
// MM-DeepResearch and jobs/retrieve answer it.
type Remote struct {
	url  string
	http *http.Client
	post *plainhttp.Post // the shorter way; nil when there is none
	line *retry.Line
}

// NewRemote makes the client of a retrieval server. name is for messages; rawURL
// may end in /retrieve or not.
func NewRemote(name, rawURL string, opt retry.Options, log *slog.Logger) (*Remote, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fail.New(fail.Usage, "connect to "+name, rawURL, "not an http URL")
	}
	if !strings.HasSuffix(u.Path, "/retrieve") {
		u.Path = strings.TrimRight(u.Path, "/") + "/retrieve"
	}
	opt.Name, opt.Log = name, log
	// Every trajectory may ask at once: connections are kept for all of them.
	conns := plainhttp.New(maxIdle)
	return &Remote{url: u.String(), http: &http.Client{Transport: conns}, post: conns.Post(u.String(), http.Header{"Content-Type": {"application/json"}}), line: retry.New(opt)}, nil
}

// maxIdle is how many connections are kept for the next searches.
const maxIdle = 4096

// maxRetrieved and searchTime bound a response.
const (
	maxRetrieved = 64 << 20
	searchTime   = 30 * time.Second
)

// Search asks the server. The error is a *fail.Error of kind Service whose cause
// is a *retry.Fault.
func (r *Remote) Search(ctx context.Context, queries []string, k int) ([][]Hit, error) {
	body := append(make([]byte, 0, 256), `{"queries":[`...)
	for i, q := range queries {
		if i > 0 {
			body = append(body, ',')
		}
		body = jsonscan.AppendText(body, q)
	}
	body = fmt.Appendf(body, `],"return_scores":true,"topk":%d}`, k)
	var hits [][]Hit
	f := r.line.Do(ctx, func(ctx context.Context) (f *retry.Fault) {
		hits, f = r.once(ctx, body, len(queries))
		return f
	})
	if f == nil {
		return hits, nil
	}
	e := &fail.Error{Kind: fail.Service, Op: "search", Path: r.url, Err: f}
	if f.Verdict == retry.Caller {
		e.Kind = fail.Interrupted
	}
	if f.Verdict == retry.Stop {
		e.Hint = "start the retrieval server and run again: finished work is kept"
	}
	return nil, e
}

func (r *Remote) once(ctx context.Context, body []byte, n int) ([][]Hit, *retry.Fault) {
	fault := func(v retry.Verdict, class string, err error) ([][]Hit, *retry.Fault) {
		if ctx.Err() != nil {
			return nil, &retry.Fault{Verdict: retry.Caller, Class: "cancelled", Err: context.Cause(ctx)}
		}
		return nil, &retry.Fault{Verdict: v, Class: class, Err: err, Down: class == "transport"}
	}
	a, err := r.call(ctx, body)
	if a.Status == 0 {
		return fault(retry.Again, "transport", errors.New("no connection or no response in time"))
	}
	patient := func(v retry.Verdict) ([][]Hit, *retry.Fault) {
		hits, f := fault(v, status(a), nil)
		f.After = retry.After(a.Header)
		return hits, f
	}
	switch {
	case err != nil:
		return fault(retry.Again, "transport", errors.New("the response broke off"))
	case a.Status == http.StatusTooManyRequests:
		return patient(retry.Busy)
	case a.Status >= 500 || a.Status == http.StatusRequestTimeout:
		return patient(retry.Again)
	case a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden || a.Status == http.StatusNotFound:
		return fault(retry.Stop, status(a), nil)
	case a.Status >= 300:
		return fault(retry.Never, status(a), nil)
	}
	hits, err := readHits(a.Body, n)
	if err != nil {
		return fault(retry.Again, "not json", err)
	}
	return hits, nil
}

func status(a plainhttp.Answer) string { return "http " + strconv.Itoa(a.Status) }

// call makes one call. An answer without a status is none.
func (r *Remote) call(ctx context.Context, body []byte) (a plainhttp.Answer, err error) {
	if r.post != nil {
		if a, ok, err := r.post.Do(ctx, body, searchTime, maxRetrieved); ok {
			return a, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.http.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	a.Status, a.Header = resp.StatusCode, resp.Header
	a.Body, err = io.ReadAll(io.LimitReader(resp.Body, maxRetrieved))
	return a, err
}

// readHits reads {"result": [[{"document": {...}, "score": s}, …], …]}, one list
// a query. Documents are ours or those of the published servers.
func readHits(text []byte, queries int) ([][]Hit, error) {
	in, ok := scanRetrieved(text)
	if !ok {
		in = retrieved{}
		if err := json.Unmarshal(text, &in); err != nil || in.Result == nil {
			return nil, errors.New("the response is no list of results")
		}
	}
	if len(*in.Result) != queries {
		return nil, fmt.Errorf("%d results for %d queries", len(*in.Result), queries)
	}
	out := make([][]Hit, queries)
	for i, list := range *in.Result {
		if len(list) > 0 {
			out[i] = make([]Hit, 0, len(list))
		}
		for _, h := range list {
			d := h.Document
			if d.Contents == "" {
				d.Contents = strings.TrimSpace(d.Title + "\n" + d.Text)
			}
			hit := Hit{Contents: d.Contents, ImageID: d.ImageID, Score: h.Score, Link: d.URL}
			if hit.Link == "" && d.ID != "" {
				hit.Link = link(d.ID)
			}
			out[i] = append(out[i], hit)
		}
	}
	return out, nil
}
