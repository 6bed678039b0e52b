package flat

import (
	"bufio"
	"io"
	"math"
	"unsafe"

	"searchloop/internal/fail"
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

// NewWriter begins an index of rows vectors of dim numbers.
func NewWriter(w io.Writer, dim int, rows int64) (*Writer, error) {
	if dim < 1 || dim > maxDim || rows < 0 {
		return nil, fail.New(fail.Bug, "write index", "", "%d vectors of dimension %d", rows, dim)
	}
	h := Header{Dim: dim, Rows: rows}
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
	x.rows += int64(len(vectors) / d)
	if x.rows > x.h.Rows {
		return fail.New(fail.BadInput, "write index", "", "more vectors than the %d that were announced", x.h.Rows)
	}
	_, err := x.w.Write(x.littleEndian(vectors))
	return fail.Wrap(fail.Disk, "write index", "", err)
}

// Close flushes and checks the count.
func (x *Writer) Close() error {
	if x.rows != x.h.Rows {
		return fail.New(fail.BadInput, "write index", "", "%d vectors of the %d that were announced", x.rows, x.h.Rows)
	}
	return fail.Wrap(fail.Disk, "write index", "", x.w.Flush())
}

func (x *Writer) littleEndian(v []float32) []byte {
	if len(v) == 0 {
		return nil
	}
	if nativeLittle {
		return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), 4*len(v))
	}
	x.buf = x.buf[:0]
	for _, f := range v {
		b := math.Float32bits(f)
		x.buf = append(x.buf, byte(b), byte(b>>8), byte(b>>16), byte(b>>24))
	}
	return x.buf
}

// NotFinite is the index of the first NaN or infinity in v, or -1.
func NotFinite(v []float32) int {
	const block = 1024
	for at := 0; at < len(v); at += block {
		part := v[at:min(at+block, len(v))]
		var sum float32 // x-x is 0 for finite x, NaN otherwise, and NaN stays
		for _, x := range part {
			sum += x - x
		}
		if sum == 0 {
			continue
		}
		for i, x := range part {
			if x-x != 0 {
				return at + i
			}
		}
	}
	return -1
}
