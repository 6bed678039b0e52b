// Package flat reads, writes and searches exact indices in the file formats of
// FAISS: IndexFlatIP and IndexFlatL2, and IndexScalarQuantizer with half floats
// or bytes, so that files written here open in Python's faiss and files written
// there open here. In go float32 vectors in row order; out come the k rows of
// largest inner product, or of least squared distance, exact, ties by row.
//
// It knows vectors and row numbers only: no texts, no encoders, no other kind of
// FAISS index. The formats are described in docs/index.md.
package flat

import (
	"encoding/binary"
	"fmt"
	"math"

	"searchloop/indexer/flat/dots"
	"searchloop/internal/fail"
)

// Metric is what makes rows near.
type Metric uint8

// The metrics, numbered as in FAISS.
const (
	InnerProduct Metric = 0 // larger is nearer
	L2           Metric = 1 // squared distance: smaller is nearer
)

func (m Metric) String() string { return [...]string{"inner_product", "l2"}[m] }

// Format is how a file stores its vectors.
type Format uint8

// The formats.
const (
	Flat Format = iota // float32
	FP16               // half floats, QT_fp16
	SQ8                // a byte a number, QT_8bit: column c holds low[c] + (code+½)/255·step[c]
)

func (f Format) String() string { return [...]string{"flat", "fp16", "sq8"}[f] }

func (f Format) kind() dots.Kind { return [...]dots.Kind{dots.F32, dots.F16, dots.U8}[f] }

// FAISS's numbers for the two kinds of scalar quantizer known here.
const (
	quantizer8bit = 0
	quantizerFP16 = 4
)

// HeaderSize is where the vectors of a flat file begin. Neither it nor the other
// formats' is a multiple of 4: the vectors of a mapped file are not aligned.
const HeaderSize = 45

const (
	sqHeader       = 81      // of a scalar quantizer's file, without what it was trained to
	reserved int64 = 1 << 20 // two words FAISS writes and ignores
	maxDim         = 1 << 20
)

// Header is the head of a file.
type Header struct {
	Dim    int
	Rows   int64
	Metric Metric
	Format Format
	// Trained is, for SQ8, the lowest value of each column and then the width of
	// each column's range: 2·Dim numbers. Otherwise nil.
	Trained []float32
}

// start is where the vectors begin.
func (h Header) start() int64 {
	switch h.Format {
	case Flat:
		return HeaderSize
	case SQ8:
		return sqHeader + 8*int64(h.Dim)
	}
	return sqHeader
}

// RowBytes is the size of a vector.
func (h Header) RowBytes() int64 { return int64(h.Dim * h.Format.kind().Bytes()) }

// Size is the exact size of the file in bytes.
func (h Header) Size() int64 { return h.start() + h.RowBytes()*h.Rows }

// bytes is the header as FAISS writes it (little-endian, no padding).
func (h Header) bytes() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, h.start())
	switch {
	case h.Format != Flat:
		b = append(b, "IxSQ"...)
	case h.Metric == L2:
		b = append(b, "IxF2"...)
	default:
		b = append(b, "IxFI"...)
	}
	b = le.AppendUint32(b, uint32(h.Dim))
	b = le.AppendUint64(b, uint64(h.Rows))
	b = le.AppendUint64(b, uint64(reserved))
	b = le.AppendUint64(b, uint64(reserved))
	b = append(b, 1) // is_trained
	b = le.AppendUint32(b, uint32(h.Metric))
	if h.Format == Flat {
		return le.AppendUint64(b, uint64(h.Rows)*uint64(h.Dim))
	}
	quantizer := uint32(quantizerFP16)
	if h.Format == SQ8 {
		quantizer = quantizer8bit
	}
	b = le.AppendUint32(b, quantizer)
	b = le.AppendUint32(b, 0) // ranges from minimum to maximum,
	b = le.AppendUint32(b, 0) // and not beyond (a float32 0)
	b = le.AppendUint64(b, uint64(h.Dim))
	b = le.AppendUint64(b, uint64(h.RowBytes())) // bytes of a vector
	b = le.AppendUint64(b, uint64(len(h.Trained)))
	for _, x := range h.Trained {
		b = le.AppendUint32(b, math.Float32bits(x))
	}
	return le.AppendUint64(b, uint64(h.Rows*h.RowBytes()))
}

// kinds names the FAISS files people are likely to bring, for the message that
// refuses them.
var kinds = map[string]string{
	"IxFl": "IndexFlat of another metric",
	"IxMp": "IndexIDMap", "IxM2": "IndexIDMap2", "IwFl": "IndexIVFFlat", "IwPQ": "IndexIVFPQ", "IwSq": "IndexIVFScalarQuantizer",
	"IxPq": "IndexPQ", "IHNf": "IndexHNSWFlat", "IxPT": "IndexPreTransform", "IxRF": "IndexRefine",
}

const (
	rebuild = "the file is damaged: copy it again or rebuild it with the index job"
	convert = `convert it with faiss to a "Flat", "SQfp16" or "SQ8" index`
)

// headBytes is how much of a file parseHeader wants to see.
const headBytes = sqHeader - 8

// parseHeader reads the head of a file of size bytes at path. Every field is
// checked against the size, so that a header that lies is refused here. What a
// scalar quantizer was trained to is not part of it: readTrained reads that.
func parseHeader(path string, b []byte, size int64) (Header, error) {
	bad := func(hint, format string, args ...any) (Header, error) {
		return Header{}, &fail.Error{Kind: fail.BadInput, Op: "open index", Path: path, Err: fmt.Errorf(format, args...), Hint: hint}
	}
	h := Header{}
	le := binary.LittleEndian
	var magic string
	if len(b) >= 4 {
		magic = string(b[:4])
	}
	switch magic {
	case "IxFI", "":
	case "IxF2":
		h.Metric = L2
	case "IxSQ":
		h.Format = FP16
	default:
		if kind, ok := kinds[magic]; ok {
			return bad(convert, "holds a FAISS %s; IndexFlatIP, IndexFlatL2 and IndexScalarQuantizer are read here", kind)
		}
		return bad("an index file is made by the index job or by faiss.write_index", "not a FAISS IndexFlatIP, IndexFlatL2 or IndexScalarQuantizer file: begins with %q", magic)
	}
	need := int(h.start())
	if h.Format != Flat {
		need = headBytes
	}
	if len(b) < need {
		return bad(rebuild, "%d bytes, shorter than the header of %d", size, need)
	}
	dim, rows := int64(int32(le.Uint32(b[4:]))), int64(le.Uint64(b[8:]))
	metric := int32(le.Uint32(b[33:]))
	switch {
	case dim < 1 || dim > maxDim:
		return bad(rebuild, "header says dimension %d", dim)
	case rows < 0 || rows > (math.MaxInt64-sqHeader-8*maxDim)/(4*dim):
		return bad(rebuild, "header says %d vectors", rows)
	case b[32] != 1:
		return bad(rebuild, "header says the index is not trained")
	case metric != int32(InnerProduct) && metric != int32(L2):
		return bad("build it with METRIC_INNER_PRODUCT or METRIC_L2", "metric is %d, neither inner product (0) nor squared distance (1)", metric)
	case h.Format == Flat && metric != int32(h.Metric):
		return bad(rebuild, "the file begins with %q but its metric is %d", magic, metric)
	}
	h.Dim, h.Rows, h.Metric = int(dim), rows, Metric(metric)
	if h.Format == Flat {
		if count := le.Uint64(b[37:]); count != uint64(rows*dim) {
			return bad(rebuild, "header says %d vectors of %d but %d numbers", rows, dim, count)
		}
	} else if err := h.quantizer(b); err != "" {
		return bad(convert, "%s", err)
	}
	if h.Size() != size {
		what := "cut short"
		if size > h.Size() {
			what = "too long"
		}
		return bad(rebuild, "%s: %d vectors of %d need %d bytes, the file has %d", what, rows, dim, h.Size(), size)
	}
	return h, nil
}

// quantizer reads a scalar quantizer's own header into h and says what is wrong with it.
func (h *Header) quantizer(b []byte) string {
	le := binary.LittleEndian
	trained := 0
	switch q := int32(le.Uint32(b[37:])); q {
	case quantizerFP16:
	case quantizer8bit:
		h.Format, trained = SQ8, 2*h.Dim
	default:
		return fmt.Sprintf("holds a scalar quantizer of type %d; 8 bit (%d) and fp16 (%d) are read here", q, quantizer8bit, quantizerFP16)
	}
	if d := le.Uint64(b[49:]); d != uint64(h.Dim) {
		return fmt.Sprintf("the quantizer has dimension %d, the index %d", d, h.Dim)
	}
	if n := le.Uint64(b[57:]); n != uint64(h.RowBytes()) {
		return fmt.Sprintf("header says %d bytes a vector where %d are needed", n, h.RowBytes())
	}
	if n := le.Uint64(b[65:]); n != uint64(trained) {
		return fmt.Sprintf("header says %d trained numbers where %d are needed", n, trained)
	}
	return ""
}

// readTrained reads what lies between the fixed header and the vectors of the
// file that b is all of.
func (h *Header) readTrained(path string, b []byte) error {
	if h.Format == Flat {
		return nil
	}
	le := binary.LittleEndian
	at := headBytes
	if h.Format == SQ8 {
		h.Trained = make([]float32, 2*h.Dim)
		dots.Decode(h.Trained, b[at:], dots.F32)
		at += 8 * h.Dim
		if i := NotFinite(h.Trained); i >= 0 {
			return &fail.Error{Kind: fail.BadInput, Op: "open index", Path: path, Err: fmt.Errorf("column %d's range holds NaN or an infinity", i%h.Dim), Hint: rebuild}
		}
	}
	if n := le.Uint64(b[at:]); n != uint64(h.Rows*h.RowBytes()) {
		return &fail.Error{Kind: fail.BadInput, Op: "open index", Path: path, Err: fmt.Errorf("header says %d bytes of codes for %d vectors of %d", n, h.Rows, h.Dim), Hint: rebuild}
	}
	return nil
}
