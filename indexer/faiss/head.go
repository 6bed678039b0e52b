// Package faiss builds and searches the indices that FAISS's factory strings
// describe (IVF, PQ, HNSW, OPQ, ID maps and their combinations), by FAISS itself:
// through go-faiss, and a C++ layer of our own for what that lacks. Exact indices
// are the business of package flat, which needs no FAISS.
//
// FAISS is there in programs built with the tag faiss and with cgo ("make build"
// does so where the library's headers are installed). Without it everything that
// needs FAISS is one error that says what to install; ReadHead works always.
package faiss

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"

	"searchloop/indexer/flat"
	"searchloop/internal/fail"
)

// Head is what the first bytes of any FAISS index file say.
type Head struct {
	Kind   string // class of the index: IndexIVFFlat
	Dim    int
	Rows   int64
	Metric int32 // 0 inner product, 1 squared distance
	Bytes  int64 // size of the file

	quantizer int32 // type of an IndexScalarQuantizer
}

// kinds are the classes by the mark that their files begin with.
var kinds = map[string]string{
	"IxFI": "IndexFlatIP", "IxF2": "IndexFlatL2", "IxFl": "IndexFlat", "IxSQ": "IndexScalarQuantizer", "IxPq": "IndexPQ", "IxPo": "IndexPQ", "IxPf": "IndexPQFastScan",
	"IwFl": "IndexIVFFlat", "IwFd": "IndexIVFFlatDedup", "IwPQ": "IndexIVFPQ", "IwQR": "IndexIVFPQR", "IwSq": "IndexIVFScalarQuantizer", "IwSQ": "IndexIVFScalarQuantizer",
	"IwPf": "IndexIVFPQFastScan", "IHNf": "IndexHNSWFlat", "IHNp": "IndexHNSWPQ", "IHNs": "IndexHNSWSQ", "IHN2": "IndexHNSW2Level", "INSf": "IndexNSGFlat",
	"IxMp": "IndexIDMap", "IxM2": "IndexIDMap2", "IxPT": "IndexPreTransform", "IxRF": "IndexRefine", "IxRQ": "IndexResidualQuantizer", "IxHE": "IndexLSH", "IxHe": "IndexLSH",
}

const (
	damaged  = "the file is damaged: copy it again or rebuild it with the index job"
	headSize = 37
)

// ReadHead reads the head of the file at path, of every kind that begins in the
// common way. It does not look at what follows.
func ReadHead(path string) (Head, error) {
	bad := func(hint, format string, args ...any) (Head, error) {
		return Head{}, &fail.Error{Kind: fail.BadInput, Op: "open index", Path: path, Err: fmt.Errorf(format, args...), Hint: hint}
	}
	f, err := os.Open(path)
	if err != nil {
		return Head{}, fail.Wrap(fail.BadInput, "open index", path, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return Head{}, fail.Wrap(fail.Disk, "open index", path, err)
	}
	if !st.Mode().IsRegular() {
		return bad("", "not a regular file")
	}
	b := make([]byte, min(headSize+4, st.Size()))
	if _, err := f.ReadAt(b, 0); err != nil {
		return Head{}, fail.Wrap(fail.Disk, "open index", path, err)
	}
	kind := ""
	if len(b) >= 4 {
		kind = kinds[string(b[:4])]
	}
	if kind == "" {
		return bad("an index file is made by the index job or by faiss.write_index", "not a FAISS index file: begins with %q", b[:min(4, len(b))])
	}
	if len(b) < headSize {
		return bad(damaged, "%d bytes, shorter than the header of %d", len(b), headSize)
	}
	le := binary.LittleEndian
	h := Head{Kind: kind, Dim: int(int32(le.Uint32(b[4:]))), Rows: int64(le.Uint64(b[8:])), Metric: int32(le.Uint32(b[33:])), Bytes: st.Size()}
	if len(b) == headSize+4 {
		h.quantizer = int32(le.Uint32(b[headSize:]))
	}
	if h.Dim < 1 || h.Dim > 1<<20 || h.Rows < 0 || h.Rows > 1<<40 || b[32] > 1 {
		return bad(damaged, "header says %d vectors of dimension %d", h.Rows, h.Dim)
	}
	if b[32] == 0 {
		return bad("train it and add vectors", "the index is not trained")
	}
	return h, nil
}

// Flat says whether package flat reads this kind of file.
func (h Head) Flat() bool {
	return h.Kind == "IndexFlatIP" || h.Kind == "IndexFlatL2" || h.Kind == "IndexScalarQuantizer" && (h.quantizer == 0 || h.quantizer == 4)
}

// MetricName is the metric as flat names it, or its number.
func (h Head) MetricName() string {
	if h.Metric == int32(flat.InnerProduct) || h.Metric == int32(flat.L2) {
		return flat.Metric(h.Metric).String()
	}
	return strconv.Itoa(int(h.Metric))
}
