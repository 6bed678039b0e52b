package record

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"searchloop/internal/fail"
)

var (
	arrowFile   = []byte("ARROW1")
	arrowStream = []byte{0xff, 0xff, 0xff, 0xff}
)

// IsArrow tells by a file's first bytes whether it is Arrow IPC, a stream, as
// Hugging Face datasets writes it, or a file.
func IsArrow(head []byte) bool {
	return bytes.HasPrefix(head, arrowFile) || bytes.HasPrefix(head, arrowStream)
}

// Arrow goes through the rows of an Arrow IPC stream or file, one record batch
// in memory at a time.
func Arrow(path string) iter.Seq2[TableRow, error] {
	return func(yield func(TableRow, error) bool) {
		f, err := os.Open(path)
		if err != nil {
			yield(TableRow{}, openError(path, err))
			return
		}
		defer f.Close()
		n := int64(0)
		guard := func(read func() error) error { return arrowGuard(path, &n, read) }
		next, err := arrowBatches(f, guard)
		for err == nil {
			var b arrow.Record
			if b, err = next(); err != nil || b == nil {
				break
			}
			columns := arrowColumns(b.Schema())
			for i := range int(b.NumRows()) {
				n++
				row := TableRow{N: n, Columns: columns, get: func(c int) (v Value, err error) {
					err = guard(func() error { v = arrowValue(b.Column(c), i, 0); return nil })
					return v, err
				}}
				if !yield(row, nil) {
					return
				}
			}
		}
		if err != nil {
			yield(TableRow{}, err)
		}
	}
}

// arrowGuard turns errors and panics of the library into errors with path and
// row. Whoever is given rows runs outside it.
func arrowGuard(path string, row *int64, read func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the Arrow reader failed: %v", r)
		}
		if err != nil {
			e := readError(path, err).(*fail.Error)
			e.Op, e.Row = "read Arrow", *row
			err = e
		}
	}()
	return read()
}

// arrowBatches checks a file and gives what reads one batch after the other, and
// nil behind the last.
func arrowBatches(f *os.File, guard func(func() error) error) (next func() (arrow.Record, error), err error) {
	var r *ipc.Reader
	var columns []string
	err = guard(func() error {
		head := make([]byte, len(arrowFile))
		if _, err := io.ReadFull(f, head); err != nil {
			return err
		}
		st, err := f.Stat()
		if err != nil {
			return err
		}
		// A file is a stream with a directory behind it, which is not needed.
		start := int64(0)
		if bytes.Equal(head, arrowFile) {
			start = 8
		}
		if _, err := f.Seek(start, io.SeekStart); err != nil {
			return err
		}
		if err := checkArrowStream(f, st.Size()); err != nil {
			return err
		}
		if _, err := f.Seek(start, io.SeekStart); err != nil {
			return err
		}
		r, err = ipc.NewReader(bufio.NewReaderSize(f, 1<<20), ipc.WithAllocator(boundedAllocator{memory.NewGoAllocator(), st.Size()}))
		if err != nil {
			return err
		}
		columns = arrowColumns(r.Schema())
		return nil
	})
	if err != nil {
		return nil, err
	}
	return func() (b arrow.Record, err error) {
		err = guard(func() error {
			if r.Next() {
				b = r.Record()
				return checkArrow(columns, b)
			}
			if err := r.Err(); err != nil && err != io.EOF {
				return err
			}
			return nil
		})
		return b, err
	}, nil
}

func arrowColumns(s *arrow.Schema) []string {
	var out []string
	for _, f := range s.Fields() {
		out = append(out, f.Name)
	}
	return out
}

func checkArrow(columns []string, b arrow.Record) error {
	if int(b.NumCols()) != len(columns) {
		return errors.New("a batch has other columns than the schema")
	}
	for _, c := range b.Columns() {
		if int64(c.Len()) < b.NumRows() {
			return errors.New("a column is shorter than its batch")
		}
	}
	return nil
}

// boundedAllocator refuses what no honest file asks for: more at once than the
// file holds, eight times over for compressed ones.
type boundedAllocator struct {
	memory.Allocator
	file int64
}

func (b boundedAllocator) check(n int) {
	if int64(n) > 8*b.file+1<<20 {
		panic(fmt.Sprintf("a length of %d bytes in a file of %d", n, b.file))
	}
}

func (b boundedAllocator) Allocate(n int) []byte {
	b.check(n)
	return b.Allocator.Allocate(n)
}

func (b boundedAllocator) Reallocate(n int, old []byte) []byte {
	b.check(n)
	return b.Allocator.Reallocate(n, old)
}

// arrowValue reads item i of an array.
func arrowValue(a arrow.Array, i, depth int) Value {
	if a.IsNull(i) || depth > maxDepth {
		return Value{}
	}
	switch a := a.(type) {
	case *array.Null:
		return Value{}
	case *array.String:
		return TextOf(a.Value(i))
	case *array.LargeString:
		return TextOf(a.Value(i))
	case *array.Binary:
		return BytesOf(a.Value(i))
	case *array.LargeBinary:
		return BytesOf(a.Value(i))
	case *array.FixedSizeBinary:
		return BytesOf(a.Value(i))
	case *array.Boolean:
		return boolOf(a.Value(i))
	case *array.Uint64:
		return numberOf(strconv.FormatUint(a.Value(i), 10))
	case *array.Float32:
		return floatOf(float64(a.Value(i)), 32)
	case *array.Float64:
		return floatOf(a.Value(i), 64)
	case *array.Dictionary:
		return arrowValue(a.Dictionary(), a.GetValueIndex(i), depth+1)
	case *array.Struct:
		t := a.DataType().(*arrow.StructType)
		out := Value{kind: Struct}
		for f := range a.NumField() {
			out.names, out.list = append(out.names, t.Field(f).Name), append(out.list, arrowValue(a.Field(f), i, depth+1))
		}
		return out
	case *array.Map:
		from, to := a.ValueOffsets(i)
		out := Value{kind: Struct}
		for k := from; k < to; k++ {
			out.names, out.list = append(out.names, arrowValue(a.Keys(), int(k), depth+1).String()), append(out.list, arrowValue(a.Items(), int(k), depth+1))
		}
		return out
	case array.ListLike:
		from, to := a.ValueOffsets(i)
		values := a.ListValues()
		if from < 0 || to < from || to > int64(values.Len()) {
			panic("a list reaches beyond its values")
		}
		out := Value{kind: List, list: make([]Value, 0, to-from)}
		for k := from; k < to; k++ {
			out.list = append(out.list, arrowValue(values, int(k), depth+1))
		}
		return out
	}
	text := a.ValueStr(i)
	if arrow.IsInteger(a.DataType().ID()) {
		return numberOf(text)
	}
	return TextOf(text)
}
