package bert

import (
	"fmt"
	"math"
	"sync"

	"searchloop/internal/gemm"
	"searchloop/internal/par"
	"searchloop/internal/vec"
)

// queryRows is how many queries of a head are scored at once, so that the scores
// stay in the cache.
const queryRows = 64

// job is the attention of some queries of one head in one sequence.
type job struct{ start, length, head, from int }

var scores = sync.Pool{New: func() any { return new([]float32) }}

// forward takes s.x through the layer: attention and a two-layer perceptron, each
// added to its input and normalised after.
func (l *layer) forward(s *space, c *config) {
	h := c.Hidden
	l.qkv.apply(s.qkv, s.x, s.tokens, 3*h, h)
	par.For(len(s.jobs), 1, func(lo, hi int) {
		buf := scores.Get().(*[]float32)
		if n := queryRows * s.longest; len(*buf) < n {
			*buf = make([]float32, n)
		}
		for _, j := range s.jobs[lo:hi] {
			j.attend(s, *buf, h, h/c.Heads)
		}
		scores.Put(buf)
	})
	l.out.apply(s.y, s.mixed, s.tokens, h, h)
	l.attentionNorm.addAndNormalise(s.x, s.y, h, c.Eps)

	l.up.apply(s.up, s.x, s.tokens, c.Intermediate, h)
	act := activations[c.Act]
	par.For(s.tokens, 1+1<<13/c.Intermediate, func(lo, hi int) {
		rows := s.up[lo*c.Intermediate : hi*c.Intermediate]
		act(rows, rows)
	})
	l.down.apply(s.y, s.up, s.tokens, h, c.Intermediate)
	l.outputNorm.addAndNormalise(s.x, s.y, h, c.Eps)
}

func (j job) attend(s *space, p []float32, hidden, dim int) {
	rows := min(queryRows, j.length-j.from)
	head := func(row, part int) gemm.View {
		return gemm.View{Data: s.qkv[row*3*hidden+part*hidden+j.head*dim:], Stride: 3 * hidden}
	}
	n := j.length
	p = p[:rows*n]
	gemm.NTView(gemm.View{Data: p, Stride: n}, head(j.start+j.from, 0), head(j.start, 1), rows, n, dim, false)
	scale := float32(1 / math.Sqrt(float64(dim)))
	for r := range rows {
		vec.Softmax(p[r*n:(r+1)*n], p[r*n:(r+1)*n], scale)
	}
	out := gemm.View{Data: s.mixed[(j.start+j.from)*hidden+j.head*dim:], Stride: hidden}
	gemm.NNView(out, gemm.View{Data: p, Stride: n}, head(j.start, 2), rows, dim, n, false)
}

// addAndNormalise sets x = norm(x + y), row by row.
func (n *norm) addAndNormalise(x, y []float32, dim int, eps float32) {
	par.For(len(x)/dim, 1+1<<13/dim, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			row := x[r*dim : (r+1)*dim]
			vec.Add(row, row, y[r*dim:(r+1)*dim])
			vec.LayerNorm(row, row, n.w, n.b, eps)
		}
	})
}

func (e *Encoder) checkSequence(s []int32) error {
	if len(s) == 0 || len(s) > e.MaxTokens() {
		return fmt.Errorf("%d tokens; 1 to %d are allowed", len(s), e.MaxTokens())
	}
	for i, id := range s {
		if id < 0 || int(id) >= e.config.Vocab {
			return fmt.Errorf("token %d is %d; the vocabulary has %d", i, id, e.config.Vocab)
		}
	}
	return nil
}
