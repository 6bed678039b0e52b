// Package passages reads the rows of a passages dataset, in order or by number.
// Row n of the dataset is vector n of an index built from it. It writes nothing;
// package corpus does. See docs/passages.md for the columns.
package passages

import (
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"sort"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/table"
)

// Schema and Version of the dataset, as its manifest names them.
const (
	Schema  = "passages"
	Version = 1
)

// memoryLimit is the size of the dataset's files up to which At keeps all rows
// in memory; above it rows are read from the files when they are asked for.
const memoryLimit = 128 << 20

// Set is an open dataset. Its methods are safe for concurrent use.
type Set struct {
	Dir    string
	parts  []part
	rows   int64
	bytes  int64
	digest string
	all    []corpus.Passage // when small
}

type part struct {
	manifest.Part
	path  string
	start int64 // first row
	file  *file // opened by OpenRandom for large sets
}

// Open reads the manifest of the dataset at dir. Rows are read by Range.
func Open(dir string) (*Set, error) {
	m, err := manifest.Open(dir)
	if err != nil {
		return nil, fail.WithHint(fail.Wrap(fail.BadInput, "open passages", dir, err), "make it with the prep job")
	}
	if err := m.Require(dir, Schema, Version); err != nil {
		return nil, fail.WithHint(err, "name the folder that prep wrote passages to")
	}
	s := &Set{Dir: dir, digest: m.Digest()}
	for _, p := range m.Data() {
		s.parts = append(s.parts, part{Part: p, path: filepath.Join(dir, p.Name), start: s.rows})
		s.rows += p.Rows
		s.bytes += p.Bytes
	}
	return s, nil
}

// Rows is the number of passages.
func (s *Set) Rows() int64 { return s.rows }

// Digest identifies the dataset's content.
func (s *Set) Digest() string { return s.digest }

// Range yields rows lo to hi-1 in order. It ends after the first error. Parts
// that hold none of them are not opened; the others are verified first.
func (s *Set) Range(lo, hi int64) iter.Seq2[corpus.Passage, error] {
	return read[corpus.Passage](s, lo, hi)
}

// ID is the column id of a passage.
type ID struct {
	ID string `parquet:"id"`
}

// IDs is Range for the ids alone.
func (s *Set) IDs(lo, hi int64) iter.Seq2[ID, error] { return read[ID](s, lo, hi) }

func read[T any](s *Set, lo, hi int64) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for _, p := range s.parts {
			if p.start+p.Rows <= lo || p.start >= hi {
				continue
			}
			if err := p.Verify(s.Dir); err != nil {
				yield(none, err)
				return
			}
			row := p.start
			for v, err := range table.Read[T](p.path) {
				if err == nil && row >= p.start+p.Rows {
					err = s.miscount(p)
				}
				if err != nil {
					yield(none, err)
					return
				}
				if row >= hi {
					return
				}
				if row >= lo && !yield(v, nil) {
					return
				}
				row++
			}
			if row < min(hi, p.start+p.Rows) {
				yield(none, s.miscount(p))
				return
			}
		}
	}
}

func (s *Set) miscount(p part) error {
	return &fail.Error{Kind: fail.BadInput, Op: "read passages", Path: p.path, Err: fmt.Errorf("not the %d rows that the manifest says", p.Rows),
		Hint: "the file was changed after it was made: run prep again"}
}

// OpenRandom opens the dataset for At: small ones are read into memory, of large
// ones the files are opened.
func OpenRandom(dir string) (*Set, error) {
	s, err := Open(dir)
	if err != nil {
		return nil, err
	}
	return s, s.random(memoryLimit)
}

func (s *Set) random(limit int64) error {
	if s.bytes <= limit {
		all := make([]corpus.Passage, 0, s.rows)
		for p, err := range s.Range(0, s.rows) {
			if err != nil {
				return err
			}
			all = append(all, p)
		}
		s.all = all
		return nil
	}
	for i := range s.parts {
		f, err := openFile(s.parts[i].path, s.parts[i].Rows)
		if err != nil {
			return errors.Join(err, s.Close())
		}
		s.parts[i].file = f
	}
	return nil
}

// At is passage row, of a set from OpenRandom. Row counts from 0.
func (s *Set) At(row int64) (corpus.Passage, error) {
	switch {
	case row < 0 || row >= s.rows:
		return corpus.Passage{}, fail.New(fail.Bug, "read passage", s.Dir, "row %d of %d", row, s.rows)
	case s.all != nil:
		return s.all[row], nil
	}
	i := sort.Search(len(s.parts), func(i int) bool { return s.parts[i].start > row }) - 1
	return s.parts[i].file.at(row - s.parts[i].start)
}

// Close closes the files that OpenRandom opened.
func (s *Set) Close() error {
	var err error
	for i := range s.parts {
		if f := s.parts[i].file; f != nil {
			err = errors.Join(err, f.close())
			s.parts[i].file = nil
		}
	}
	return err
}
