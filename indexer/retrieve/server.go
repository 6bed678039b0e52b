// Package retrieve serves an index over HTTP: POST /retrieve as Search-R1's and
// MM-DeepResearch's retrieval servers answer it, GET /health and GET /metrics.
// Queries come in, documents with scores go out. Requests that wait at the same
// time are searched together. It searches nothing itself and keeps no state
// between requests but its counters. The protocol is described in docs/retrieve.md.
package retrieve

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"searchloop/indexer"
	"searchloop/indexer/faiss"
	"searchloop/internal/fail"
)

// Searcher is what is served: an *indexer.Index.
type Searcher interface {
	SearchQueries(ctx context.Context, queries []indexer.Query, k int, e faiss.Effort) ([][]indexer.Hit, error)
	ReadsImages() bool
	ImageQuery(data []byte) (indexer.Query, error)
	ImagePath(sha string) (string, error)
	Describe() indexer.Description
}

// Options of a server. Zero values mean the defaults that New's comment names.
type Options struct {
	TopK       int // documents a query when the request says none
	MaxTopK    int
	MaxQueries int
	MaxBody    int64 // bytes
	Waiting    int   // requests that may wait; more get 429
	Batch      int   // queries searched together
	// Patience is how long a search waits for as many requests as the last one had.
	Patience time.Duration
	// Effort is that of searches whose request does not say; zero: the index's own.
	Effort faiss.Effort
	Log    *slog.Logger
}

// Server answers requests; it is an http.Handler, safe for concurrent use.
type Server struct {
	index  Searcher
	lim    limits
	topk   int
	effort faiss.Effort
	queue  *batcher
	served *metrics
	log    *slog.Logger
	mux    *http.ServeMux
}

// New makes a server. Defaults: 3 documents, at most 1000, 1024 queries a
// request, 8 MiB of body, 1024 waiting requests, 256 queries together, 2 ms of
// patience, slog's default logger.
func New(index Searcher, o Options) *Server {
	s := &Server{
		index: index, topk: cmp.Or(o.TopK, 3), effort: o.Effort, log: o.Log, served: newMetrics(),
		lim: limits{Body: o.MaxBody, Queries: cmp.Or(o.MaxQueries, 1024), TopK: cmp.Or(o.MaxTopK, 1000)},
		mux: http.NewServeMux(),
	}
	s.queue = &batcher{index: index, most: cmp.Or(o.Batch, 256), patience: cmp.Or(o.Patience, 2*time.Millisecond), room: cmp.Or(o.Waiting, 1024),
		served: s.served, arrived: make(chan struct{}, 1)}
	if s.lim.Body == 0 {
		s.lim.Body = 8 << 20
	}
	if index.ReadsImages() {
		s.lim.Image = index.ImageQuery
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.lim.TopK = max(s.lim.TopK, s.topk)
	s.mux.HandleFunc("/retrieve", func(w http.ResponseWriter, r *http.Request) {
		began, c := time.Now(), &coded{ResponseWriter: w, code: http.StatusInternalServerError}
		defer func() { s.served.request(c.code, time.Since(began)) }()
		s.retrieve(c, r)
	})
	s.mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		s.served.write(w, s.queue.waiting(), s.index.Describe().Rows)
	})
	s.mux.HandleFunc("/health", s.health)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { refuse(w, http.StatusNotFound, "Not Found") })
	return s
}

// coded remembers the status that was sent.
type coded struct {
	http.ResponseWriter
	code int
}

func (c *coded) WriteHeader(code int) {
	c.code = code
	c.ResponseWriter.WriteHeader(code)
}

// ServeHTTP answers one request. A panic becomes a JSON 500, like any error.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if v == http.ErrAbortHandler {
			panic(v)
		}
		s.log.Error("panic while answering", "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
		refuse(w, http.StatusInternalServerError, "Internal Server Error")
	}()
	s.mux.ServeHTTP(w, r)
}

func (s *Server) retrieve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		refuse(w, http.StatusMethodNotAllowed, "Method Not Allowed")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.lim.Body))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			refuse(w, http.StatusRequestEntityTooLarge, "the request is larger than "+itoa(s.lim.Body)+" bytes")
		} else {
			refuse(w, http.StatusBadRequest, "the request could not be read")
		}
		return
	}
	req, bad := parse(body, s.lim)
	if len(bad) > 0 {
		reply(w, http.StatusUnprocessableEntity, map[string]any{"detail": bad})
		return
	}
	if len(req.Queries) == 0 {
		reply(w, http.StatusOK, answer{Result: [][]any{}})
		return
	}
	a, err := s.answer(r.Context(), req)
	var p *panicked
	switch {
	case errors.As(err, &p):
		s.log.Error("panic while searching", "panic", p.value, "stack", string(p.stack))
		refuse(w, http.StatusInternalServerError, "Internal Server Error")
	case err == nil:
		reply(w, http.StatusOK, a)
	case errors.Is(err, errBusy):
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, errBusy.Error())
	case fail.KindOf(err) == fail.Usage: // an effort that the index does not know
		refuse(w, http.StatusUnprocessableEntity, err.Error())
	case r.Context().Err() != nil: // the client went away; nobody reads this
		refuse(w, http.StatusServiceUnavailable, "request cancelled")
	default:
		s.log.Error("retrieve failed", "queries", len(req.Queries), "kind", fail.KindOf(err).String(), "err", err)
		refuse(w, http.StatusInternalServerError, err.Error())
	}
}

// answer searches, together with those that wait at the same time.
func (s *Server) answer(ctx context.Context, req request) (*answer, error) {
	found, err := s.queue.search(ctx, req.Queries, cmp.Or(req.TopK, s.topk), req.Effort.Or(s.effort))
	if err != nil {
		return nil, err
	}
	a := &answer{Result: make([][]any, len(found))}
	for i, hits := range found {
		a.Result[i] = make([]any, len(hits))
		for j, h := range hits {
			doc, err := document(h, s.index.ImagePath)
			if err != nil {
				return nil, err
			}
			if req.ReturnScores {
				doc = scored{Document: doc, Score: h.Score}
			}
			a.Result[i][j] = doc
		}
	}
	return a, nil
}

// health is what a script polls until the server is up, and what a client
// compares with the index it means to ask.
type health struct {
	Status   string `json:"status"`
	Rows     int64  `json:"rows"`
	Shards   int    `json:"shards"`
	Dim      int    `json:"dim"`
	Metric   string `json:"metric"`
	Encoder  string `json:"encoder"`
	Corpus   string `json:"corpus"`
	TopK     int    `json:"topk"`
	Searches int    `json:"searches"` // running now
	Waiting  int    `json:"waiting"`
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	d := s.index.Describe()
	searches := 0
	if s.queue.busy() {
		searches = 1
	}
	reply(w, http.StatusOK, health{Status: "ok", Rows: d.Rows, Shards: len(d.Shards), Dim: d.Space.Dim, Metric: d.Metric,
		Encoder: d.Space.Encoder, Corpus: d.Corpus, TopK: s.topk, Searches: searches, Waiting: s.queue.waiting()})
}

func reply(w http.ResponseWriter, code int, v any) {
	body, err := encode(v)
	if err != nil {
		code, body = http.StatusInternalServerError, []byte(`{"detail":"the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	w.Write(body)
}

func refuse(w http.ResponseWriter, code int, why string) {
	reply(w, code, map[string]string{"detail": why})
}

// serverOf is an http.Server with time limits: a slow client cannot hold a connection for ever.
func serverOf(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 5 * time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
}
