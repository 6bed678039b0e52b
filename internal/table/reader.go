package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	"github.com/parquet-go/parquet-go"

	"searchloop/internal/fail"
	"searchloop/internal/manifest"
)

const readRows = 32 // rows decoded at a time: some hold whole images

// Read streams the rows of a Parquet file. The sequence ends after the first
// error. Every column of T that is not optional must be in the file with the same
// physical type (integers and floats may be narrower); other columns are ignored.
// An optional column that is absent reads as nil, or, inside a list, as a pointer
// to the empty value. Rows belong to the caller.
func Read[T any](path string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		f, err := open(path)
		if err != nil {
			yield(zero, err)
			return
		}
		defer f.Close()
		if err := checkColumns[T](f); err != nil {
			yield(zero, err)
			return
		}
		row := int64(0)
		for _, g := range f.RowGroups() {
			more, err := readGroup(f.path, g, &row, yield)
			if err != nil {
				yield(zero, err)
			}
			if err != nil || !more {
				return
			}
		}
	}
}

// readGroup yields the rows of one row group and counts them in row.
func readGroup[T any](path string, g parquet.RowGroup, row *int64, yield func(T, error) bool) (more bool, err error) {
	var r *parquet.GenericReader[T]
	if err := guard(fail.BadInput, "read table", path, func() error {
		r = parquet.NewGenericRowGroupReader[T](g)
		return nil
	}); err != nil {
		return false, err
	}
	defer guard(fail.BadInput, "read table", path, func() error { return r.Close() })
	left := g.NumRows()
	var batch [readRows]T
	for left > 0 {
		clear(batch[:]) // the reader would otherwise write into slices that the caller keeps
		n := 0
		err := guard(fail.BadInput, "read table", path, func() (err error) {
			n, err = r.Read(batch[:min(left, readRows)])
			if n > 0 && errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		})
		if err == nil && n == 0 {
			err = fail.New(fail.BadInput, "read table", path, "no rows where %d more should be", left)
		}
		if err != nil {
			if e := (*fail.Error)(nil); errors.As(err, &e) {
				e.Row = *row + 1
			}
			return false, err
		}
		left -= int64(n)
		for _, t := range batch[:n] {
			*row++
			if !yield(t, nil) {
				return false, nil
			}
		}
	}
	return true, nil
}

// ReadAll reads all rows of a file into memory.
func ReadAll[T any](path string) ([]T, error) {
	var rows []T
	for row, err := range Read[T](path) {
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// Rows is the number of rows that a file says it has.
func Rows(path string) (int64, error) {
	f, err := open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.NumRows(), nil
}

// ReadDataset streams the rows of a finished dataset, all parts in order. Each
// part's SHA-256 is checked before its first row is given out, and its row count
// after its last.
func ReadDataset[T any](dir string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		m, err := manifest.Open(dir)
		if err != nil {
			yield(zero, err)
			return
		}
		if filepath.Base(dir) == manifest.File {
			dir = filepath.Dir(dir)
		}
		for _, p := range m.Data() {
			path := filepath.Join(dir, filepath.FromSlash(p.Name))
			if filepath.Ext(path) != ".parquet" {
				yield(zero, fail.New(fail.BadInput, "read dataset", path, "a %s dataset is no Parquet", m.Schema))
				return
			}
			if err := p.Verify(dir); err != nil {
				yield(zero, err)
				return
			}
			rows := int64(0)
			for t, err := range Read[T](path) {
				if rows++; !yield(t, err) || err != nil {
					return
				}
			}
			if rows != p.Rows {
				yield(zero, fail.New(fail.BadInput, "read dataset", path, "%d rows, the manifest says %d", rows, p.Rows))
				return
			}
		}
	}
}

// file is an open Parquet file.
type file struct {
	*parquet.File
	f    *os.File
	path string
}

func (f *file) Close() error { return f.f.Close() }

// open reads the footer. Only this way is safe on a file that may be damaged.
func open(path string) (*file, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, "open table", path, err)
	}
	out := &file{f: f, path: path}
	err = guard(fail.BadInput, "open table", path, func() error {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if info.IsDir() {
			return errors.New("it is a folder, not a Parquet file")
		}
		if err := checkEnd(f, info.Size()); err != nil {
			return err
		}
		options := []parquet.FileOption{parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.ReadBufferSize(64 << 10)}
		if out.File, err = parquet.OpenFile(f, info.Size(), options...); err != nil {
			return err
		}
		if schema, changed := own(out.File.Schema()); changed {
			out.File, err = parquet.OpenFile(f, info.Size(), append(options, parquet.FileSchema(schema))...)
		}
		return err
	})
	if err != nil {
		f.Close()
		return nil, fail.WithHint(err, "the file is truncated, damaged or no Parquet")
	}
	return out, nil
}

const magic = "PAR1"

// checkEnd refuses a file whose footer cannot be where its last bytes say, before
// the library reserves memory for it.
func checkEnd(f io.ReaderAt, size int64) error {
	if size < 12 {
		return errors.New("too short for a Parquet file")
	}
	var end [8]byte
	if _, err := f.ReadAt(end[:], size-8); err != nil {
		return err
	}
	if string(end[4:]) != magic {
		return errors.New("no Parquet footer at its end")
	}
	if n := int64(binary.LittleEndian.Uint32(end[:])); n > size-12 {
		return fmt.Errorf("a footer of %d bytes in a file of %d", n, size)
	}
	return nil
}
