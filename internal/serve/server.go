// Package serve answers chat requests with a model of ours: OpenAI's chat API over
// HTTP, for an embedded policy or for any client.
//
// A model's folder goes in (config.json, weights, tokenizer.json,
// preprocessor_config.json if it reads images); answers come out. All turns under
// way are one batch that every call of the model takes one token further; the
// caches of ended turns are kept, so that a conversation's next turn, or the
// other samples of its prompt, read only what is new.
//
// A request with a seed always gets the same turn, whatever else is running: the
// model's arithmetic does not depend on the batch, and a token is drawn by seed
// and position alone.
//
// Beyond OpenAI's fields a request may say top_k, include_stop_str_in_output,
// return_token_ids, and give an assistant message's sampled token_ids; a response
// then holds prompt_token_ids, prompt_images, and the choice's token_ids and
// token_logprobs. Every response names the policy by its digest. Images are read
// from data: URLs only; nothing is fetched. Tool calls stay in the text, for the
// client to read. There is one choice a request.
package serve

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"searchloop/internal/chat"
	"searchloop/internal/fail"
	"searchloop/internal/picture"
	"searchloop/internal/secret"
	"searchloop/internal/token"
)

// Options of a Server. The zero value of each field means its default.
type Options struct {
	Name      string       // the model's name; default: the folder's
	MaxActive int          // turns at once; 64
	MaxQueue  int          // turns that wait for their turn, more get 429; 1024
	Context   int          // tokens of a conversation; the model's
	KVTokens  int          // tokens in all caches; what 1 GiB holds, at least one Context
	Prefill   int          // prompt tokens read in one call of the model, about; 1024
	MaxBody   int64        // bytes of a request; 64 MiB
	MaxImages int          // images of a request; 64
	Key       secret.Value // if set, requests must bear it
	Log       *slog.Logger // default: none
}

const (
	defaultContext = 32768
	readTimeout    = 5 * time.Minute // of a request's body
	writeTimeout   = 30 * time.Second
	imageBytes     = 256 << 20 // of patches kept
)

// Server serves one model. Safe for concurrent use.
type Server struct {
	opt      Options
	tok      *token.BPE
	format   chat.Format
	engine   *engine
	pictures *pictures
	meter    *meter
	policy   string
	end      map[int32]bool
	created  int64
	http     *http.Server
	handler  http.Handler
	log      *slog.Logger

	answering atomic.Int64 // requests for turns that are being dealt with
}

// New loads the model in dir and starts its engine. Close ends it.
func New(dir string, opt Options) (*Server, error) {
	p, err := open(dir)
	if err != nil {
		return nil, err
	}
	if opt.Name == "" {
		opt.Name = p.name
	}
	return newServer(p, opt)
}

// parts are what a server is made of.
type parts struct {
	model     Model
	tok       *token.BPE
	format    chat.Format
	processor picture.Processor
	end       []int32 // end marks
	policy    string
	name      string
}

func newServer(p *parts, opt Options) (*Server, error) {
	spec := p.model.Spec()
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&spec.Context, defaultContext)
	def(&opt.MaxActive, 64)
	def(&opt.MaxQueue, 1024)
	def(&opt.Context, spec.Context)
	def(&opt.KVTokens, (1<<30)/max(spec.BytesPerToken, 1))
	def(&opt.Prefill, 1024)
	def(&opt.MaxImages, 64)
	if opt.MaxBody <= 0 {
		opt.MaxBody = 64 << 20
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Context > spec.Context {
		return nil, fail.New(fail.Usage, "serve", p.name, "a context of %d, but the model's is %d", opt.Context, spec.Context)
	}
	opt.KVTokens = max(opt.KVTokens, opt.Context)
	s := &Server{opt: opt, tok: p.tok, format: p.format, policy: p.policy, meter: new(meter), log: opt.Log, end: map[int32]bool{}, created: time.Now().Unix()}
	for _, id := range p.end {
		s.end[id] = true
	}
	s.pictures = newPictures(p.processor, imageBytes, opt.Context)
	s.engine = &engine{model: p.model, tok: p.tok, log: opt.Log, spec: spec, context: opt.Context, active: opt.MaxActive, waiting: opt.MaxQueue,
		prefill: opt.Prefill, tokens: opt.KVTokens, meter: s.meter}
	s.engine.start()
	s.handler = s.routes()
	s.http = &http.Server{Handler: s.handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(opt.Log.Handler(), slog.LevelWarn)}
	return s, nil
}

// Handler serves the API, for a server of the caller's.
func (s *Server) Handler() http.Handler { return s.handler }

// Policy is the digest that names the weights.
func (s *Server) Policy() string { return s.policy }

// Name is the model's name.
func (s *Server) Name() string { return s.opt.Name }

// Start listens on addr (port 0: any free one) and serves until Close. It returns
// the API's address, http://host:port/v1.
func (s *Server) Start(addr string) (string, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", fail.WithHint(fail.Wrap(fail.Usage, "listen", addr, err), "choose another address; port 0 takes a free one")
	}
	go func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the server ended", "error", err)
		}
	}()
	return "http://" + l.Addr().String() + "/v1", nil
}

// Close refuses new requests, lets those in flight end, and frees the model. When
// ctx ends first the rest fail with status 503, and an Interrupted error says so.
func (s *Server) Close(ctx context.Context) error {
	s.engine.drain()
	down := make(chan error, 1)
	go func() { down <- s.http.Shutdown(ctx) }() // closes the listeners at once
	var err error
	select {
	case <-s.engine.ended:
	case <-ctx.Done():
		queued, running := s.engine.load()
		err = &fail.Error{Kind: fail.Interrupted, Op: "stop serving", Err: fmt.Errorf("%d requests were cut off: %w", queued+running, ctx.Err())}
		s.engine.stop()
		<-s.engine.ended
	}
	// The last answers are being written. Shutdown would also wait, for seconds, for
	// connections that clients have opened and not used.
	end := time.Now().Add(time.Second)
	for s.answering.Load() > 0 && time.Now().Before(end) {
		time.Sleep(time.Millisecond)
	}
	select {
	case <-down:
	case <-time.After(100 * time.Millisecond):
	}
	_ = s.http.Close()
	return err
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	only := func(method string, h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method != method && (method != http.MethodGet || r.Method != http.MethodHead) {
				w.Header().Set("Allow", method)
				s.refuse(w, &apiError{status: http.StatusMethodNotAllowed, kind: "invalid_request_error", message: r.URL.Path + " takes " + method + " only"})
				return
			}
			h(w, r)
		}
	}
	keyed := func(h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			given := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
			if !s.opt.Key.IsZero() && subtle.ConstantTimeCompare([]byte(given), []byte(s.opt.Key.Reveal())) != 1 {
				s.refuse(w, &apiError{status: http.StatusUnauthorized, kind: "invalid_request_error", code: "invalid_api_key", message: "a key is needed, and this is not it"})
				return
			}
			h(w, r)
		}
	}
	mux.HandleFunc("/v1/chat/completions", only(http.MethodPost, keyed(s.complete)))
	mux.HandleFunc("/tokenize", only(http.MethodPost, keyed(s.tokenize)))
	mux.HandleFunc("/detokenize", only(http.MethodPost, keyed(s.detokenize)))
	mux.HandleFunc("/v1/models", only(http.MethodGet, keyed(s.models)))
	mux.HandleFunc("/health", only(http.MethodGet, s.health))
	mux.HandleFunc("/metrics", only(http.MethodGet, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		queued, running := s.engine.load()
		s.meter.write(w, queued, running)
	}))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, &apiError{status: http.StatusNotFound, kind: "invalid_request_error", code: "unknown_url",
			message: "there is no " + r.URL.Path + "; there are POST /v1/chat/completions, /tokenize and /detokenize, GET /v1/models, /health and /metrics"})
	})
	return mux
}

// complete answers POST /v1/chat/completions.
func (s *Server) complete(w http.ResponseWriter, r *http.Request) {
	s.answering.Add(1)
	defer s.answering.Add(-1)
	q, err := s.readRequest(w, r)
	if err != nil {
		s.refuse(w, err)
		return
	}
	p, err := s.prompt(r.Context(), q)
	if err != nil {
		s.refuse(w, err)
		return
	}
	seq := &sequence{ctx: r.Context(), prompt: p, sampling: q.sampling(), tops: q.TopLogprobs}
	seq.banned = s.engine.spec.ImageMarks // there would be no image that they stand for
	if seq.limits, err = s.limits(q, p); err == nil {
		err = s.engine.submit(seq)
	}
	if err != nil {
		s.refuse(w, err)
		return
	}
	defer s.meter.ended()
	a := &answer{s: s, q: q, seq: seq, id: newID(), created: time.Now().Unix()}
	if q.Stream {
		a.stream(w, r)
		return
	}
	<-seq.done // the engine ends it too when the client goes away
	if seq.err != nil {
		s.refuse(w, seq.err)
		return
	}
	a.whole(w)
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	b := append([]byte(nil), `{"object":"list","data":[{"id":`...)
	b = quote(b, s.opt.Name)
	b = fmt.Appendf(b, `,"object":"model","created":%d,"owned_by":"searchloop","max_model_len":%d,"policy":`, s.created, s.engine.context)
	b = quote(b, s.policy)
	s.reply(w, http.StatusOK, append(b, "}]}"...))
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	s.engine.mu.Lock()
	closing := s.engine.closing
	s.engine.mu.Unlock()
	if closing {
		s.refuse(w, errClosing)
		return
	}
	queued, running := s.engine.load()
	b := append([]byte(nil), `{"status":"ok","model":`...)
	b = quote(b, s.opt.Name)
	b = append(b, `,"policy":`...)
	b = quote(b, s.policy)
	s.reply(w, http.StatusOK, fmt.Appendf(b, `,"running":%d,"queued":%d}`, running, queued))
}

// retryAfter guesses the seconds until the queue has room.
func (s *Server) retryAfter() int {
	_, turns := s.meter.rates()
	if turns < 0.1 {
		return 5
	}
	return min(max(int(float64(s.opt.MaxActive)/turns), 1), 30)
}

func newID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return "chatcmpl-" + hex.EncodeToString(b[:])
}
