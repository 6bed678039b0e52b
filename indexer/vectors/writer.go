package vectors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/float16"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"searchloop/indexer/flat/dots"
	"searchloop/internal/fail"
)

// batchRows is the rows of a record batch, all but the last: a batch of wide
// vectors stays at a few megabytes, which is what a reader must hold.
const batchRows = 1024

// Format is how the numbers of a file are stored.
type Format uint8

const (
	Float32 Format = iota
	Float16        // rounded to the nearest, ties to even
)

func (f Format) String() string { return [...]string{"fp32", "fp16"}[f] }

func (f Format) arrow() arrow.DataType {
	if f == Float16 {
		return arrow.FixedWidthTypes.Float16
	}
	return arrow.PrimitiveTypes.Float32
}

// schema of a file. Both columns are nullable on paper and never null: other
// programs' writers lose non-nullable fixed-size lists when they convert files.
func schema(s Space, f Format) *arrow.Schema {
	keys, values := s.metadata()
	meta := arrow.NewMetadata(keys, values)
	return arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "vector", Type: arrow.FixedSizeListOf(int32(s.Dim), f.arrow()), Nullable: true},
	}, &meta)
}

// Writer writes one file as a stream. The bytes depend on the rows alone, not
// on how they were divided over calls of Write. It does not close what it
// writes to. Not safe for concurrent use.
type Writer struct {
	space  Space
	format Format
	w      *ipc.FileWriter
	b      *array.RecordBuilder
	rows   int64
	halves []float16.Num // of one row
}

// NewWriter begins a file.
func NewWriter(w io.Writer, s Space, f Format) (*Writer, error) {
	if s.Dim < 1 || s.Dim > maxDim {
		return nil, fail.New(fail.Bug, "write vectors", "", "dimension %d", s.Dim)
	}
	sc := schema(s, f)
	// One allocator for both: Go's, whose fresh memory is zero, so that padding is too.
	mem := memory.NewGoAllocator()
	fw, err := ipc.NewFileWriter(&position{w: w}, ipc.WithSchema(sc), ipc.WithAllocator(mem))
	if err != nil {
		return nil, fail.Wrap(fail.Disk, "write vectors", "", err)
	}
	return &Writer{space: s, format: f, halves: make([]float16.Num, s.Dim), w: fw, b: array.NewRecordBuilder(mem, sc)}, nil
}

// Write appends len(ids) rows; vecs holds their vectors one after the other.
// NaN, infinities and what half floats cannot hold are refused with the row (from 1
// within this file).
func (w *Writer) Write(ids []string, vecs []float32) error {
	d := w.space.Dim
	if len(vecs) != len(ids)*d {
		return fail.New(fail.Bug, "write vectors", "", "%d numbers for %d ids of dimension %d", len(vecs), len(ids), d)
	}
	for i, v := range vecs {
		if w.format == Float16 && v-v == 0 && !dots.FiniteHalf(dots.ToHalf(v)) {
			return &fail.Error{Kind: fail.BadInput, Op: "write vectors", Row: w.rows + int64(i/d) + 1, Sample: ids[i/d],
				Err: fmt.Errorf("%v is too large for half floats", v), Hint: "store these vectors as fp32"}
		}
		if v-v != 0 {
			return &fail.Error{Kind: fail.BadInput, Op: "write vectors", Row: w.rows + int64(i/d) + 1, Sample: ids[i/d],
				Err: errNotFinite, Hint: "the encoder's weights are damaged or do not belong to its config.json"}
		}
	}
	id := w.b.Field(0).(*array.StringBuilder)
	list := w.b.Field(1).(*array.FixedSizeListBuilder)
	for i := range ids {
		id.Append(ids[i])
		list.Append(true)
		switch values := list.ValueBuilder().(type) {
		case *array.Float32Builder:
			values.AppendValues(vecs[i*d:(i+1)*d], nil)
		case *array.Float16Builder:
			var b [2]byte
			for c, v := range vecs[i*d : (i+1)*d] {
				binary.LittleEndian.PutUint16(b[:], dots.ToHalf(v)) // float16.New cuts off instead of rounding
				w.halves[c] = float16.FromLEBytes(b[:])
			}
			values.AppendValues(w.halves, nil)
		}
		w.rows++
		if w.rows%batchRows == 0 {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *Writer) flush() error {
	rec := w.b.NewRecord()
	defer rec.Release()
	return fail.Wrap(fail.Disk, "write vectors", "", w.w.Write(rec))
}

// Rows is the number of rows written.
func (w *Writer) Rows() int64 { return w.rows }

// Close writes the last batch and the footer.
func (w *Writer) Close() error {
	defer w.b.Release()
	if w.rows%batchRows != 0 {
		if err := w.flush(); err != nil {
			return err
		}
	}
	return fail.Wrap(fail.Disk, "write vectors", "", w.w.Close())
}

var errNotFinite = errors.New("the vector holds NaN or an infinity")

// position lets the Arrow writer, which only ever asks where it is, write to a stream.
type position struct {
	w io.Writer
	n int64
}

func (p *position) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	p.n += int64(n)
	return n, err
}

func (p *position) Seek(offset int64, whence int) (int64, error) {
	if offset != 0 || whence != io.SeekCurrent {
		return 0, fmt.Errorf("a stream cannot seek to %d from %d", offset, whence)
	}
	return p.n, nil
}
