package record

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"searchloop/internal/fail"
)

// MaxLine bounds one line. A longer one is no record: its Line carries an error.
const MaxLine = 64 << 20

// peekBytes is the buffer of Open's readers; larger reads pass it by.
const peekBytes = 64 << 10

// Line is one line of a text file. Data has no line end and is valid until the
// next line is asked for. Err is set when the line alone is unusable.
type Line struct {
	N    int64 // 1-based
	Data []byte
	Err  error
}

// Open opens a text file, decompressing gzip and zstd, which it knows by their
// first bytes and not by the name. A byte order mark is dropped. Read errors
// carry the path and a remedy.
func Open(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, openError(path, err)
	}
	in := bufio.NewReaderSize(f, peekBytes)
	t := &textFile{path: path, file: f, in: in}
	head, err := in.Peek(4)
	if err != nil && err != io.EOF {
		f.Close()
		return nil, readError(path, err)
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(in)
		if err != nil {
			f.Close()
			return nil, readError(path, err)
		}
		t.packed, t.in = z, bufio.NewReaderSize(z, peekBytes)
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(1<<31), zstd.WithDecoderConcurrency(2))
		if err != nil {
			f.Close()
			return nil, readError(path, err)
		}
		t.packed, t.in = z.IOReadCloser(), bufio.NewReaderSize(z, peekBytes)
	}
	if mark, _ := t.in.Peek(3); string(mark) == "\ufeff" {
		t.in.Discard(3)
	}
	return t, nil
}

type textFile struct {
	path   string
	file   *os.File
	packed io.Closer
	in     *bufio.Reader
}

func (t *textFile) Read(p []byte) (int, error) {
	n, err := t.in.Read(p)
	if err != nil && err != io.EOF {
		err = readError(t.path, err)
	}
	return n, err
}

func (t *textFile) Close() error {
	var err error
	if t.packed != nil {
		err = t.packed.Close()
	}
	return errors.Join(err, t.file.Close())
}

func openError(path string, err error) error {
	e := fail.New(fail.BadInput, "open", path, "%w", err)
	if errors.Is(err, fs.ErrNotExist) {
		e.Err, e.Hint = fs.ErrNotExist, "check the path"
	}
	return e
}

func readError(path string, err error) error {
	return fail.WithHint(fail.Wrap(fail.BadInput, "read", path, err),
		"the file is cut short or damaged: fetch it again and compare its size with the published one")
}
