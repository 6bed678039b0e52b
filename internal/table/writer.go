// Package table reads and writes Parquet files whose rows are Go structs. What
// goes in is a path or writer and a row type with parquet tags; what comes out is
// a stream of rows, or an error that names the file, the row and the column. It
// publishes no files (atomicfile and job do) and keeps no more than one row group
// in memory.
//
// A damaged file can make the Parquet library panic, or give other rows without
// an error. Every call is guarded, pages carry checksums, and ReadDataset checks
// the SHA-256 of each part before it reads it.
package table

import (
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"searchloop/internal/fail"
)

const (
	groupBytes = 32 << 20 // uncompressed bytes after which a row group ends: bounds the memory of writer and reader
	writeRows  = 64       // rows between two looks at the size
)

// Writer writes rows of T as Parquet with zstd. Equal rows give equal bytes.
// It is not safe for concurrent use. Close it to get a readable file; it does not
// close the writer below.
type Writer[T any] struct {
	w     *parquet.GenericWriter[T]
	tail  *tail
	rows  int64
	began int64 // size when the row group began
	err   error
}

// NewWriter begins a file on w. T must be a struct; parquet tags name its columns.
func NewWriter[T any](w io.Writer) *Writer[T] {
	return newWriter[T](w, &zstd.Codec{Level: zstd.SpeedDefault})
}

func newWriter[T any](w io.Writer, codec compress.Codec) *Writer[T] {
	end := &tail{w: w}
	return &Writer[T]{w: parquet.NewGenericWriter[T](end, options[T](codec)...), tail: end}
}

func options[T any](codec compress.Codec) []parquet.WriterOption {
	out := []parquet.WriterOption{
		parquet.Compression(codec),
		parquet.CreatedBy("searchloop", "1", ""),
		parquet.PageBufferSize(256 << 10),
		// The library would write the least and greatest value of each page four
		// times, whole: a file of long texts or images grows fivefold, and memory with
		// the whole file.
		parquet.DataPageStatistics(false),
	}
	schema := parquet.SchemaOf(new(T))
	for _, path := range schema.Columns() {
		if leaf, ok := schema.Lookup(path...); ok && leaf.Node.Type().Kind() == parquet.ByteArray {
			out = append(out, parquet.SkipPageBounds(path...))
		}
	}
	return out
}

// Write appends rows. It does not keep them. After an error the file is lost.
func (w *Writer[T]) Write(rows ...T) error {
	for len(rows) > 0 && w.err == nil {
		n := min(len(rows), writeRows)
		w.err = guard(fail.Bug, "write table", "", func() error {
			_, err := w.w.Write(rows[:n])
			if err == nil && w.w.Size()-w.began >= groupBytes {
				err = w.w.Flush()
				w.began = w.w.Size()
			}
			return err
		})
		if w.err == nil {
			w.rows += int64(n)
		}
		rows = rows[n:]
	}
	return w.err
}

// Close ends the file.
func (w *Writer[T]) Close() error {
	if w.err != nil {
		return w.err
	}
	w.err = guard(fail.Bug, "write table", "", func() error {
		if err := w.w.Flush(); err != nil {
			return err
		}
		w.tail.hold = true
		if err := w.w.Close(); err != nil {
			return err
		}
		return w.tail.finish()
	})
	return w.err
}

// Rows is the number of rows written.
func (w *Writer[T]) Rows() int64 { return w.rows }

// guard runs fn; an error or panic in it becomes a *fail.Error of kind k.
func guard(k fail.Kind, op, path string, fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fail.New(k, op, path, "damaged or unsupported Parquet: %v", fmt.Sprint(p))
		}
	}()
	return fail.Wrap(k, op, path, fn())
}
