// Package encoder turns texts, and with Jina's models images, into vectors with an
// encoder from a Hugging Face folder (E5, multilingual E5, BGE, MiniLM,
// jina-embeddings-v3 and -v4, Jina-CLIP-v2, or one fitted by indexer/lexical): the prefix,
// the tokenizer and its length limit, or the image's preparation; the model,
// pooling, the cut to fewer dimensions, L2 norm. Texts and pictures go in, float32
// vectors come out with the space they live in, so that vectors of different
// making are never compared.
//
// It stores nothing and searches nothing.
package encoder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"searchloop/indexer/vectors"
	"searchloop/internal/fail"
	"searchloop/internal/model/bert"
	"searchloop/internal/model/jinav4"
	"searchloop/internal/tensor"
	"searchloop/internal/token"
)

// batchTokens bounds the tokens of one forward pass, and with them its memory.
const batchTokens = 8192

// texts turns token ids into vectors: a *bert.Encoder, a *bert.Device or a
// *jinav4.Model.
type texts interface {
	Encode(seqs [][]int32) ([]float32, error)
	Dim() int
	Vocab() int
	MaxTokens() int
}

// Encoder is a loaded encoder. Its methods are safe for concurrent use. A text's
// vector does not depend on the texts beside it.
type Encoder struct {
	dir               string
	queries, passages texts          // one, unless each has its own adapter
	on                *tensor.Shared // nil: the processor
	products          tensor.Products
	images            images // nil: reads none
	words             token.Marked
	space             vectors.Space
}

// Load loads the encoder in dir.
func Load(dir string, o Override) (*Encoder, error) { return LoadOn(nil, dir, o, tensor.OwnProducts) }

// LoadOn loads the encoder in dir into the memory of a back end; nil is the processor.
// Close gives it back. products is how most of texts are taken.
func LoadOn(on *tensor.Shared, dir string, o Override, products tensor.Products) (*Encoder, error) {
	digest, err := Digest(dir)
	if err != nil {
		return nil, err
	}
	s, err := settingsOf(dir)
	if err != nil {
		return nil, err
	}
	return load(&Encoder{dir: dir, on: on, products: products}, digest, s.with(o))
}

// LoadSpace loads the encoder in dir and sets it up as space says. It refuses a
// folder that is not the one the space was made with.
func LoadSpace(dir string, space vectors.Space) (*Encoder, error) {
	digest, err := Digest(dir)
	if err != nil {
		return nil, err
	}
	s, err := settingsOf(dir)
	if err != nil {
		return nil, err
	}
	e, err := load(&Encoder{dir: dir}, digest, s.with(Override{QueryPrefix: &space.QueryPrefix, PassagePrefix: &space.PassagePrefix, MaxTokens: &space.MaxTokens, Dim: &space.Dim}))
	if err != nil {
		return nil, err
	}
	if e.images != nil {
		e.space.Content = space.Content
	}
	if d := e.space.Diff(space); d != "" {
		return nil, &fail.Error{Kind: fail.BadInput, Op: "load encoder", Path: dir, Err: fmt.Errorf("the encoder here and the index' differ: %s", d),
			Hint: "give the encoder the vectors were made with, or embed and index again"}
	}
	return e, nil
}

func load(e *Encoder, digest string, s Settings) (*Encoder, error) {
	if err := e.load(digest, s); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// loadTexts loads the text tower with an adapter.
func (e *Encoder) loadTexts(adapter string) (m texts, err error) {
	if e.on == nil {
		m, err = bert.Load(e.dir, adapter)
	} else {
		m, err = bert.LoadOn(e.on, e.dir, adapter, bert.Options{Products: e.products})
	}
	return m, fail.Wrap(fail.BadInput, "load encoder", e.dir, err)
}

// loadV4 loads jina-embeddings-v4, whose texts and images go through one model.
func (e *Encoder) loadV4(task string) (err error) {
	if e.products != tensor.OwnProducts {
		return fail.WithHint(fail.New(fail.Usage, "load encoder", e.dir, "products in 8 bits are not known for jina-embeddings-v4"), "say --products bf16")
	}
	load := jinav4.Load
	if e.on != nil {
		load = func(dir, task string) (*jinav4.Model, error) { return jinav4.LoadOn(e.on, dir, task) }
	}
	m, err := load(e.dir, task)
	if err != nil {
		return fail.Wrap(fail.BadInput, "load encoder", e.dir, err)
	}
	e.queries, e.passages, e.images = m, m, v4{m}
	e.words, err = token.LoadUnmarked(e.dir)
	return fail.Wrap(fail.BadInput, "load encoder", e.dir, err)
}

// loadBERT loads a text tower, or two, and its tokenizer.
func (e *Encoder) loadBERT(s *Settings) (err error) {
	if e.passages, err = e.loadTexts(s.PassageAdapter); err != nil {
		return err
	}
	if e.queries = e.passages; s.QueryAdapter != s.PassageAdapter {
		if e.queries, err = e.loadTexts(s.QueryAdapter); err != nil {
			return err
		}
	}
	e.words, err = token.LoadMarked(e.dir)
	return fail.Wrap(fail.BadInput, "load encoder", e.dir, err)
}

func (e *Encoder) load(digest string, s Settings) error {
	dir := e.dir
	t, err := readTasks(dir)
	if err != nil {
		return err
	}
	if t.v4() {
		err = e.loadV4(s.PassageAdapter)
	} else {
		err = e.loadBERT(&s)
	}
	if err != nil {
		return err
	}
	m := e.passages
	if s.MaxTokens == 0 {
		if s.MaxTokens = m.MaxTokens(); t.clip() {
			s.MaxTokens = min(s.MaxTokens, clipTokens)
		}
	}
	if e.words.Size() > m.Vocab() {
		return &fail.Error{Kind: fail.BadInput, Op: "load encoder", Path: dir, Err: fmt.Errorf("the tokenizer has %d ids, the model %d", e.words.Size(), m.Vocab()),
			Hint: "the tokenizer and the weights are of different models"}
	}
	if s.MaxTokens < 3 || s.MaxTokens > m.MaxTokens() {
		return fail.New(fail.BadInput, "load encoder", dir, "a limit of %d tokens; the model takes 3 to %d", s.MaxTokens, m.MaxTokens())
	}
	dim := cmp.Or(s.Dim, m.Dim())
	if dim != m.Dim() && !slices.Contains(t.Dims, dim) || dim > m.Dim() {
		return fail.New(fail.BadInput, "load encoder", dir, "vectors of %d numbers: the model gives %d, and may be cut to %v", dim, m.Dim(), t.Dims)
	}
	mode, normalized := "mean", true
	if !t.v4() {
		if mode, normalized, err = pooling(dir); err != nil {
			return err
		}
	}
	e.space = vectors.Space{
		Encoder: digest, Dim: dim, Pooling: mode, Normalized: normalized,
		MaxTokens: s.MaxTokens, QueryPrefix: s.QueryPrefix, PassagePrefix: s.PassagePrefix,
	}
	if t.clip() {
		e.images, err = loadClip(e.on, dir, m.Dim())
	}
	return err
}

// Close gives back what a back end holds of the encoder. Nothing may be encoded any
// more.
func (e *Encoder) Close() error {
	var errs []error
	for _, m := range []texts{e.passages, e.queries} {
		if d, ok := m.(*bert.Device); ok && d != nil {
			errs = append(errs, d.Close())
		}
	}
	if e.images != nil {
		errs = append(errs, e.images.Close())
	}
	return errors.Join(errs...)
}

// Parallel is how many calls are worth having under way at once: the processor is busy
// with one, a back end joins many.
func (e *Encoder) Parallel() int {
	if e.on == nil {
		return 1
	}
	return 128
}

// Dir is the folder the encoder was loaded from.
func (e *Encoder) Dir() string { return e.dir }

// Space says how the vectors are made.
func (e *Encoder) Space() vectors.Space { return e.space }

// Queries encodes search queries: len(texts)*Dim numbers, row-major.
func (e *Encoder) Queries(ctx context.Context, texts []string) ([]float32, error) {
	return e.encode(ctx, e.queries, e.space.QueryPrefix, texts)
}

// Passages encodes passages: len(texts)*Dim numbers, row-major.
func (e *Encoder) Passages(ctx context.Context, texts []string) ([]float32, error) {
	return e.encode(ctx, e.passages, e.space.PassagePrefix, texts)
}

func (e *Encoder) encode(ctx context.Context, model texts, prefix string, list []string) ([]float32, error) {
	out := make([]float32, 0, len(list)*e.space.Dim)
	var batch [][]int32
	tokens, most := 0, batchTokens
	if e.on != nil {
		most = math.MaxInt // the back end cuts as it needs
	}
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fail.Wrap(fail.Interrupted, "encode", e.dir, err)
		}
		v, err := model.Encode(batch)
		if err != nil {
			return fail.Wrap(fail.BadInput, "encode", e.dir, err)
		}
		if len(v) != len(batch)*model.Dim() {
			return fail.Wrap(fail.Bug, "encode", e.dir, errors.New("the model gave another number of vectors than texts"))
		}
		if e.space.Dim < model.Dim() {
			out = cut(out, v, model.Dim(), e.space.Dim, e.space.Normalized)
		} else {
			out = append(out, v...)
		}
		batch, tokens = batch[:0], 0
		return nil
	}
	for _, t := range list {
		ids := e.words.Encode(prefix+t, e.space.MaxTokens)
		if tokens+len(ids) > most {
			if err := flush(); err != nil {
				return nil, err
			}
		}
		batch, tokens = append(batch, ids), tokens+len(ids)
	}
	if err := flush(); err != nil {
		return nil, err
	}
	return out, nil
}
