package flat

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"unsafe"

	"searchloop/indexer/flat/dots"
	"searchloop/internal/fail"
	"searchloop/internal/par"
)

const (
	blockBytes = 128 << 10 // stored vectors scored at a time: they and the next stay in the second-level cache
	queryGroup = 256       // queries scored at a time
	// prepareRows is the number of rows from which preparing the queries pays.
	prepareRows = 200
)

// search is a group of queries on its way over all shards.
type search struct {
	set     *Set
	ctx     context.Context
	queries []float32
	n, k    int
	among   Range
}

// task is a run of rows of one shard.
type task struct {
	shard  int
	lo, hi int64 // rows of the file
}

// tasks cuts the range into about four pieces a core, none so small that another
// core would not pay.
func (g *search) tasks(block int64) []task {
	const minWork = 1 << 18 // multiply-adds
	pieces := int64(4 * runtime.GOMAXPROCS(0))
	size := max((g.among.To-g.among.From+pieces-1)/pieces, minWork/int64(g.set.dim*g.n), 1)
	size = (size + block - 1) / block * block
	var out []task
	for i, f := range g.set.files {
		from, to := max(g.among.From-g.set.starts[i], 0), min(g.among.To-g.set.starts[i], f.Rows)
		for lo := from; lo < to; lo += size {
			out = append(out, task{shard: i, lo: lo, hi: min(lo+size, to)})
		}
	}
	return out
}

// blockOf is the rows of a block: whole panels of package dots.
func blockOf(h Header) int64 { return max(16, blockBytes/h.RowBytes()/16*16) }

func (g *search) run(out [][]Hit) error {
	if g.set.sketches != nil && g.n <= sketchQueries {
		done, err := g.sketched(out)
		if done || err != nil {
			return err
		}
	}
	tasks := g.tasks(blockOf(g.set.files[0].Header))
	tops := make([]top, g.n*len(tasks)) // query-major, so that a query's parts lie together
	err := each(tasks, func(i int) error {
		for q := range g.n {
			tops[q*len(tasks)+i].k = g.k
		}
		return g.scan(tasks[i], func(q int) *top { return &tops[q*len(tasks)+i] })
	})
	if err != nil {
		return err
	}
	for q := range out {
		out[q] = merge(tops[q*len(tasks):(q+1)*len(tasks)], g.k)
		if g.set.files[0].Metric == L2 {
			for i := range out[q] {
				out[q][i].Score = -out[q][i].Score
			}
		}
	}
	return nil
}

// each does every task and returns the first error in row order, whoever was
// first in time.
func each(tasks []task, do func(i int) error) error {
	errs := make([]error, len(tasks))
	par.For(len(tasks), 1, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			errs[i] = do(i)
		}
	})
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// scan scores the rows of one task against all queries, block by block. Distances
// are offered with their sign changed, so that larger is better throughout.
func (g *search) scan(t task, of func(q int) *top) error {
	f := g.set.files[t.shard]
	start := g.set.starts[t.shard]
	s := g.scorer(f, t.hi-t.lo)
	return g.blocks(f, t, s, func(lo int64, scores []float32, width int) error {
		if f.Metric == L2 {
			for i := range scores {
				scores[i] = -scores[i]
			}
		}
		for q := range g.n {
			if s.above != nil && !s.above[q] {
				continue
			}
			if i := of(q).scores(scores[q*width:(q+1)*width], start+lo); i >= 0 {
				return &fail.Error{Kind: fail.BadInput, Op: "search", Path: f.Path, Row: lo + int64(i) + 1,
					Err: errors.New("the score is not a number: the vector holds NaN or an infinity"), Hint: "rebuild the index; the index job refuses such vectors"}
			}
			if s.above != nil {
				s.floor[q] = of(q).floor()
			}
		}
		return nil
	})
}

var buffers = sync.Pool{New: func() any { return new([]float32) }}

// blocks scores the rows of one task of f, block by block, and hands on each
// block's first row and scores, [n, width].
func (g *search) blocks(f *File, t task, s scorer, then func(lo int64, scores []float32, width int) error) error {
	block := blockOf(f.Header)
	buf := buffers.Get().(*[]float32)
	defer buffers.Put(buf)
	if need := g.n * int(block); cap(*buf) < need {
		*buf = make([]float32, need)
	}
	for lo := t.lo; lo < t.hi; lo += block {
		if err := g.ctx.Err(); err != nil {
			return fail.Wrap(fail.Interrupted, "search", "", err)
		}
		hi := min(lo+block, t.hi)
		width := int(hi - lo)
		scores := (*buf)[:g.n*width]
		s.score(scores, f.Stored(lo, hi), f.Stored(hi, min(hi+block, f.Rows)), width)
		if err := then(lo, scores, width); err != nil {
			return err
		}
	}
	return nil
}

// scorer is how blocks of a file are scored. It is for one goroutine.
type scorer struct {
	score func(scores []float32, rows, next []byte, width int)
	// Where above is there, scoring leaves in it which queries have scores that are not
	// below floor, or might have.
	floor []float32
	above []bool
}

// scorer is how f's blocks, of rows in all, are scored.
func (g *search) scorer(f *File, rows int64) scorer {
	job := dots.Job{Kind: f.Format.kind(), L2: f.Metric == L2, Queries: g.queries, Dim: f.Dim}
	if f.Format != SQ8 {
		if rows >= prepareRows {
			job.Prepare()
		}
		if f.Metric == InnerProduct {
			job.Floor, job.Above = make([]float32, g.n), make([]bool, g.n)
			for q := range job.Floor {
				job.Floor[q] = float32(math.Inf(-1))
			}
		}
		return scorer{floor: job.Floor, above: job.Above, score: func(scores []float32, rows, next []byte, width int) {
			job.Rows, job.Next = rows, next
			job.Scores(scores, width)
		}}
	}
	if f.Metric == L2 {
		plain := make([]float32, int(blockOf(f.Header))*f.Dim)
		job.Kind = dots.F32
		return scorer{score: func(scores []float32, rows, _ []byte, width int) {
			f.decode(plain[:width*f.Dim], rows)
			job.Rows = unsafe.Slice((*byte)(unsafe.Pointer(&plain[0])), 4*width*f.Dim)
			job.Scores(scores, width)
		}}
	}
	var base []float32
	job.Queries, base = f.Fold(g.queries)
	return scorer{score: func(scores []float32, rows, next []byte, width int) {
		job.Rows, job.Next = rows, next
		job.Scores(scores, width)
		for q, b := range base {
			for i := range width {
				scores[q*width+i] += b
			}
		}
	}}
}

// Fold takes the decoding of SQ8 into the queries: the inner product of query q
// with a row is base[q] + the inner product of folded query q with the row's codes.
func (h *Header) Fold(queries []float32) (folded, base []float32) {
	folded = make([]float32, len(queries))
	base = make([]float32, len(queries)/h.Dim)
	low, step := h.Trained[:h.Dim], h.Trained[h.Dim:]
	for q := range base {
		var sum float64
		for c, x := range queries[q*h.Dim : (q+1)*h.Dim] {
			sum += float64(x) * (float64(low[c]) + float64(step[c])*0.5/255)
			folded[q*h.Dim+c] = float32(float64(x) * float64(step[c]) / 255)
		}
		base[q] = float32(sum)
	}
	return folded, base
}
