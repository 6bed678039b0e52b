// Package served is an encoder that runs in a server: any with OpenAI's
// /v1/embeddings, such as text-embeddings-inference, Infinity and vLLM. It gives
// what package encoder gives for a folder: texts and pictures go in, float32
// vectors come out in their order, with the space they live in. Requests are small
// and several are made at once; failures are waited for by internal/retry. What a
// server refuses is asked for in halves, until one input is to blame or none.
//
// It runs no model and stores nothing. A server does not show its weights: of the
// encoder a space records the name that the server has for it.
package served

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"searchloop/indexer/encoder"
	"searchloop/indexer/vectors"
	"searchloop/internal/fail"
	"searchloop/internal/llm"
	"searchloop/internal/picture"
	"searchloop/internal/retry"
	"searchloop/internal/secret"
	"searchloop/internal/tape"
	"searchloop/internal/vec"
)

// KeyName is the environment variable of the server's key.
const KeyName = "EMBED_API_KEY"

// Options say how a server is used. Zero values mean the stated defaults.
type Options struct {
	Model     string // of the server: its only one
	Images    llm.ImageForm
	Override  encoder.Override
	Normalize bool          // bring vectors to length 1, which those of many servers have anyhow
	Parallel  int           // requests at once: 8
	Batch     int           // inputs of a request: 32, which every server takes
	Timeout   time.Duration // of a request: 2 minutes
	Retry     retry.Options
	Log       *slog.Logger
	Tape      *tape.Tape
}

const (
	defaultParallel = 8
	defaultBatch    = 32
	imageBatch      = 4
)

// Is says whether place names a server, not a folder.
func Is(place string) bool {
	return strings.HasPrefix(place, "http://") || strings.HasPrefix(place, "https://")
}

// Encoder is an encoder in a server. Its methods are safe for concurrent use.
type Encoder struct {
	address string
	opt     Options
	space   vectors.Space
	room    chan struct{} // a place for each request
	most    atomic.Int64  // inputs of a request

	mu     sync.Mutex
	client *llm.Client // nil: not connected yet
}

func newEncoder(address string, o Options) *Encoder {
	e := &Encoder{address: address, opt: o, room: make(chan struct{}, cmp.Or(o.Parallel, defaultParallel))}
	e.most.Store(int64(cmp.Or(o.Batch, defaultBatch)))
	return e
}

// Connect asks the server at address for its model and what its vectors look like.
func Connect(ctx context.Context, address string, o Options) (*Encoder, error) {
	if o.Parallel < 0 || o.Batch < 0 {
		return nil, fail.New(fail.Usage, "connect to the encoder", "", "%d requests at once of %d inputs", o.Parallel, o.Batch)
	}
	e := newEncoder(address, o)
	v, err := e.connect(ctx)
	if err != nil {
		return nil, err
	}
	if e.space, err = o.space(e.client.Model(), len(v[0])); err != nil {
		return nil, err
	}
	e.space.Normalized = o.Normalize || lengthOne(v[0]) && lengthOne(v[1])
	if o.Override.Dim != nil && len(v[0]) != *o.Override.Dim {
		return nil, &fail.Error{Kind: fail.BadInput, Op: "connect to the encoder", Path: e.client.URL(), Err: fmt.Errorf("vectors of %d numbers were asked for, %d came", *o.Override.Dim, len(v[0])),
			Hint: "the server or the model cannot cut vectors: leave --dim out"}
	}
	return e, nil
}

// Assume is Connect to a server whose vectors are known to be of the space s. The
// server is asked when the first vector is, and refused as ConnectSpace does.
func Assume(address string, s vectors.Space, o Options) *Encoder {
	e := newEncoder(address, o)
	e.space = s
	e.space.Content = ""
	return e
}

// connect finds the server's API, below /v1 or not, and the vectors of two texts.
func (e *Encoder) connect(ctx context.Context) (v [][]float32, err error) {
	u, err := url.Parse(e.address)
	bare := err == nil && strings.Trim(u.Path, "/") == ""
	for _, asIs := range []bool{false, true} {
		e.client, err = llm.New(llm.Options{Name: "encoder", URL: e.address, AsIs: asIs, Model: e.opt.Model, Key: secret.FromEnv(KeyName), KeyName: KeyName,
			Timeout: cmp.Or(e.opt.Timeout, 2*time.Minute), Conns: cap(e.room), Retry: e.opt.Retry, Log: e.opt.Log, Tape: e.opt.Tape})
		if err != nil {
			return nil, err
		}
		if err = e.client.Probe(ctx); err == nil {
			v, err = e.client.Embed(ctx, e.request([]string{"a", "Two texts show whether vectors have length 1."}))
		}
		if f := llm.FaultOf(err); f == nil || f.Class != llm.NotFound || !bare {
			break
		}
	}
	if f := llm.FaultOf(err); f != nil && f.Class == llm.NotFound && e.opt.Model == "" {
		return nil, &fail.Error{Kind: fail.Service, Op: "connect to the encoder", Path: e.client.URL(), Err: f, Hint: "does the server speak OpenAI's API? One that lists no models (text-embeddings-inference) needs --encoder-model NAME"}
	}
	return v, err
}

// ready asks the server, now at the latest, what it serves. Before it client and
// opt.Override are not to be read.
func (e *Encoder) ready(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client != nil {
		return nil
	}
	c, err := ConnectSpace(ctx, e.address, e.space, e.opt)
	if err == nil {
		e.client, e.opt.Override = c.client, c.opt.Override
	}
	return err
}

// space is that of the model's vectors, as far as it is known without the server.
func (o Options) space(model string, dim int) (vectors.Space, error) {
	s := vectors.Space{Encoder: vectors.ServedModel(model), Dim: dim, Pooling: vectors.ServedPooling}
	s.QueryPrefix, s.PassagePrefix = encoder.PrefixesByName(model)
	if p := o.Override.QueryPrefix; p != nil {
		s.QueryPrefix = *p
	}
	if p := o.Override.PassagePrefix; p != nil {
		s.PassagePrefix = *p
	}
	if n := o.Override.MaxTokens; n != nil {
		if s.MaxTokens = *n; *n < 1 {
			return s, fail.New(fail.Usage, "connect to the encoder", "", "a limit of %d tokens", *n)
		}
	}
	return s, nil
}

// Expects says whether vectors of the space s are what these options ask for. It
// needs no server: a job that finds its work done does not ask for one.
func (o Options) Expects(s vectors.Space) bool {
	model, ok := s.Served()
	if !ok || o.Model == "" || o.Override.Dim != nil && *o.Override.Dim != s.Dim || o.Normalize && !s.Normalized {
		return false
	}
	want, err := o.space(o.Model, s.Dim)
	want.Normalized, want.Content = s.Normalized, s.Content
	return err == nil && model == o.Model && want == s
}

// ConnectSpace is Connect for an encoder whose vectors must be of the space s. A
// server of another model or dimension is refused.
func ConnectSpace(ctx context.Context, address string, s vectors.Space, o Options) (*Encoder, error) {
	model, ok := s.Served()
	if !ok {
		return nil, &fail.Error{Kind: fail.BadInput, Op: "connect to the encoder", Path: secret.Scrub(address), Err: errors.New("the index is of an encoder in a folder, not of a server's"),
			Hint: "name the encoder's folder: whether a server's weights are the same cannot be seen"}
	}
	o.Model, o.Normalize = model, s.Normalized
	o.Override = encoder.Override{QueryPrefix: &s.QueryPrefix, PassagePrefix: &s.PassagePrefix}
	if s.MaxTokens > 0 {
		o.Override.MaxTokens = &s.MaxTokens
	}
	e, err := Connect(ctx, address, o)
	if err == nil && e.space.Dim != s.Dim {
		has := e.space.Dim
		o.Override.Dim = &s.Dim // the vectors may have been cut
		if e, err = Connect(ctx, address, o); err != nil {
			return nil, &fail.Error{Kind: fail.BadInput, Op: "connect to the encoder", Path: secret.Scrub(address), Err: fmt.Errorf("its vectors have %d numbers, the index' %d: %w", has, s.Dim, err),
				Hint: "start the server with the model that the vectors were made with"}
		}
	}
	if err != nil {
		return nil, err
	}
	e.space.Content = s.Content
	if d := e.space.Diff(s); d != "" {
		return nil, &fail.Error{Kind: fail.BadInput, Op: "connect to the encoder", Path: e.client.URL(), Err: fmt.Errorf("the encoder here and the index' differ: %s", d),
			Hint: "give the encoder the vectors were made with, or embed and index again"}
	}
	return e, nil
}

// Space says how the vectors are made.
func (e *Encoder) Space() vectors.Space { return e.space }

// Dir is the server's address, without what is secret in it.
func (e *Encoder) Dir() string {
	u, err := url.Parse(e.address)
	if err != nil {
		return secret.Scrub(e.address)
	}
	u.User = nil
	return u.String()
}

// Parallel is how many requests are made at once.
func (e *Encoder) Parallel() int { return cap(e.room) }

// ReadsImages says whether Images can be called.
func (e *Encoder) ReadsImages() bool { return e.opt.Images != llm.NoImages }

// Prepare is what a picture is kept as until Images; the server prepares it.
func (e *Encoder) Prepare(p *picture.Picture) (*picture.Picture, error) {
	if !e.ReadsImages() {
		return nil, e.noImages()
	}
	return p, nil
}

func (e *Encoder) noImages() error {
	return &fail.Error{Kind: fail.BadInput, Op: "encode", Path: e.Dir(), Err: errors.New("the encoder reads no images"),
		Hint: "if the server does, say in which form: --encoder-images " + llm.ImageForms}
}

// Queries encodes search queries: len(texts)*Dim numbers, row-major.
func (e *Encoder) Queries(ctx context.Context, texts []string) ([]float32, error) {
	return e.texts(ctx, e.space.QueryPrefix, texts)
}

// Passages encodes passages: len(texts)*Dim numbers, row-major.
func (e *Encoder) Passages(ctx context.Context, texts []string) ([]float32, error) {
	return e.texts(ctx, e.space.PassagePrefix, texts)
}

func (e *Encoder) texts(ctx context.Context, prefix string, texts []string) ([]float32, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	all := make([]string, len(texts))
	for i, t := range texts {
		all[i] = prefix + t
	}
	return e.encode(ctx, e.request(all), int(e.most.Load()))
}

// Images encodes pictures: len(pictures)*Dim numbers, row-major.
func (e *Encoder) Images(ctx context.Context, pictures []*picture.Picture) ([]float32, error) {
	if !e.ReadsImages() {
		return nil, e.noImages()
	}
	if len(pictures) == 0 {
		return nil, nil
	}
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	r := e.request(nil)
	r.Form = e.opt.Images
	for i, p := range pictures {
		data, err := p.PNG()
		if err != nil {
			return nil, &fail.Error{Kind: fail.BadInput, Op: "encode", Row: int64(i + 1), Err: err}
		}
		r.Images = append(r.Images, data)
	}
	return e.encode(ctx, r, cmp.Or(r.Form.Most(), imageBatch))
}

// request is one for texts.
func (e *Encoder) request(texts []string) llm.EmbedRequest {
	r := llm.EmbedRequest{Texts: texts}
	if d := e.opt.Override.Dim; d != nil {
		r.Dim = *d
	}
	if n := e.opt.Override.MaxTokens; n != nil {
		r.MaxTokens = *n
	}
	return r
}

// part is the inputs lo to hi-1 of a request.
func part(r llm.EmbedRequest, lo, hi int) llm.EmbedRequest {
	if r.Form == llm.NoImages {
		r.Texts = r.Texts[lo:hi]
	} else {
		r.Images = r.Images[lo:hi]
	}
	return r
}

// encode makes requests of at most so many inputs and joins their vectors.
func (e *Encoder) encode(ctx context.Context, r llm.EmbedRequest, most int) ([]float32, error) {
	n, d := r.Len(), e.space.Dim
	out := make([]float32, n*d)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(cap(e.room))
	for lo := 0; lo < n; lo += most {
		g.Go(func() error {
			hi := min(lo+most, n)
			return e.fill(ctx, part(r, lo, hi), lo, out[lo*d:hi*d])
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return out, nil
}

// fill makes one request, or where the server refuses it two halves of it. first
// is the number of its first input among the caller's.
func (e *Encoder) fill(ctx context.Context, r llm.EmbedRequest, first int, out []float32) error {
	select {
	case e.room <- struct{}{}:
	case <-ctx.Done():
		return fail.Wrap(fail.Interrupted, "encode", e.Dir(), context.Cause(ctx))
	}
	vectors, err := e.client.Embed(ctx, r)
	<-e.room
	n, d := r.Len(), e.space.Dim
	if err == nil {
		for i, v := range vectors {
			if len(v) != d {
				return &fail.Error{Kind: fail.Service, Op: "encode", Path: e.Dir(), Err: fmt.Errorf("a vector of %d numbers; its first ones had %d", len(v), d),
					Hint: "the server gives another model's vectors: start it with the one that the work began with and run again"}
			}
			copy(out[i*d:], v)
			if e.space.Normalized {
				vec.Unit(out[i*d : (i+1)*d])
			}
		}
		return nil
	}
	f := llm.FaultOf(err)
	if f == nil || f.Verdict != retry.Never {
		return err
	}
	var one *llm.InputError
	if errors.As(err, &one) {
		return e.refused(first+one.Input, one.Err)
	}
	if n == 1 {
		return e.refused(first, f)
	}
	half := (n + 1) / 2
	if f.Class == fmt.Sprintf("http %d", http.StatusRequestEntityTooLarge) && strings.Contains(strings.ToLower(f.Error()), "batch") {
		e.most.Store(min(e.most.Load(), int64(half))) // a limit of the server on the number of inputs, not on their length
	}
	if err := e.fill(ctx, part(r, 0, half), first, out[:half*d]); err != nil {
		return err
	}
	return e.fill(ctx, part(r, half, n), first+half, out[half*d:])
}

// refused is the error about one input, by its number.
func (e *Encoder) refused(i int, why error) error {
	return &fail.Error{Kind: fail.BadInput, Op: "encode", Path: e.Dir(), Row: int64(i + 1), Err: fmt.Errorf("the server gives no vector for it: %w", why),
		Hint: "for a text that is too long, let the server cut texts (text-embeddings-inference: --auto-truncate) or say --max-tokens (vLLM)"}
}

// lengthOne allows for servers that compute in half floats.
func lengthOne(v []float32) bool {
	return math.Abs(math.Sqrt(float64(vec.SumSq(v)))-1) < 0.01
}
