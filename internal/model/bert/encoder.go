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
	"sync"

	"searchloop/internal/par"
	"searchloop/internal/vec"
)

// Encoder is a loaded model. It is not changed after Load and is safe for
// concurrent use.
type Encoder struct {
	stem
	turns  turns // rotary positions
	layers []layer
	spaces sync.Pool // of *space
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

// chunkTokens bounds the tokens that go through the layers at once: few enough for
// their states to stay in a core's cache, and for the memory of a call not to grow
// with the number of sequences.
const chunkTokens = 1024

// Dim is the length of a vector.
func (e *stem) Dim() int { return e.config.Hidden }

// Vocab is the number of token ids: 0 … Vocab-1 are allowed.
func (e *stem) Vocab() int { return e.config.Vocab }

// MaxTokens is the longest sequence, with [CLS] and [SEP].
func (e *stem) MaxTokens() int {
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
	if err := e.check(seqs); err != nil {
		return nil, err
	}
	dim := e.config.Hidden
	out := make([]float32, len(seqs)*dim)
	// Several chunks go through the layers side by side, each on one core; a single
	// one is spread over all cores.
	ends := chunks(seqs, par.Workers())
	par.For(len(ends), 1, func(lo, hi int) {
		for c := lo; c < hi; c++ {
			from := 0
			if c > 0 {
				from = ends[c-1]
			}
			e.encodeChunk(out[from*dim:ends[c]*dim], seqs[from:ends[c]])
		}
	})
	return out, nil
}

// chunks cuts seqs where chunks end: at chunkTokens, or earlier, so that every
// worker has something to do while the chunks stay worth a product.
func chunks(seqs [][]int32, workers int) (ends []int) {
	all := 0
	for _, s := range seqs {
		all += len(s)
	}
	most := min(chunkTokens, max(all/workers, chunkTokens/4))
	tokens := 0
	for i, s := range seqs {
		if tokens > 0 && tokens+len(s) > most {
			ends, tokens = append(ends, i), 0
		}
		tokens += len(s)
	}
	if len(seqs) > 0 {
		ends = append(ends, len(seqs))
	}
	return ends
}

func (e *Encoder) encodeChunk(out []float32, seqs [][]int32) {
	s, _ := e.spaces.Get().(*space)
	if s == nil {
		s = new(space)
	}
	defer e.spaces.Put(s)
	s.reset(&e.config, seqs)
	e.embed(s)
	for i := range e.layers {
		e.layers[i].forward(s, e)
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
				vec.Scale(v, v, 1/float32(len(rows)/dim))
			}
			if e.pooling.normalise {
				vec.Unit(v)
			}
		}
	})
}

// embed fills s.x with the sum of the embeddings, normalised.
func (e *Encoder) embed(s *space) {
	dim := e.config.Hidden
	par.For(s.tokens, 1+1<<13/dim, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			row, other := s.x[r*dim:][:dim], e.types[:dim]
			if e.positions != nil {
				other = e.positions[int(s.places[r])*dim:][:dim]
			}
			vec.Add(row, e.words[int(s.ids[r])*dim:][:dim], other)
			vec.LayerNorm(row, row, e.embedNorm.w, e.embedNorm.b, e.config.Eps)
		}
	})
}

// space is the working memory of a chunk.
type space struct {
	tokens, longest int
	ids             []int32
	places          []int32   // of the tokens, in the table of positions
	starts          []int     // first row of each sequence, and the end
	jobs            []job     // the attention's pieces
	x               []float32 // [tokens, hidden]
	qkv             []float32 // [tokens, 3·hidden]
	mixed           []float32 // [tokens, hidden]
	y               []float32 // [tokens, hidden]
	up              []float32 // [tokens, intermediate]
}

func (s *space) reset(c *config, seqs [][]int32) {
	s.longest = 0
	s.ids, s.places = s.ids[:0], s.places[:0]
	s.starts = append(s.starts[:0], 0)
	s.jobs = s.jobs[:0]
	for _, q := range seqs {
		start := len(s.ids)
		s.ids, s.places = c.place(s.ids, s.places, q)
		n := len(s.ids) - start
		s.longest = max(s.longest, n)
		for h := range c.Heads {
			for from := 0; from < n; from += queryRows {
				s.jobs = append(s.jobs, job{start, n, h, from})
			}
		}
		s.starts = append(s.starts, start+n)
	}
	s.tokens = len(s.ids)
	for _, b := range []struct {
		buf   *[]float32
		width int
	}{{&s.x, c.Hidden}, {&s.qkv, 3 * c.Hidden}, {&s.mixed, c.Hidden}, {&s.y, c.Hidden}, {&s.up, c.Intermediate}} {
		if n := s.tokens * b.width; cap(*b.buf) < n {
			*b.buf = make([]float32, n)
		} else {
			*b.buf = (*b.buf)[:n]
		}
	}
}

// place appends a sequence's tokens and their places. A rotary model leaves padding
// tokens out: they are seen by no other token, and not counted.
func (c *config) place(ids, places, q []int32) (_, _ []int32) {
	at := int32(0)
	if c.xlm() && !c.rotary() {
		at = int32(c.Pad) + 1
	}
	for _, id := range q {
		switch pad := c.xlm() && int(id) == c.Pad; {
		case pad && c.rotary():
			at++
			continue
		case pad:
			places = append(places, int32(c.Pad))
		default:
			places = append(places, at)
			at++
		}
		ids = append(ids, id)
	}
	return ids, places
}
