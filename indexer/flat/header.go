// Package flat reads, writes and searches exact inner-product indices in the
// file format of FAISS's IndexFlatIP, so that files written here open in
// Python's faiss and files written there open here. In go float32 vectors in
// row order; out come the k rows of largest inner product, exact, ties by row.
//
// It knows vectors and row numbers only: no texts, no encoders, no other kind of
// FAISS index. The format is described in docs/index.md.
package flat

import (
	"encoding/binary"
	"fmt"
	"math"

	"searchloop/internal/fail"
)

// HeaderSize is where the vectors begin. 45 is not a multiple of 4: the vectors
// of a mapped file are not aligned.
const HeaderSize = 45

const (
	magic          = "IxFI"
	metricIP       = 0
	metricL2       = 1
	reserved int64 = 1 << 20 // two words FAISS writes and ignores
	maxDim         = 1 << 20
)

// Header is the head of an IndexFlatIP file.
type Header struct {
	Dim  int
	Rows int64
}

// Size is the exact size of the file in bytes.
func (h Header) Size() int64 { return HeaderSize + 4*int64(h.Dim)*h.Rows }

// bytes is the header as FAISS writes it (little-endian, no padding).
func (h Header) bytes() []byte {
	b := make([]byte, 0, HeaderSize)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.Dim))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.Rows))
	b = binary.LittleEndian.AppendUint64(b, uint64(reserved))
	b = binary.LittleEndian.AppendUint64(b, uint64(reserved))
	b = append(b, 1) // is_trained
	b = binary.LittleEndian.AppendUint32(b, metricIP)
	return binary.LittleEndian.AppendUint64(b, uint64(h.Rows)*uint64(h.Dim))
}

// kinds names the FAISS files people are likely to bring, for the message that
// refuses them.
var kinds = map[string]string{
	"IxF2": "IndexFlatL2 (squared distance, not inner product)", "IxFl": "IndexFlat of another metric",
	"IxMp": "IndexIDMap", "IxM2": "IndexIDMap2", "IwFl": "IndexIVFFlat", "IwPQ": "IndexIVFPQ", "IwSq": "IndexIVFScalarQuantizer",
	"IxSQ": "IndexScalarQuantizer", "IxPq": "IndexPQ", "IHNf": "IndexHNSWFlat", "IxPT": "IndexPreTransform", "IxRF": "IndexRefine",
}

// parseHeader reads the head of a file of size bytes at path. Every field is
// checked against the size, so that a header that lies is refused here.
func parseHeader(path string, b []byte, size int64) (Header, error) {
	bad := func(hint, format string, args ...any) (Header, error) {
		return Header{}, &fail.Error{Kind: fail.BadInput, Op: "open index", Path: path, Err: fmt.Errorf(format, args...), Hint: hint}
	}
	const rebuild = "the file is damaged: copy it again or rebuild it with the index job"
	if len(b) >= 4 && string(b[:4]) != magic {
		if kind, ok := kinds[string(b[:4])]; ok {
			return bad(`convert it with faiss to a "Flat" index of METRIC_INNER_PRODUCT`, "holds a FAISS %s; only IndexFlatIP is read here", kind)
		}
		return bad("an index file is made by the index job or by faiss.write_index", "not a FAISS IndexFlatIP file: begins with %q, not %q", b[:4], magic)
	}
	if len(b) < HeaderSize {
		return bad(rebuild, "%d bytes, shorter than the header of %d", size, HeaderSize)
	}
	le := binary.LittleEndian
	dim, rows := int64(int32(le.Uint32(b[4:]))), int64(le.Uint64(b[8:]))
	metric, count := int32(le.Uint32(b[33:])), le.Uint64(b[37:])
	switch {
	case dim < 1 || dim > maxDim:
		return bad(rebuild, "header says dimension %d", dim)
	case rows < 0 || rows > (math.MaxInt64-HeaderSize)/(4*dim):
		return bad(rebuild, "header says %d vectors", rows)
	case b[32] != 1:
		return bad(rebuild, "header says the index is not trained")
	case metric == metricL2:
		return bad(`build it with METRIC_INNER_PRODUCT`, "metric is squared distance (1), not inner product (0)")
	case metric != metricIP:
		return bad(`build it with METRIC_INNER_PRODUCT`, "metric is %d, not inner product (0)", metric)
	case count != uint64(rows*dim):
		return bad(rebuild, "header says %d vectors of %d but %d numbers", rows, dim, count)
	}
	h := Header{Dim: int(dim), Rows: rows}
	if h.Size() != size {
		what := "cut short"
		if size > h.Size() {
			what = "too long"
		}
		return bad(rebuild, "%s: %d vectors of %d need %d bytes, the file has %d", what, rows, dim, h.Size(), size)
	}
	return h, nil
}
