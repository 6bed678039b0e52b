package journal

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"searchloop/internal/fail"
)

// Tail reads the records of a journal that another process is writing, each as soon
// as it is whole. It changes nothing in the file and takes no lock. Not safe for
// concurrent use.
type Tail struct {
	path string
	f    *os.File
	at   int64 // where the next record begins
}

// NewTail follows the journal at path, which need not be there yet.
func NewTail(path string) *Tail { return &Tail{path: path} }

// Next is the next record. ok is false when there is none yet, or when what follows
// is damaged: the owner of the journal will cut it off. After the journal was moved
// aside or made anew, its records come from the beginning, so that one may come twice.
func (t *Tail) Next() (key string, payload []byte, ok bool, err error) {
	size, err := t.look()
	if err != nil || t.f == nil {
		return "", nil, false, err
	}
	for {
		key, payload, n, err := readRecord(io.NewSectionReader(t.f, t.at, size-t.at), size-t.at)
		switch {
		case errors.Is(err, errRecord) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF): // cut since look
			return "", nil, false, nil
		case err != nil:
			return "", nil, false, fail.Wrap(fail.Disk, "follow journal", t.path, err)
		}
		if t.at += n; key != "" { // not the header
			return key, payload, true, nil
		}
	}
}

// look opens the file that is there now, and says how long it is.
func (t *Tail) look() (size int64, err error) {
	now, err := os.Stat(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, t.Close()
	}
	if err != nil {
		return 0, fail.Wrap(fail.Disk, "follow journal", t.path, err)
	}
	if t.f != nil {
		if was, err := t.f.Stat(); err != nil || !os.SameFile(was, now) || now.Size() < t.at {
			t.Close()
		}
	}
	if t.f == nil && now.Size() >= int64(len(magic)) {
		if t.f, err = os.Open(t.path); err != nil {
			t.f = nil
			if errors.Is(err, fs.ErrNotExist) {
				return 0, nil
			}
			return 0, fail.Wrap(fail.Disk, "follow journal", t.path, err)
		}
		t.at = int64(len(magic))
	}
	return now.Size(), nil
}

// Close ends the following. A later Next begins anew.
func (t *Tail) Close() error {
	if t.f == nil {
		return nil
	}
	f := t.f
	t.f, t.at = nil, 0
	return fail.Wrap(fail.Disk, "follow journal", t.path, f.Close())
}
