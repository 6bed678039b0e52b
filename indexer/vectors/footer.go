package vectors

import (
	"encoding/binary"
	"fmt"
	"io"
)

// checkFooter walks the vectors of an Arrow file's footer and refuses counts
// that the footer has no room for. The Arrow reader allocates by these counts
// before it looks, and a damaged one can ask for more memory than there is.
// Offsets outside the footer panic here; the caller recovers. (Flatbuffers:
// https://flatbuffers.dev/internals; tables of Arrow's format/File.fbs and Schema.fbs.)
func checkFooter(f io.ReaderAt, size int64) error {
	tail := make([]byte, 10) // footer length, "ARROW1"
	if size < int64(len(tail)) {
		return fmt.Errorf("%d bytes are no Arrow file", size)
	}
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil {
		return err
	}
	if string(tail[4:]) != "ARROW1" {
		return fmt.Errorf("no Arrow file, or cut short: it does not end in ARROW1")
	}
	n := int64(binary.LittleEndian.Uint32(tail))
	if n < 8 || n > size-int64(len(tail)) {
		return fmt.Errorf("a footer of %d bytes in a file of %d", n, size)
	}
	b := make([]byte, n)
	if _, err := f.ReadAt(b, size-int64(len(tail))-n); err != nil {
		return err
	}
	footer := fbTable{b, int(u32(b, 0))}
	footer.vector(2, 24) // dictionaries: blocks of 24 bytes
	footer.vector(3, 24) // record batches
	footer.vector(4, 4)  // metadata
	if schema, ok := footer.table(1); ok {
		schema.vector(2, 4)
		schema.fields(1, 0)
	}
	return nil
}

// fbTable is a flatbuffers table at a position of a buffer.
type fbTable struct {
	b   []byte
	pos int
}

func u32(b []byte, at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }

// slot is the position of field i, or false when the table lacks it.
func (t fbTable) slot(i int) (int, bool) {
	vt := t.pos - int(int32(u32(t.b, t.pos)))
	at := 4 + 2*i
	if at+2 > int(binary.LittleEndian.Uint16(t.b[vt:])) {
		return 0, false
	}
	off := int(binary.LittleEndian.Uint16(t.b[vt+at:]))
	return t.pos + off, off != 0
}

func (t fbTable) table(i int) (fbTable, bool) {
	at, ok := t.slot(i)
	if !ok {
		return t, false
	}
	return fbTable{t.b, at + int(u32(t.b, at))}, true
}

// vector checks field i, a vector of elements of size bytes, and gives the
// position of its first element and their number.
func (t fbTable) vector(i, size int) (start, n int) {
	at, ok := t.slot(i)
	if !ok {
		return 0, 0
	}
	at += int(u32(t.b, at))
	n = int(u32(t.b, at))
	if start = at + 4; start+n*size > len(t.b) {
		panic(fmt.Sprintf("the footer counts %d elements in %d bytes", n, len(t.b)))
	}
	return start, n
}

// fields checks field i, a vector of Arrow fields, and their children.
func (t fbTable) fields(i, depth int) {
	if depth > 8 {
		panic("columns are nested too deeply")
	}
	start, n := t.vector(i, 4)
	for j := range n {
		at := start + 4*j
		f := fbTable{t.b, at + int(u32(t.b, at))}
		f.vector(6, 4) // metadata
		f.fields(5, depth+1)
	}
}
