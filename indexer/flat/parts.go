package flat

import (
	"fmt"
	"io"
	"slices"

	"searchloop/internal/fail"
)

// copyBytes is how much of a file is copied at a time.
const copyBytes = 4 << 20

// Cut writes rows lo to hi-1 of the file as a file of its own.
func (f *File) Cut(w io.Writer, lo, hi int64) error {
	h := f.Header
	if h.Rows = hi - lo; lo < 0 || lo > hi || hi > f.Rows {
		return fail.New(fail.Bug, "cut index", f.Path, "rows %d to %d of %d", lo, hi, f.Rows)
	}
	if _, err := w.Write(h.bytes()); err != nil {
		return fail.Wrap(fail.Disk, "cut index", f.Path, err)
	}
	return f.copyRows(w, lo, hi)
}

func (f *File) copyRows(w io.Writer, lo, hi int64) error {
	step := max(1, copyBytes/f.RowBytes())
	for ; lo < hi; lo += step {
		if _, err := w.Write(f.Stored(lo, min(lo+step, hi))); err != nil {
			return fail.Wrap(fail.Disk, "copy index", f.Path, err)
		}
	}
	return nil
}

// Merge writes the rows of all shards, in their order, as one file. Vectors are
// copied, not scored or rounded anew. SQ8 shards must have been trained alike:
// their bytes mean nothing under other ranges.
func (s *Set) Merge(w io.Writer) error {
	h := s.files[0].Header
	for _, f := range s.files[1:] {
		if !slices.Equal(f.Trained, h.Trained) {
			return &fail.Error{Kind: fail.BadInput, Op: "merge index", Path: f.Path, Err: fmt.Errorf("trained to other ranges than %s", s.files[0].Path),
				Hint: "merge the float32 files and quantise the result"}
		}
	}
	h.Rows = s.rows
	if _, err := w.Write(h.bytes()); err != nil {
		return fail.Wrap(fail.Disk, "merge index", "", err)
	}
	for _, f := range s.files {
		if err := f.copyRows(w, 0, f.Rows); err != nil {
			return err
		}
	}
	return nil
}
