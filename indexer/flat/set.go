package flat

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sort"

	"searchloop/internal/fail"
)

// Set is the shards of one index, in row order: row numbers run through all of
// them. Search is safe for concurrent use; Close must wait for searches to end.
type Set struct {
	files    []*File
	sketches []*File // of the files, by place; nil when there are none
	starts   []int64 // first row of each file
	rows     int64
	dim      int
}

// OpenSet maps the shards at paths. All must have one dimension, metric and format.
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
		if len(s.files) > 0 {
			if diff := differ(f, s.files[0]); diff != "" {
				err := &fail.Error{Kind: fail.BadInput, Op: "open index", Path: p, Err: errors.New(diff),
					Hint: "the shards come from different encoders: rebuild the index from one vectors dataset"}
				return nil, errors.Join(err, f.Close(), s.Close())
			}
		}
		s.dim = f.Dim
		s.files, s.starts = append(s.files, f), append(s.starts, s.rows)
		s.rows += f.Rows
	}
	return s, nil
}

func differ(f, first *File) string {
	switch {
	case f.Dim != first.Dim:
		return fmt.Sprintf("dimension %d, but %s has %d", f.Dim, first.Path, first.Dim)
	case f.Metric != first.Metric:
		return fmt.Sprintf("metric %v, but %s has %v", f.Metric, first.Path, first.Metric)
	case f.Format != first.Format:
		return fmt.Sprintf("format %v, but %s has %v", f.Format, first.Path, first.Format)
	}
	return ""
}

// Sketch opens SQ8 files of the same vectors, one for each shard. Searches of few
// queries then read them, a quarter of the bytes, and look up in the shards only
// rows that could be among the best: hits and scores stay the same to the bit.
// The sketches must have been made from these very vectors.
func (s *Set) Sketch(paths []string) error {
	var all []*File
	undo := func(err error) error {
		for _, f := range all {
			err = errors.Join(err, f.Close())
		}
		return err
	}
	if len(paths) != len(s.files) || s.files[0].Metric != InnerProduct || s.files[0].Format != Flat {
		return fail.New(fail.BadInput, "open index", "", "%d sketches for %d shards of %v %v", len(paths), len(s.files), s.files[0].Metric, s.files[0].Format)
	}
	for i, p := range paths {
		f, err := Open(p)
		if err != nil {
			return undo(err)
		}
		all = append(all, f)
		if of := s.files[i]; f.Format != SQ8 || f.Metric != InnerProduct || f.Dim != of.Dim || f.Rows != of.Rows {
			return undo(&fail.Error{Kind: fail.BadInput, Op: "open index", Path: p, Err: fmt.Errorf("%d vectors of dimension %d, %v %v: no sketch of %s", f.Rows, f.Dim, f.Metric, f.Format, of.Path),
				Hint: "run the index job again"})
		}
	}
	s.sketches = all
	return nil
}

// Close unmaps all shards.
func (s *Set) Close() error {
	var err error
	for _, f := range append(s.files, s.sketches...) {
		err = errors.Join(err, f.Close())
	}
	s.files, s.sketches, s.rows = nil, nil, 0
	return err
}

// Dim is the length of every vector.
func (s *Set) Dim() int { return s.dim }

// Rows is the number of vectors in all shards.
func (s *Set) Rows() int64 { return s.rows }

// Files is the shards in row order, for those who check them.
func (s *Set) Files() []*File { return s.files }

// Row is vector i, read only, valid until Close.
func (s *Set) Row(i int64) []float32 {
	n := s.shardOf(i)
	return s.files[n].Row(i - s.starts[n])
}

func (s *Set) shardOf(row int64) int {
	return sort.Search(len(s.starts), func(j int) bool { return s.starts[j] > row }) - 1
}

// Range is rows From to To-1.
type Range struct{ From, To int64 }

// All is the range of every row.
var All = Range{0, math.MaxInt64}

// Search returns for each of the len(queries)/Dim() queries its min(k, Rows())
// best rows, best first, equal scores by row. The result is exact: every row
// counts, scores are summed in float32, and a query's scores do not depend on
// what is searched beside it, nor on the number of shards or cores.
func (s *Set) Search(ctx context.Context, queries []float32, k int) ([][]Hit, error) {
	return s.SearchRange(ctx, queries, k, All)
}

// SearchRange is Search among the rows of a range only.
func (s *Set) SearchRange(ctx context.Context, queries []float32, k int, among Range) ([][]Hit, error) {
	k, among, err := s.Admit(queries, k, among)
	if err != nil {
		return nil, err
	}
	out := make([][]Hit, len(queries)/s.dim)
	if k == 0 {
		return out, nil
	}
	for lo := 0; lo < len(out); lo += queryGroup {
		hi := min(lo+queryGroup, len(out))
		g := search{set: s, ctx: ctx, queries: queries[lo*s.dim : hi*s.dim], n: hi - lo, k: k, among: among}
		if err := g.run(out[lo:hi]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Admit checks the arguments of a search and cuts the range to the rows there are,
// and k to the rows of the range.
func (s *Set) Admit(queries []float32, k int, among Range) (int, Range, error) {
	if len(queries)%s.dim != 0 {
		return 0, among, &fail.Error{Kind: fail.BadInput, Op: "search", Err: fmt.Errorf("%d numbers are not whole query vectors of dimension %d", len(queries), s.dim),
			Hint: "the queries must come from the encoder that the index was built with"}
	}
	if k < 0 {
		return 0, among, fail.New(fail.BadInput, "search", "", "k is %d", k)
	}
	if i := NotFinite(queries); i >= 0 {
		return 0, among, &fail.Error{Kind: fail.BadInput, Op: "search", Row: int64(i/s.dim) + 1, Err: errNotFinite}
	}
	among = Range{max(among.From, 0), min(among.To, s.rows)}
	return int(max(min(int64(k), among.To-among.From), 0)), among, nil
}
