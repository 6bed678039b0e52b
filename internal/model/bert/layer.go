package bert

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"searchloop/internal/fail"
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
func (l *layer) forward(s *space, e *Encoder) {
	c := &e.config
	h := c.Hidden
	l.qkv.apply(s.qkv, s.x, s.tokens, nil)
	if c.rotary() {
		e.turns.turn(s, c)
	}
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
	l.out.addAndNormalise(s.x, s.y, s.mixed, s.tokens, l.attentionNorm, c.Eps)
	l.up.apply(s.up, s.x, s.tokens, activations[c.Act])
	l.down.addAndNormalise(s.x, s.y, s.up, s.tokens, l.outputNorm, c.Eps)
}

// apply sets y = act(x·wᵀ + b) for rows of x; no act leaves the sum.
func (l *linear) apply(y, x []float32, rows int, act func(dst, x []float32)) {
	l.w.NT(y, x, rows, false)
	out := len(l.b)
	par.For(rows, 1+1<<13/out, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			row := y[r*out : (r+1)*out]
			if vec.Add(row, row, l.b); act != nil {
				act(row, row)
			}
		}
	})
}

// addAndNormalise sets x = norm(x + y), y = in·wᵀ + b, row by row.
func (l *linear) addAndNormalise(x, y, in []float32, rows int, n norm, eps float32) {
	l.w.NT(y, in, rows, false)
	out := len(l.b)
	par.For(rows, 1+1<<13/out, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			row, add := x[r*out:(r+1)*out], y[r*out:(r+1)*out]
			vec.Add(add, add, l.b)
			vec.Add(row, row, add)
			vec.LayerNorm(row, row, n.w, n.b, eps)
		}
	})
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

// check refuses sequences that Encode does not take.
func (e *stem) check(seqs [][]int32) error {
	for i, s := range seqs {
		if err := e.checkSequence(s); err != nil {
			return &fail.Error{Kind: fail.BadInput, Op: "encode", Row: int64(i + 1), Err: err}
		}
	}
	return nil
}

func (e *stem) checkSequence(s []int32) error {
	if len(s) == 0 || len(s) > e.MaxTokens() {
		return fmt.Errorf("%d tokens; 1 to %d are allowed", len(s), e.MaxTokens())
	}
	if pad := int32(e.config.Pad); e.config.rotary() && !slices.ContainsFunc(s, func(id int32) bool { return id != pad }) {
		return errors.New("nothing but padding tokens")
	}
	for i, id := range s {
		if id < 0 || int(id) >= e.config.Vocab {
			return fmt.Errorf("token %d is %d; the vocabulary has %d", i, id, e.config.Vocab)
		}
	}
	return nil
}
