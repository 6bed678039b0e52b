package flat

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"unsafe"

	"searchloop/indexer/flat/dots"
	"searchloop/internal/fail"
)

var errNotFinite = errors.New("a vector holds NaN or an infinity")

// nativeLittle: memory order is the file's order.
var nativeLittle = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// mayMisalign: float32 loads from odd addresses are allowed and cheap.
const mayMisalign = runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64"

// File is one open index file. Its vectors are mapped, not read: opening is
// immediate whatever the size, and memory is the page cache's. Methods are safe
// for concurrent use; Close must wait for searches to end.
type File struct {
	Header
	Path   string
	codes  []byte // Rows vectors, row-major, as stored
	mapped []byte
}

// Open maps the index at path after checking its header against its size.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fail.WithHint(fail.Wrap(fail.BadInput, "open index", path, err), "make it with the index job")
	}
	defer f.Close()
	h, size, err := readHeader(f, path)
	if err != nil {
		return nil, err
	}
	b, err := mapFile(f, size)
	if err != nil {
		return nil, fail.Wrap(fail.Disk, "map index", path, err)
	}
	if err := h.readTrained(path, b); err != nil {
		return nil, errors.Join(err, unmapFile(b))
	}
	return &File{Header: h, Path: path, mapped: b, codes: b[h.start():]}, nil
}

// Info reads the header of the file at path alone. Trained is not filled in.
func Info(path string) (Header, error) {
	f, err := os.Open(path)
	if err != nil {
		return Header{}, fail.Wrap(fail.BadInput, "open index", path, err)
	}
	defer f.Close()
	h, _, err := readHeader(f, path)
	return h, err
}

func readHeader(f *os.File, path string) (Header, int64, error) {
	st, err := f.Stat()
	if err != nil {
		return Header{}, 0, fail.Wrap(fail.Disk, "open index", path, err)
	}
	if !st.Mode().IsRegular() {
		return Header{}, 0, fail.New(fail.BadInput, "open index", path, "not a regular file")
	}
	head := make([]byte, min(headBytes, st.Size()))
	if _, err := f.ReadAt(head, 0); err != nil {
		return Header{}, 0, fail.Wrap(fail.Disk, "open index", path, err)
	}
	h, err := parseHeader(path, head, st.Size())
	return h, st.Size(), err
}

// Close unmaps the file. Slices from Row are invalid afterwards.
func (f *File) Close() error {
	b := f.mapped
	f.mapped, f.codes, f.Rows = nil, nil, 0
	return fail.Wrap(fail.Disk, "close index", f.Path, unmapFile(b))
}

// Row is vector i as float32: read only, and valid until Close, because it may be
// a view of the file.
func (f *File) Row(i int64) []float32 {
	b := f.Stored(i, i+1)
	if f.Format == Flat && nativeLittle && mayMisalign {
		return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), f.Dim)
	}
	v := make([]float32, f.Dim)
	f.decode(v, b)
	return v
}

// Stored is rows lo to hi-1 as stored: a view of the file, valid until Close.
func (f *File) Stored(lo, hi int64) []byte {
	n := f.RowBytes()
	return f.codes[lo*n : hi*n : hi*n]
}

// decode writes the values of the stored rows b.
func (h *Header) decode(dst []float32, b []byte) {
	dots.Decode(dst, b, h.Format.kind())
	if h.Format != SQ8 {
		return
	}
	for i, code := range dst {
		c := i % h.Dim
		dst[i] = h.Trained[c] + (code+0.5)/255*h.Trained[h.Dim+c]
	}
}
