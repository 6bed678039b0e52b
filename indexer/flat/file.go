package flat

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"runtime"
	"unsafe"

	"searchloop/internal/fail"
)

var errNotFinite = errors.New("a vector holds NaN or an infinity")

// nativeLittle: memory order is the file's order.
var nativeLittle = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// mayMisalign: float32 loads from odd addresses are allowed and cheap. The
// vectors start at byte 45, so elsewhere they are copied once at open.
const mayMisalign = runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64"

// File is one open index file. Its vectors are mapped, not read: opening is
// immediate whatever the size, and memory is the page cache's. Methods are safe
// for concurrent use; Close must wait for searches to end.
type File struct {
	Header
	Path   string
	data   []float32 // Rows*Dim, row-major
	mapped []byte
}

// Open maps the index at path after checking its header against its size.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fail.WithHint(fail.Wrap(fail.BadInput, "open index", path, err), "make it with the index job")
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fail.Wrap(fail.Disk, "open index", path, err)
	}
	if !st.Mode().IsRegular() {
		return nil, fail.New(fail.BadInput, "open index", path, "not a regular file")
	}
	head := make([]byte, min(HeaderSize, st.Size()))
	if _, err := f.ReadAt(head, 0); err != nil {
		return nil, fail.Wrap(fail.Disk, "open index", path, err)
	}
	h, err := parseHeader(path, head, st.Size())
	if err != nil {
		return nil, err
	}
	b, err := mapFile(f, st.Size())
	if err != nil {
		return nil, fail.Wrap(fail.Disk, "map index", path, err)
	}
	x := &File{Header: h, Path: path, mapped: b}
	x.data = floats(b[HeaderSize:])
	return x, nil
}

// Close unmaps the file. Slices from Row are invalid afterwards.
func (f *File) Close() error {
	b := f.mapped
	f.mapped, f.data, f.Rows = nil, nil, 0
	return fail.Wrap(fail.Disk, "close index", f.Path, unmapFile(b))
}

// Row is vector i, a view of the file: read only, valid until Close.
func (f *File) Row(i int64) []float32 { return f.rows(i, i+1) }

func (f *File) rows(lo, hi int64) []float32 {
	d := int64(f.Dim)
	return f.data[lo*d : hi*d : hi*d]
}

// floats views b as little-endian float32, or copies where a view is not possible.
func floats(b []byte) []float32 {
	n := len(b) / 4
	if n == 0 {
		return nil
	}
	if nativeLittle && mayMisalign {
		return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), n)
	}
	v := make([]float32, n)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}
