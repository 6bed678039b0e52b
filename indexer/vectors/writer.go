package vectors

import (
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"searchloop/internal/fail"
)

// batchRows is the rows of a record batch, all but the last: a batch of wide
// vectors stays at a few megabytes, which is what a reader must hold.
const batchRows = 1024

// schema of a file. Both columns are nullable on paper and never null: other
// programs' writers lose non-nullable fixed-size lists when they convert files.
func schema(s Space) *arrow.Schema {
	keys, values := s.metadata()
	meta := arrow.NewMetadata(keys, values)
	return arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "vector", Type: arrow.FixedSizeListOf(int32(s.Dim), arrow.PrimitiveTypes.Float32), Nullable: true},
	}, &meta)
}

// Writer writes one file as a stream. The bytes depend on the rows alone, not
// on how they were divided over calls of Write. It does not close what it
// writes to. Not safe for concurrent use.
type Writer struct {
	space Space
	w     *ipc.FileWriter
	b     *array.RecordBuilder
	rows  int64
}

// NewWriter begins a file.
func NewWriter(w io.Writer, s Space) (*Writer, error) {
	if s.Dim < 1 || s.Dim > maxDim {
		return nil, fail.New(fail.Bug, "write vectors", "", "dimension %d", s.Dim)
	}
	sc := schema(s)
	// One allocator for both: Go's, whose fresh memory is zero, so that padding is too.
	mem := memory.NewGoAllocator()
	fw, err := ipc.NewFileWriter(&position{w: w}, ipc.WithSchema(sc), ipc.WithAllocator(mem))
	if err != nil {
		return nil, fail.Wrap(fail.Disk, "write vectors", "", err)
	}
	return &Writer{space: s, w: fw, b: array.NewRecordBuilder(mem, sc)}, nil
}

// Write appends len(ids) rows; vecs holds their vectors one after the other.
// NaN and infinities are refused with the row (from 1 within this file).
func (w *Writer) Write(ids []string, vecs []float32) error {
	d := w.space.Dim
	if len(vecs) != len(ids)*d {
		return fail.New(fail.Bug, "write vectors", "", "%d numbers for %d ids of dimension %d", len(vecs), len(ids), d)
	}
	for i, v := range vecs {
		if v-v != 0 {
			return &fail.Error{Kind: fail.BadInput, Op: "write vectors", Row: w.rows + int64(i/d) + 1, Sample: ids[i/d],
				Err: errNotFinite, Hint: "the encoder's weights are damaged or do not belong to its config.json"}
		}
	}
	id := w.b.Field(0).(*array.StringBuilder)
	list := w.b.Field(1).(*array.FixedSizeListBuilder)
	values := list.ValueBuilder().(*array.Float32Builder)
	for i := range ids {
		id.Append(ids[i])
		list.Append(true)
		values.AppendValues(vecs[i*d:(i+1)*d], nil)
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
