package passages

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/parquet-go/parquet-go"

	"searchloop/corpus"
	"searchloop/internal/fail"
)

// file reads single rows of one Parquet file. A reader keeps the page it is on,
// so several are kept for goroutines that ask at the same time.
type file struct {
	path    string
	f       *os.File
	pf      *parquet.File
	readers sync.Pool
}

func openFile(path string, rows int64) (*file, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, "open passages", path, err)
	}
	x := &file{path: path, f: f}
	err = guard(func() error {
		st, err := f.Stat()
		if err != nil {
			return err
		}
		if x.pf, err = parquet.OpenFile(f, st.Size()); err != nil {
			return err
		}
		if x.pf.NumRows() != rows {
			return fmt.Errorf("%d rows, the manifest says %d", x.pf.NumRows(), rows)
		}
		return nil
	})
	if err != nil {
		f.Close()
		return nil, &fail.Error{Kind: fail.BadInput, Op: "open passages", Path: path, Err: err, Hint: "the file is damaged: run prep again"}
	}
	return x, nil
}

func (x *file) at(row int64) (p corpus.Passage, err error) {
	err = guard(func() error {
		r, _ := x.readers.Get().(*parquet.GenericReader[corpus.Passage])
		if r == nil {
			r = parquet.NewGenericReader[corpus.Passage](x.pf)
		}
		if err := r.SeekToRow(row); err != nil {
			return err
		}
		var out [1]corpus.Passage
		n, err := r.Read(out[:])
		if n != 1 {
			return fmt.Errorf("the row cannot be read: %w", errors.Join(err, io.ErrUnexpectedEOF))
		}
		p = out[0]
		x.readers.Put(r)
		return nil
	})
	if err != nil {
		return p, &fail.Error{Kind: fail.BadInput, Op: "read passage", Path: x.path, Row: row + 1, Err: err, Hint: "the file is damaged: run prep again"}
	}
	return p, nil
}

func (x *file) close() error { return fail.Wrap(fail.Disk, "close passages", x.path, x.f.Close()) }

// guard turns a panic of the Parquet reader, which trusts its input, into an error.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("not readable Parquet: %v", v)
		}
	}()
	return f()
}
