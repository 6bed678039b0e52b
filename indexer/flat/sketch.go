package flat

import (
	"math"
	"slices"

	"searchloop/indexer/flat/dots"
	"searchloop/internal/fail"
)

// A sketch is an SQ8 file of a shard's vectors. An inner product taken from the
// sketch is off by no more than a bound that follows from the widths of the
// columns' ranges. So the rows that could be among the k best are known after
// one pass over a quarter of the bytes, and only they are scored exactly.

const (
	sketchQueries = 12      // more keep the cores busy enough without
	sketchMost    = 1 << 14 // candidates of a query and task beyond which all rows are scored
)

// candidates are the rows of one task that may be among a query's best.
type candidates struct {
	best  top   // the k largest approximate scores so far
	hits  []Hit // rows not excluded yet
	limit int   // of hits, before those since excluded are dropped
	worst float32
}

// offer takes in the approximate scores of consecutive rows. It reports whether
// there is room left.
func (c *candidates) offer(scores []float32, first int64, slack float32) bool {
	for i, s := range scores {
		if s < c.worst {
			continue
		}
		h := Hit{Row: first + int64(i), Score: s}
		c.best.offer(h)
		if len(c.best.heap) == c.best.k {
			c.worst = c.best.heap[0].Score - slack
		}
		if c.hits = append(c.hits, h); len(c.hits) >= c.limit {
			c.drop(c.worst)
			if c.limit = max(c.limit, 2*len(c.hits)); c.limit > sketchMost+2*c.best.k {
				return false
			}
		}
	}
	return true
}

func (c *candidates) drop(below float32) {
	c.hits = slices.DeleteFunc(c.hits, func(h Hit) bool { return h.Score < below })
}

// sketched searches by way of the sketches. It reports false, having done
// nothing, when the sketches exclude too little.
func (g *search) sketched(out [][]Hit) (bool, error) {
	tasks := g.tasks(blockOf(g.set.sketches[0].Header))
	found := make([]candidates, g.n*len(tasks))
	full := make([]bool, len(tasks))
	slacks := make([][]float32, len(g.set.files))
	for i, f := range g.set.sketches {
		slacks[i] = f.slack(g.queries)
	}
	err := each(tasks, func(i int) error {
		t := tasks[i]
		f, start := g.set.sketches[t.shard], g.set.starts[t.shard]
		mine := func(q int) *candidates { return &found[q*len(tasks)+i] }
		for q := range g.n {
			*mine(q) = candidates{best: top{k: g.k}, limit: 4*g.k + 1024, worst: float32(math.Inf(-1))}
		}
		return g.blocks(f, t, g.scorer(f, t.hi-t.lo), func(lo int64, scores []float32, width int) error {
			for q := range g.n {
				full[i] = full[i] || !mine(q).offer(scores[q*width:(q+1)*width], start+lo, 2*slacks[t.shard][q])
			}
			return nil
		})
	})
	if err != nil || slices.Contains(full, true) {
		return false, err
	}
	for q := range out {
		hits, err := g.rescore(q, found[q*len(tasks):(q+1)*len(tasks)], tasks, slacks)
		if err != nil {
			return false, err
		}
		out[q] = hits
	}
	return true, nil
}

// rescore scores one query's candidates exactly.
func (g *search) rescore(q int, parts []candidates, tasks []task, slacks [][]float32) ([]Hit, error) {
	// The k-th largest lower bound: at least k rows score that or more.
	var lower top
	lower.k = g.k
	for i := range parts {
		for _, h := range parts[i].best.heap {
			lower.offer(Hit{Row: h.Row, Score: h.Score - slacks[tasks[i].shard][q]})
		}
	}
	best := top{k: g.k}
	job := dots.Job{Kind: dots.F32, Queries: g.queries[q*g.set.dim : (q+1)*g.set.dim], Dim: g.set.dim}
	for i := range parts {
		f, start := g.set.files[tasks[i].shard], g.set.starts[tasks[i].shard]
		parts[i].drop(lower.heap[0].Score - slacks[tasks[i].shard][q])
		for _, h := range parts[i].hits {
			job.Rows = f.Stored(h.Row-start, h.Row-start+1)
			var score [1]float32
			job.Scores(score[:], 1)
			if score[0] != score[0] {
				return nil, &fail.Error{Kind: fail.BadInput, Op: "search", Path: f.Path, Row: h.Row - start + 1, Err: errNotFinite, Hint: "rebuild the index; the index job refuses such vectors"}
			}
			best.offer(Hit{Row: h.Row, Score: score[0]})
		}
	}
	return merge([]top{best}, g.k), nil
}

// slack bounds, for each query, how far a score from the sketch can be from the
// exact score: half a step in every column, and the rounding of both sums.
func (h *Header) slack(queries []float32) []float32 {
	out := make([]float32, len(queries)/h.Dim)
	rounding := float64(h.Dim/dots.Lanes+dots.Lanes+16) / (1 << 23)
	for q := range out {
		var half, size float64
		for c, x := range queries[q*h.Dim : (q+1)*h.Dim] {
			low, step, x := float64(h.Trained[c]), float64(h.Trained[h.Dim+c]), math.Abs(float64(x))
			half += x * step * (0.5 / 255)
			size += x * (max(math.Abs(low), math.Abs(low+step)) + 2*step)
		}
		out[q] = float32(half*1.001 + size*rounding)
	}
	return out
}
