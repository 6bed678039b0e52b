package flat

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"unsafe"

	"searchloop/indexer/flat/dots"
	"searchloop/internal/fail"
	"searchloop/internal/vec"
)

// Writer writes one index file as a stream. Size and row count are said first,
// because FAISS keeps them at the head of the file; Close checks that they came
// true. It does not close what it writes to.
type Writer struct {
	w    *bufio.Writer
	h    Header
	rows int64
	buf  []byte
}

// NewWriter begins an IndexFlatIP of rows vectors of dim numbers.
func NewWriter(w io.Writer, dim int, rows int64) (*Writer, error) {
	return Header{Dim: dim, Rows: rows}.Writer(w)
}

// Writer begins a file of this head. SQ8 needs Trained.
func (h Header) Writer(w io.Writer) (*Writer, error) {
	if h.Dim < 1 || h.Dim > maxDim || h.Rows < 0 || h.Format > SQ8 || h.Metric > L2 || h.Format == SQ8 && len(h.Trained) != 2*h.Dim || h.Format != SQ8 && h.Trained != nil {
		return nil, fail.New(fail.Bug, "write index", "", "%d vectors of dimension %d, format %d, %d trained numbers", h.Rows, h.Dim, h.Format, len(h.Trained))
	}
	if i := NotFinite(h.Trained); i >= 0 {
		return nil, fail.New(fail.BadInput, "write index", "", "the range of column %d is too wide for float32", i%h.Dim)
	}
	x := &Writer{w: bufio.NewWriterSize(w, 1<<20), h: h}
	_, err := x.w.Write(h.bytes())
	return x, fail.Wrap(fail.Disk, "write index", "", err)
}

// Write appends len(vectors)/dim rows. A row with a NaN or an infinity is
// refused: no inner product with it could be ordered. Row in the error counts
// from 1 within this file.
func (x *Writer) Write(vectors []float32) error {
	d := x.h.Dim
	if len(vectors)%d != 0 {
		return fail.New(fail.BadInput, "write index", "", "%d numbers are not whole vectors of dimension %d", len(vectors), d)
	}
	if i := NotFinite(vectors); i >= 0 {
		return &fail.Error{Kind: fail.BadInput, Op: "write index", Row: x.rows + int64(i/d) + 1, Err: errNotFinite,
			Hint: "embed again: the encoder's weights or the vectors are damaged"}
	}
	if x.h.Format == FP16 {
		if i := slices.IndexFunc(vectors, func(f float32) bool { return !dots.FiniteHalf(dots.ToHalf(f)) }); i >= 0 {
			return &fail.Error{Kind: fail.BadInput, Op: "write index", Row: x.rows + int64(i/d) + 1, Err: fmt.Errorf("%v is too large for half floats", vectors[i]),
				Hint: "store these vectors as float32"}
		}
	}
	return x.append(int64(len(vectors)/d), x.encode(vectors))
}

// WriteHalves is Write for vectors that are half floats already, into a file of
// such: they are stored as they are.
func (x *Writer) WriteHalves(vectors []uint16) error {
	d := x.h.Dim
	if x.h.Format != FP16 || len(vectors)%d != 0 {
		return fail.New(fail.Bug, "write index", "", "%d half floats for vectors of dimension %d in a file of the format %v", len(vectors), d, x.h.Format)
	}
	b := x.buf[:0]
	for i, h := range vectors {
		if !dots.FiniteHalf(h) {
			return &fail.Error{Kind: fail.BadInput, Op: "write index", Row: x.rows + int64(i/d) + 1, Err: errNotFinite,
				Hint: "embed again: the encoder's weights or the vectors are damaged"}
		}
		b = binary.LittleEndian.AppendUint16(b, h)
	}
	x.buf = b
	return x.append(int64(len(vectors)/d), b)
}

// append writes rows as they are stored.
func (x *Writer) append(rows int64, b []byte) error {
	if x.rows += rows; x.rows > x.h.Rows {
		return fail.New(fail.BadInput, "write index", "", "more vectors than the %d that were announced", x.h.Rows)
	}
	_, err := x.w.Write(b)
	return fail.Wrap(fail.Disk, "write index", "", err)
}

// Close flushes and checks the count.
func (x *Writer) Close() error {
	if x.rows != x.h.Rows {
		return fail.New(fail.BadInput, "write index", "", "%d vectors of the %d that were announced", x.rows, x.h.Rows)
	}
	return fail.Wrap(fail.Disk, "write index", "", x.w.Flush())
}

// encode is v as stored.
func (x *Writer) encode(v []float32) []byte {
	if len(v) == 0 {
		return nil
	}
	if x.h.Format == Flat && nativeLittle {
		return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), 4*len(v))
	}
	b := x.buf[:0]
	switch x.h.Format {
	case Flat:
		for _, f := range v {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
		}
	case FP16:
		for _, f := range v {
			b = binary.LittleEndian.AppendUint16(b, dots.ToHalf(f))
		}
	case SQ8:
		d := x.h.Dim
		low, step := x.h.Trained[:d], x.h.Trained[d:]
		for i, f := range v {
			b = append(b, code(f, low[i%d], step[i%d]))
		}
	}
	x.buf = b
	return b
}

// code is the byte of FAISS's QT_8bit: the range cut into 255, what is outside at
// its ends.
func code(f, low, step float32) byte {
	if step == 0 {
		return 0
	}
	return byte(255 * min(max((f-low)/step, 0), 1))
}

// Ranges finds what an SQ8 file is trained to: the range of every column.
type Ranges struct{ low, high []float32 }

// Add takes more vectors of dim numbers into account.
func (r *Ranges) Add(v []float32, dim int) {
	if r.low == nil && len(v) > 0 {
		r.low, r.high = slices.Clone(v[:dim]), slices.Clone(v[:dim])
	}
	for ; len(v) >= dim; v = v[dim:] {
		for c, x := range v[:dim] {
			r.low[c], r.high[c] = min(r.low[c], x), max(r.high[c], x)
		}
	}
}

// Trained is Header.Trained for the vectors seen; zeros when there were none.
func (r *Ranges) Trained(dim int) []float32 {
	t := make([]float32, 2*dim)
	copy(t, r.low)
	for c := range r.low {
		t[dim+c] = r.high[c] - r.low[c]
	}
	return t
}

// NotFinite is the index of the first NaN or infinity in v, or -1.
func NotFinite(v []float32) int { return vec.NotFinite(v) }
