package faiss

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"searchloop/indexer/flat"
	"searchloop/internal/fail"
	"searchloop/internal/par"
)

// Set is the shards of one inner-product index, in row order. Rows count through
// the shards, also where a shard's file counts from 0; ids of an id map are rows of
// the whole. Search is safe for concurrent use; Close must wait for it.
type Set struct {
	shards []shard
	rows   int64
	dim    int
	effort Effort
}

type shard struct {
	index
	path  string
	start int64 // first row
	shift int64 // row less id
}

// OpenSet reads the shards at paths; lists of IVF indices are mapped. effort is
// for the searches that do not say otherwise. Files must be known to be whole:
// FAISS notices one that was cut off, but trusts every number in it.
func OpenSet(paths []string, effort Effort) (*Set, error) {
	if err := Available(); err != nil {
		return nil, err
	}
	s := &Set{effort: effort}
	for _, p := range paths {
		if err := s.open(p); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	if len(s.shards) == 0 {
		return nil, fail.New(fail.BadInput, "open index", "", "no index file")
	}
	return s, nil
}

func (s *Set) open(path string) error {
	x, err := read(path, true)
	if err != nil {
		return err
	}
	sh := shard{index: x, path: path, start: s.rows, shift: s.rows}
	if x.traits().idMap {
		sh.shift = 0
	}
	if s.dim == 0 {
		s.dim = x.dim()
	}
	s.shards, s.rows = append(s.shards, sh), s.rows+x.rows()
	if x.dim() != s.dim {
		return &fail.Error{Kind: fail.BadInput, Op: "open index", Path: path, Err: fmt.Errorf("dimension %d, but %s has %d", x.dim(), s.shards[0].path, s.dim),
			Hint: "the shards come from different encoders: rebuild the index from one vectors dataset"}
	}
	if err := x.checkIDs(sh.start - sh.shift); err != nil {
		return &fail.Error{Kind: fail.BadInput, Op: "open index", Path: path, Err: err, Hint: "ids must be rows of the passages, each once"}
	}
	return s.effort.fits(path, x.traits())
}

// read reads the index at path after a look at its head. Lists that are mapped
// cannot be changed.
func read(path string, mapped bool) (index, error) {
	if err := Available(); err != nil {
		return nil, err
	}
	h, err := ReadHead(path)
	if err != nil {
		return nil, err
	}
	if h.Metric != int32(flat.InnerProduct) {
		return nil, &fail.Error{Kind: fail.BadInput, Op: "open index", Path: path, Err: fmt.Errorf("its metric is %d; only inner product (0) is searched here", h.Metric),
			Hint: "build it with METRIC_INNER_PRODUCT"}
	}
	x, err := library.read(path, mapped)
	if err != nil {
		return nil, err
	}
	if x.dim() != h.Dim || x.rows() != h.Rows {
		x.close()
		return nil, fail.New(fail.BadInput, "open index", path, "FAISS reads %d vectors of dimension %d, the header says %d of %d", x.rows(), x.dim(), h.Rows, h.Dim)
	}
	return x, nil
}

// Dim is the length of every vector.
func (s *Set) Dim() int { return s.dim }

// Rows is the number of vectors in all shards.
func (s *Set) Rows() int64 { return s.rows }

// ShardRows is the number of vectors in each shard.
func (s *Set) ShardRows() []int64 {
	var out []int64
	for _, sh := range s.shards {
		out = append(out, sh.index.rows())
	}
	return out
}

// Close frees all shards.
func (s *Set) Close() error {
	for _, sh := range s.shards {
		sh.close()
	}
	s.shards, s.rows = nil, 0
	return nil
}

// most is how many queries one call to FAISS searches: no call can be stopped.
const most = 64

// SearchRange returns for each of the len(queries)/Dim() queries up to k rows of
// the range, best first, equal scores by row. How near they come to the exact best
// depends on the kind of index and the effort. There are fewer where the lists
// looked into hold fewer. HNSW has no ranges but flat.All.
func (s *Set) SearchRange(ctx context.Context, queries []float32, k int, e Effort, among flat.Range) ([][]flat.Hit, error) {
	if len(queries)%s.dim != 0 {
		return nil, &fail.Error{Kind: fail.BadInput, Op: "search", Err: fmt.Errorf("%d numbers are not whole query vectors of dimension %d", len(queries), s.dim),
			Hint: "the queries must come from the encoder that the index was built with"}
	}
	if k < 0 {
		return nil, fail.New(fail.BadInput, "search", "", "k is %d", k)
	}
	if i := flat.NotFinite(queries); i >= 0 {
		return nil, &fail.Error{Kind: fail.BadInput, Op: "search", Row: int64(i/s.dim) + 1, Err: errNotFinite}
	}
	for _, sh := range s.shards {
		if err := e.fits(sh.path, sh.traits()); err != nil {
			return nil, err
		}
	}
	among = flat.Range{From: max(among.From, 0), To: min(among.To, s.rows)}
	out := make([][]flat.Hit, len(queries)/s.dim)
	if k == 0 || among.To <= among.From {
		return out, nil
	}
	var calls []*request
	step := min(most, (len(out)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for _, sh := range s.shards {
		for lo := 0; lo < len(out); lo += step {
			hi := min(lo+step, len(out))
			calls = append(calls, &request{shard: sh, first: lo, queries: queries[lo*s.dim : hi*s.dim]})
		}
	}
	par.For(len(calls), 1, func(lo, hi int) {
		for _, c := range calls[lo:hi] {
			if c.err = ctx.Err(); c.err == nil {
				c.err = c.search(k, e.Or(s.effort), among, s.rows)
			}
		}
	})
	for _, c := range calls {
		if c.err != nil {
			return nil, fail.Wrap(fail.BadInput, "search", c.shard.path, c.err)
		}
		for i, hits := range c.hits {
			out[c.first+i] = append(out[c.first+i], hits...)
		}
	}
	for q, hits := range out {
		slices.SortFunc(hits, func(a, b flat.Hit) int { return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Row, b.Row)) })
		out[q] = slices.Clip(hits[:min(k, len(hits))])
	}
	return out, nil
}

// request is one call to FAISS: some queries and one shard.
type request struct {
	shard   shard
	first   int // of the queries
	queries []float32
	hits    [][]flat.Hit
	err     error
}

func (r *request) search(k int, e Effort, among flat.Range, rows int64) error {
	sh := r.shard
	n := len(r.queries) / sh.dim()
	r.hits = make([][]flat.Hit, n)
	k = int(min(int64(k), sh.index.rows()))
	from, to := among.From, min(among.To, sh.start+sh.index.rows())
	if from = max(from, sh.start); k == 0 || to <= from {
		return nil
	}
	all := from == sh.start && to == sh.start+sh.index.rows()
	if from, to = from-sh.shift, to-sh.shift; all {
		from, to = 0, -1
	} else if !sh.traits().ranges {
		return &fail.Error{Kind: fail.Usage, Op: "search", Path: sh.path, Err: errors.New("this kind of index cannot be searched by a range of rows"), Hint: "use a flat or an IVF index"}
	}
	scores, ids := make([]float32, n*k), make([]int64, n*k)
	if err := sh.search(r.queries, k, e, from, to, scores, ids); err != nil {
		return err
	}
	for i, id := range ids {
		if id < 0 {
			continue
		}
		row := id + sh.shift
		if row < sh.start || row >= sh.start+sh.index.rows() {
			return &fail.Error{Kind: fail.BadInput, Op: "search", Path: sh.path, Err: fmt.Errorf("row %d of %d", row, rows), Hint: damaged}
		}
		r.hits[i/k] = append(r.hits[i/k], flat.Hit{Row: row, Score: scores[i]})
	}
	return nil
}
