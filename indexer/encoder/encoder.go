// Package encoder turns texts into vectors with a BERT-architecture encoder from
// a Hugging Face folder (E5, multilingual E5, BGE, MiniLM, or one fitted by
// indexer/lexical): the
// prefix, the tokenizer and its length limit, the model, pooling, L2 norm. Texts
// go in, float32 vectors come out with the space they live in, so that vectors
// of different making are never compared.
//
// It stores nothing and searches nothing.
package encoder

import (
	"context"
	"errors"
	"fmt"

	"searchloop/indexer/vectors"
	"searchloop/internal/fail"
	"searchloop/internal/model/bert"
	"searchloop/internal/token"
)

// batchTokens bounds the tokens of one forward pass, and with them its memory.
const batchTokens = 8192

// Encoder is a loaded encoder. Its methods are safe for concurrent use. A text's
// vector does not depend on the texts beside it.
type Encoder struct {
	dir   string
	model *bert.Encoder
	words token.Marked
	space vectors.Space
}

// Load loads the encoder in dir.
func Load(dir string, o Override) (*Encoder, error) {
	digest, err := Digest(dir)
	if err != nil {
		return nil, err
	}
	s, err := settingsOf(dir)
	if err != nil {
		return nil, err
	}
	return load(dir, digest, s.with(o))
}

// LoadSpace loads the encoder in dir and sets it up as space says. It refuses a
// folder that is not the one the space was made with.
func LoadSpace(dir string, space vectors.Space) (*Encoder, error) {
	digest, err := Digest(dir)
	if err != nil {
		return nil, err
	}
	e, err := load(dir, digest, Settings{QueryPrefix: space.QueryPrefix, PassagePrefix: space.PassagePrefix, MaxTokens: space.MaxTokens})
	if err != nil {
		return nil, err
	}
	if d := e.space.Diff(space); d != "" {
		return nil, &fail.Error{Kind: fail.BadInput, Op: "load encoder", Path: dir, Err: fmt.Errorf("the encoder here and the index' differ: %s", d),
			Hint: "give the encoder the vectors were made with, or embed and index again"}
	}
	return e, nil
}

func load(dir, digest string, s Settings) (*Encoder, error) {
	m, err := bert.Load(dir)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, "load encoder", dir, err)
	}
	w, err := token.LoadMarked(dir)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, "load encoder", dir, err)
	}
	if s.MaxTokens == 0 {
		s.MaxTokens = m.MaxTokens()
	}
	if w.Size() > m.Vocab() {
		return nil, &fail.Error{Kind: fail.BadInput, Op: "load encoder", Path: dir, Err: fmt.Errorf("the tokenizer has %d ids, the model %d", w.Size(), m.Vocab()),
			Hint: "the tokenizer and the weights are of different models"}
	}
	if s.MaxTokens < 3 || s.MaxTokens > m.MaxTokens() {
		return nil, fail.New(fail.BadInput, "load encoder", dir, "a limit of %d tokens; the model takes 3 to %d", s.MaxTokens, m.MaxTokens())
	}
	mode, normalized, err := pooling(dir)
	if err != nil {
		return nil, err
	}
	return &Encoder{dir: dir, model: m, words: w, space: vectors.Space{
		Encoder: digest, Dim: m.Dim(), Pooling: mode, Normalized: normalized,
		MaxTokens: s.MaxTokens, QueryPrefix: s.QueryPrefix, PassagePrefix: s.PassagePrefix,
	}}, nil
}

// Dir is the folder the encoder was loaded from.
func (e *Encoder) Dir() string { return e.dir }

// Space says how the vectors are made.
func (e *Encoder) Space() vectors.Space { return e.space }

// Queries encodes search queries: len(texts)*Dim numbers, row-major.
func (e *Encoder) Queries(ctx context.Context, texts []string) ([]float32, error) {
	return e.encode(ctx, e.space.QueryPrefix, texts)
}

// Passages encodes passages: len(texts)*Dim numbers, row-major.
func (e *Encoder) Passages(ctx context.Context, texts []string) ([]float32, error) {
	return e.encode(ctx, e.space.PassagePrefix, texts)
}

func (e *Encoder) encode(ctx context.Context, prefix string, texts []string) ([]float32, error) {
	out := make([]float32, 0, len(texts)*e.space.Dim)
	var batch [][]int32
	tokens := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fail.Wrap(fail.Interrupted, "encode", e.dir, err)
		}
		v, err := e.model.Encode(batch)
		if err != nil {
			return fail.Wrap(fail.BadInput, "encode", e.dir, err)
		}
		if len(v) != len(batch)*e.space.Dim {
			return fail.Wrap(fail.Bug, "encode", e.dir, errors.New("the model gave another number of vectors than texts"))
		}
		out, batch, tokens = append(out, v...), batch[:0], 0
		return nil
	}
	for _, t := range texts {
		ids := e.words.Encode(prefix+t, e.space.MaxTokens)
		if tokens+len(ids) > batchTokens {
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
