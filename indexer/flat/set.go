package flat

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sort"
	"sync"

	"searchloop/internal/fail"
	"searchloop/internal/gemm"
	"searchloop/internal/par"
)

// Set is the shards of one index, in row order: row numbers run through all of
// them. Search is safe for concurrent use; Close must wait for searches to end.
type Set struct {
	files  []*File
	starts []int64 // first row of each file
	rows   int64
	dim    int
}

// OpenSet maps the shards at paths. All must have one dimension.
func OpenSet(paths []string) (*Set, error) {
	if len(paths) == 0 {
		return nil, fail.New(fail.BadInput, "open index", "", "no index file")
	}
	s := new(Set)
	for _, p := range paths {
		f, err := Open(p)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		if len(s.files) > 0 && f.Dim != s.dim {
			err := &fail.Error{Kind: fail.BadInput, Op: "open index", Path: p, Err: fmt.Errorf("dimension %d, but %s has %d", f.Dim, paths[0], s.dim),
				Hint: "the shards come from different encoders: rebuild the index from one vectors dataset"}
			return nil, errors.Join(err, f.Close(), s.Close())
		}
		s.dim = f.Dim
		s.files, s.starts = append(s.files, f), append(s.starts, s.rows)
		s.rows += f.Rows
	}
	return s, nil
}

// Close unmaps all shards.
func (s *Set) Close() error {
	var err error
	for _, f := range s.files {
		err = errors.Join(err, f.Close())
	}
	s.files, s.rows = nil, 0
	return err
}

// Dim is the length of every vector.
func (s *Set) Dim() int { return s.dim }

// Rows is the number of vectors in all shards.
func (s *Set) Rows() int64 { return s.rows }

// Files is the shards in row order, for those who check them.
func (s *Set) Files() []*File { return s.files }

// Row is vector i, a view: read only, valid until Close.
func (s *Set) Row(i int64) []float32 {
	n := sort.Search(len(s.starts), func(j int) bool { return s.starts[j] > i }) - 1
	return s.files[n].Row(i - s.starts[n])
}

// task is a run of rows of one shard.
type task struct {
	file   *File
	lo, hi int64 // rows of the file
	start  int64 // row number of the file's first row
}

const (
	blockFloats = 64 << 10 // vectors scored at a time: 256 kB, so that they stay in the second-level cache
	queryGroup  = 256      // queries scored at a time
)

func (s *Set) block() int64 { return int64(max(16, blockFloats/s.dim/16*16)) }

// tasks cuts the shards into about four pieces a core, none below minRows
// unless the shard ends.
func (s *Set) tasks(queries int) []task {
	const minWork = 1 << 18 // multiply-adds below which a second core does not pay
	pieces := int64(4 * runtime.GOMAXPROCS(0))
	size := max((s.rows+pieces-1)/pieces, minWork/int64(s.dim*max(queries, 1)), 1)
	block := s.block()
	size = (size + block - 1) / block * block
	var out []task
	for i, f := range s.files {
		for lo := int64(0); lo < f.Rows; lo += size {
			out = append(out, task{file: f, lo: lo, hi: min(lo+size, f.Rows), start: s.starts[i]})
		}
	}
	return out
}

// Search returns for each of the len(queries)/Dim() queries its min(k, Rows())
// best rows, best first, equal scores by row. The result is exact: every row is
// scored, in float32, and a query's scores do not depend on what is searched
// beside it, nor on the number of shards or cores.
func (s *Set) Search(ctx context.Context, queries []float32, k int) ([][]Hit, error) {
	if len(queries)%s.dim != 0 {
		return nil, &fail.Error{Kind: fail.BadInput, Op: "search", Err: fmt.Errorf("%d numbers are not whole query vectors of dimension %d", len(queries), s.dim),
			Hint: "the queries must come from the encoder that the index was built with"}
	}
	if k < 0 {
		return nil, fail.New(fail.BadInput, "search", "", "k is %d", k)
	}
	if i := NotFinite(queries); i >= 0 {
		return nil, &fail.Error{Kind: fail.BadInput, Op: "search", Row: int64(i/s.dim) + 1, Err: errNotFinite}
	}
	k = int(min(int64(k), s.rows))
	out := make([][]Hit, len(queries)/s.dim)
	for lo := 0; lo < len(out); lo += queryGroup {
		hi := min(lo+queryGroup, len(out))
		if err := s.group(ctx, queries[lo*s.dim:hi*s.dim], k, out[lo:hi]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// group searches up to queryGroup queries over all shards at once.
func (s *Set) group(ctx context.Context, queries []float32, k int, out [][]Hit) error {
	if k == 0 {
		return nil
	}
	tasks := s.tasks(len(out))
	tops := make([]top, len(out)*len(tasks)) // query-major, so that a query's parts lie together
	errs := make([]error, len(tasks))
	par.For(len(tasks), 1, func(lo, hi int) {
		for t := lo; t < hi; t++ {
			for q := range out {
				tops[q*len(tasks)+t].k = k
			}
			errs[t] = s.scan(ctx, tasks[t], queries, func(q int) *top { return &tops[q*len(tasks)+t] })
		}
	})
	for _, err := range errs { // the first in row order, whoever was first in time
		if err != nil {
			return err
		}
	}
	for q := range out {
		out[q] = merge(tops[q*len(tasks):(q+1)*len(tasks)], k)
	}
	return nil
}

var scoreBuffers = sync.Pool{New: func() any { return new([]float32) }}

// scan scores the rows of one task against all queries, block by block.
func (s *Set) scan(ctx context.Context, t task, queries []float32, of func(q int) *top) error {
	n, block := len(queries)/s.dim, s.block()
	buf := scoreBuffers.Get().(*[]float32)
	defer scoreBuffers.Put(buf)
	if need := n * int(block); cap(*buf) < need {
		*buf = make([]float32, need)
	}
	for lo := t.lo; lo < t.hi; lo += block {
		if err := ctx.Err(); err != nil {
			return fail.Wrap(fail.Interrupted, "search", "", err)
		}
		hi := min(lo+block, t.hi)
		width := int(hi - lo)
		scores := (*buf)[:n*width]
		gemm.NT(scores, queries, t.file.rows(lo, hi), n, width, s.dim, false)
		for q := range n {
			if i := of(q).scores(scores[q*width:(q+1)*width], t.start+lo); i >= 0 {
				return &fail.Error{Kind: fail.BadInput, Op: "search", Path: t.file.Path, Row: lo + int64(i) + 1,
					Err: errors.New("the score is not a number: the vector holds NaN or an infinity"), Hint: "rebuild the index; the index job refuses such vectors"}
			}
		}
	}
	return nil
}
