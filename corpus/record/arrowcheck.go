package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// checkArrowStream goes over the messages of an Arrow stream that begins at the
// reader's place and checks every length in them against what the file has: the
// library believes them, and would ask for more memory than there is. Bodies are
// skipped.
func checkArrowStream(r io.ReadSeeker, size int64) error {
	var head [8]byte
	for {
		if _, err := io.ReadFull(r, head[:4]); err == io.EOF {
			return nil // streams may end without saying so
		} else if err != nil {
			return err
		}
		n := binary.LittleEndian.Uint32(head[:])
		if n == ^uint32(0) {
			if _, err := io.ReadFull(r, head[:4]); err != nil {
				return err
			}
			n = binary.LittleEndian.Uint32(head[:])
		}
		if n == 0 {
			return nil
		}
		at, err := r.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		if int64(n) > size-at {
			return fmt.Errorf("a message of %d bytes, with %d left", n, size-at)
		}
		meta := make([]byte, n)
		if _, err := io.ReadFull(r, meta); err != nil {
			return err
		}
		body, err := checkMessage(meta)
		if err != nil {
			return err
		}
		if at += int64(n); body < 0 || body > size-at {
			return fmt.Errorf("a body of %d bytes, with %d left", body, size-at)
		}
		if _, err := r.Seek(body, io.SeekCurrent); err != nil {
			return err
		}
	}
}

// flat reads a flatbuffer. Whatever does not fit panics, which checkMessage
// makes an error.
type flat struct {
	b      []byte
	tables int
}

// maxTables bounds the tables of a message: those of a schema can be named many
// times over.
const maxTables = 1 << 16

func (f *flat) u32(at int) int { return int(binary.LittleEndian.Uint32(f.b[at:])) }

// field gives the place of a table's field, 0 when it is absent.
func (f *flat) field(table, i int) int {
	vtable := table - int(int32(f.u32(table)))
	if size := int(binary.LittleEndian.Uint16(f.b[vtable:])); 4+2*i+2 > size {
		return 0
	}
	o := int(binary.LittleEndian.Uint16(f.b[vtable+4+2*i:]))
	if o == 0 {
		return 0
	}
	return table + o
}

// to follows a reference.
func (f *flat) to(at int) int { return at + f.u32(at) }

// vector gives the place and number of the items of a vector, each size bytes.
func (f *flat) vector(table, i, size int) (at, n int) {
	ref := f.field(table, i)
	if ref == 0 {
		return 0, 0
	}
	at = f.to(ref)
	n = f.u32(at)
	if n > (len(f.b)-at-4)/size {
		panic(fmt.Sprintf("a list of %d items in a message of %d bytes", n, len(f.b)))
	}
	return at + 4, n
}

// fields checks a vector of schema fields and their children.
func (f *flat) fields(table, i, depth int) {
	at, n := f.vector(table, i, 4)
	if f.tables += n; f.tables > maxTables || depth > maxDepth/4 {
		panic("too many fields, or nested too deeply")
	}
	for k := range n {
		field := f.to(at + 4*k)
		f.vector(field, 0, 1) // name
		f.notes(field, 6)
		if d := f.field(field, 4); d != 0 {
			f.field(f.to(d), 0)
		}
		f.fields(field, 5, depth+1)
	}
}

// notes checks a vector of pairs of texts.
func (f *flat) notes(table, i int) {
	at, n := f.vector(table, i, 4)
	if f.tables += n; f.tables > maxTables {
		panic("too many notes")
	}
	for k := range n {
		pair := f.to(at + 4*k)
		f.vector(pair, 0, 1)
		f.vector(pair, 1, 1)
	}
}

func (f *flat) batch(table int) {
	f.vector(table, 1, 16) // nodes
	f.vector(table, 2, 16) // buffers
	f.vector(table, 4, 8)
}

// Kinds of messages.
const (
	arrowSchema     = 1
	arrowDictionary = 2
	arrowBatch      = 3
)

// checkMessage checks the lengths in a message and gives that of its body.
func checkMessage(meta []byte) (body int64, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("damaged: %v", p)
		}
	}()
	f := &flat{b: meta}
	m := f.to(0)
	if at := f.field(m, 3); at != 0 {
		body = int64(binary.LittleEndian.Uint64(meta[at:]))
	}
	f.notes(m, 4)
	kind, header := f.field(m, 1), f.field(m, 2)
	if kind == 0 || header == 0 {
		return 0, errors.New("a message without kind or content")
	}
	switch t := f.to(header); meta[kind] {
	case arrowSchema:
		f.fields(t, 1, 0)
		f.notes(t, 2)
		f.vector(t, 3, 8)
	case arrowDictionary:
		if data := f.field(t, 1); data != 0 {
			f.batch(f.to(data))
		}
	case arrowBatch:
		f.batch(t)
	}
	return body, nil
}
