// Package bert runs BERT and XLM-R encoders (E5, MiniLM, BGE and the like):
// sequences of token ids go in, one vector each comes out. The forward pass is that of
// "BERT: Pre-training of Deep Bidirectional Transformers" (Devlin et al., 2019)
// as Hugging Face's BertModel computes it, in float32, followed by the pooling
// that the model's folder asks for. It does not tokenise and does not train.
//
// Sequences are packed one behind the other, never padded, and a sequence's
// vector is bit-identical alone or in any batch.
package bert

import (
	"math"
	"sync"

	"searchloop/internal/fail"
	"searchloop/internal/gemm"
	"searchloop/internal/par"
	"searchloop/internal/vec"
)

// Encoder is a loaded model. It is not changed after Load and is safe for
// concurrent use.
type Encoder struct {
	config    config
	pooling   pooling
	words     []float32 // [vocab, hidden]
	positions []float32 // [positions, hidden], type 0 added
	types     []float32
	embedNorm norm
	layers    []layer
	spaces    sync.Pool // of *space
}

var activations = map[string]func(dst, x []float32){
	"gelu":              vec.GELU,
	"gelu_new":          vec.GELUTanh,
	"gelu_pytorch_tanh": vec.GELUTanh,
	"relu": func(dst, x []float32) {
		for i, v := range x {
			dst[i] = max(v, 0)
		}
	},
}

// chunkTokens bounds the tokens that go through the layers at once, and with them
// the memory of a call, whatever the number of sequences.
const chunkTokens = 4096

// Dim is the length of a vector.
func (e *Encoder) Dim() int { return e.config.Hidden }

// Vocab is the number of token ids: 0 … Vocab-1 are allowed.
func (e *Encoder) Vocab() int { return e.config.Vocab }

// MaxTokens is the longest sequence, with [CLS] and [SEP].
func (e *Encoder) MaxTokens() int {
	most := e.config.Positions
	if e.config.xlm() {
		most -= e.config.Pad + 1
	}
	if e.pooling.max > 0 {
		return min(e.pooling.max, most)
	}
	return most
}

// Encode returns the vectors of seqs, [len(seqs), Dim]. Each sequence carries its
// [CLS] and [SEP]; an empty one, one longer than MaxTokens and an unknown id are
// errors that name the sequence (Row, from 1).
func (e *Encoder) Encode(seqs [][]int32) ([]float32, error) {
	for i, s := range seqs {
		if err := e.checkSequence(s); err != nil {
			return nil, &fail.Error{Kind: fail.BadInput, Op: "encode", Row: int64(i + 1), Err: err}
		}
	}
	dim := e.config.Hidden
	out := make([]float32, len(seqs)*dim)
	for lo := 0; lo < len(seqs); {
		hi, tokens := lo, 0
		for hi < len(seqs) && (hi == lo || tokens+len(seqs[hi]) <= chunkTokens) {
			tokens += len(seqs[hi])
			hi++
		}
		e.encodeChunk(out[lo*dim:hi*dim], seqs[lo:hi], tokens)
		lo = hi
	}
	return out, nil
}

func (e *Encoder) encodeChunk(out []float32, seqs [][]int32, tokens int) {
	s, _ := e.spaces.Get().(*space)
	if s == nil {
		s = new(space)
	}
	defer e.spaces.Put(s)
	s.reset(&e.config, seqs, tokens)
	e.embed(s, seqs)
	for i := range e.layers {
		e.layers[i].forward(s, &e.config)
	}
	dim := e.config.Hidden
	par.For(len(seqs), 16, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			v := out[i*dim : (i+1)*dim]
			rows := s.x[s.starts[i]*dim : s.starts[i+1]*dim]
			if e.pooling.cls {
				copy(v, rows)
			} else {
				vec.SumRows(v, rows)
				vec.Scale(v, v, 1/float32(len(seqs[i])))
			}
			if e.pooling.normalise {
				// As torch.nn.functional.normalize: a zero vector stays zero.
				length := max(math.Sqrt(float64(vec.SumSq(v))), 1e-12)
				vec.Scale(v, v, float32(1/length))
			}
		}
	})
}

// embed fills s.x with the sum of the embeddings, normalised.
func (e *Encoder) embed(s *space, seqs [][]int32) {
	dim := e.config.Hidden
	par.For(len(seqs), 8, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			at := 0
			if e.config.xlm() {
				at = e.config.Pad + 1
			}
			for p, id := range seqs[i] {
				row := s.x[(s.starts[i]+p)*dim:][:dim]
				place := at
				if e.config.xlm() && int(id) == e.config.Pad {
					place = e.config.Pad
				} else {
					at++
				}
				vec.Add(row, e.words[int(id)*dim:][:dim], e.positions[place*dim:][:dim])
				vec.LayerNorm(row, row, e.embedNorm.w, e.embedNorm.b, e.config.Eps)
			}
		}
	})
}

// space is the working memory of a chunk.
type space struct {
	tokens, longest int
	starts          []int     // first row of each sequence, and the end
	jobs            []job     // the attention's pieces
	x               []float32 // [tokens, hidden]
	qkv             []float32 // [tokens, 3·hidden]
	mixed           []float32 // [tokens, hidden]
	y               []float32 // [tokens, hidden]
	up              []float32 // [tokens, intermediate]
}

func (s *space) reset(c *config, seqs [][]int32, tokens int) {
	s.tokens, s.longest = tokens, 0
	s.starts = append(s.starts[:0], 0)
	s.jobs = s.jobs[:0]
	for i, q := range seqs {
		s.longest = max(s.longest, len(q))
		for h := range c.Heads {
			for from := 0; from < len(q); from += queryRows {
				s.jobs = append(s.jobs, job{s.starts[i], len(q), h, from})
			}
		}
		s.starts = append(s.starts, s.starts[i]+len(q))
	}
	for _, b := range []struct {
		buf   *[]float32
		width int
	}{{&s.x, c.Hidden}, {&s.qkv, 3 * c.Hidden}, {&s.mixed, c.Hidden}, {&s.y, c.Hidden}, {&s.up, c.Intermediate}} {
		if n := tokens * b.width; cap(*b.buf) < n {
			*b.buf = make([]float32, n)
		} else {
			*b.buf = (*b.buf)[:n]
		}
	}
}

// apply computes y = x·wᵀ + b for rows of x.
func (l *linear) apply(y, x []float32, rows, out, in int) {
	gemm.NT(y, x, l.w, rows, out, in, false)
	par.For(rows, 1+1<<15/out, func(lo, hi int) { vec.AddRows(y[lo*out:hi*out], l.b) })
}
