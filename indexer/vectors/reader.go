package vectors

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"searchloop/indexer/flat/dots"
	"searchloop/internal/fail"
	"searchloop/internal/vec"
)

const hintDamaged = "the file is damaged: embed again, or copy it again"

// Reader reads one file. Not safe for concurrent use.
type Reader struct {
	path    string
	f       *os.File
	r       *ipc.FileReader
	batches int
	space   Space
	format  Format
}

// Batch is some consecutive rows. Its slices are valid until the next one.
type Batch struct {
	IDs     []string
	Vectors []float32 // len(IDs) * Dim, row-major
	Halves  []uint16  // the same as they are stored, of a file of half floats
}

// Open reads the schema of the file at path. A file that is not Arrow, has no
// space or other columns is refused with what was found.
func Open(path string) (r *Reader, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, "open vectors", path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	var fr *ipc.FileReader
	st, err := f.Stat()
	if err != nil {
		return nil, fail.Wrap(fail.Disk, "open vectors", path, err)
	}
	mem := &bounded{limit: int(st.Size()) + 64} // buffers are rounded up to 64 bytes
	batches := 0
	err = guard(func() (err error) {
		if err := checkFooter(f, st.Size()); err != nil {
			return err
		}
		if fr, err = ipc.NewFileReader(f, ipc.WithAllocator(mem)); err == nil {
			batches = fr.NumRecords()
		}
		return err
	})
	if err != nil {
		return nil, fail.WithHint(fail.Wrap(fail.BadInput, "open vectors", path, err), hintDamaged)
	}
	s, err := spaceOf(fr.Schema().Metadata().GetValue)
	var format Format
	if err == nil {
		format, err = columns(fr.Schema(), s.Dim)
	}
	if err != nil {
		return nil, fail.WithHint(fail.Wrap(fail.BadInput, "open vectors", path, err), "docs/vectors.md says what the file must hold; the embed job writes it")
	}
	return &Reader{path: path, f: f, r: fr, batches: batches, space: s, format: format}, nil
}

// columns checks that column 0 is the id and column 1 the vector, and gives the form of
// its numbers.
func columns(sc *arrow.Schema, dim int) (Format, error) {
	if sc.NumFields() != 2 || sc.Field(0).Name != "id" || sc.Field(1).Name != "vector" {
		return 0, fmt.Errorf("columns are not id and vector: %v", sc)
	}
	if sc.Field(0).Type.ID() != arrow.STRING {
		return 0, fmt.Errorf("column id is %v, not utf8", sc.Field(0).Type)
	}
	list, ok := sc.Field(1).Type.(*arrow.FixedSizeListType)
	if !ok || list.Elem().ID() != arrow.FLOAT32 && list.Elem().ID() != arrow.FLOAT16 {
		return 0, fmt.Errorf("column vector is %v, not a fixed-size list of float32 or float16", sc.Field(1).Type)
	}
	if int(list.Len()) != dim {
		return 0, fmt.Errorf("column vector has dimension %d, the metadata says %d", list.Len(), dim)
	}
	if list.Elem().ID() == arrow.FLOAT16 {
		return Float16, nil
	}
	return Float32, nil
}

// Format is how the numbers are stored.
func (r *Reader) Format() Format { return r.format }

// Space is what the file says of its vectors.
func (r *Reader) Space() Space { return r.space }

// Close closes the file.
func (r *Reader) Close() error {
	return fail.Wrap(fail.Disk, "close vectors", r.path, errors.Join(r.r.Close(), r.f.Close()))
}

// Batches yields all rows in order, a record batch at a time, the next one being
// read meanwhile. It ends after the first error. Nulls, NaN and infinities are
// errors with their row.
func (r *Reader) Batches() iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		free, read := make(chan *slot, 2), make(chan *slot) // one in use, one being read
		free <- new(slot)
		free <- new(slot)
		go func() {
			defer close(read)
			var row int64
			i := 0
			for s := range free {
				if i == r.batches {
					return
				}
				s.err = r.checked(i, row, s)
				read <- s
				if s.err != nil {
					return
				}
				row += int64(len(s.IDs))
				i++
			}
		}()
		defer func() {
			close(free)
			for s := range read { // the file is not read any more after this
				s.release()
			}
		}()
		for s := range read {
			if more := yield(s.Batch, s.err) && s.err == nil; !more {
				s.release()
				return
			}
			s.release()
			free <- s
		}
	}
}

// slot is a batch and the record that its numbers are a view of.
type slot struct {
	Batch
	rec arrow.Record
	own []float32 // numbers that are no view
	err error
}

func (s *slot) release() {
	if s.rec != nil {
		s.rec.Release()
		s.rec = nil
	}
}

// checked reads record batch i, which begins with row, into s.
func (r *Reader) checked(i int, row int64, s *slot) error {
	err := guard(func() error { return r.batch(i, s) })
	if err == nil {
		err = finite(s.Batch, r.space.Dim)
	}
	if err == nil {
		return nil
	}
	s.Batch = Batch{}
	var e *fail.Error
	if !errors.As(err, &e) {
		e = fail.New(fail.BadInput, "", "", "record batch %d: %w", i, err)
	}
	e.Op, e.Path, e.Hint = "read vectors", r.path, hintDamaged
	if e.Row > 0 {
		e.Row += row
	}
	return e
}

// batch reads record batch i into s.
func (r *Reader) batch(i int, s *slot) error {
	rec, err := r.r.RecordAt(i)
	if err != nil {
		return err
	}
	s.rec = rec
	ids, ok := rec.Column(0).(*array.String)
	list, ok2 := rec.Column(1).(*array.FixedSizeList)
	if !ok || !ok2 {
		return errors.New("columns have other types than the schema says")
	}
	values := list.ListValues()
	if ids.NullN() > 0 || list.NullN() > 0 || values.NullN() > 0 {
		return errors.New("holds nulls")
	}
	n, d := int(rec.NumRows()), r.space.Dim
	from := list.Data().Offset() * d
	if ids.Len() != n || list.Len() != n || values.Len() < from+n*d {
		return fmt.Errorf("%d rows, but %d ids and %d numbers of dimension %d", n, ids.Len(), values.Len(), d)
	}
	s.IDs, s.Halves = s.IDs[:0], s.Halves[:0]
	switch v := values.(type) {
	case *array.Float32:
		s.Vectors = v.Float32Values()[from : from+n*d : from+n*d]
	case *array.Float16:
		s.own = s.own[:0]
		for _, x := range v.Values()[from : from+n*d] {
			s.Halves = append(s.Halves, x.Uint16())
		}
		for _, h := range s.Halves {
			s.own = append(s.own, dots.FromHalf(h))
		}
		s.Vectors = s.own
	default:
		return errors.New("columns have other types than the schema says")
	}
	for j := range n {
		s.IDs = append(s.IDs, strings.Clone(ids.Value(j)))
	}
	return nil
}

func finite(b Batch, dim int) error {
	if i := vec.NotFinite(b.Vectors); i >= 0 {
		return &fail.Error{Kind: fail.BadInput, Row: int64(i/dim) + 1, Sample: b.IDs[i/dim], Err: errNotFinite}
	}
	return nil
}

// guard turns a panic of the Arrow reader, which trusts its input, into an error.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("not a readable Arrow file: %v", v)
		}
	}()
	err = f()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// bounded allocates for the Arrow reader, which takes lengths from the file on
// trust. Nothing in a file needs more memory than the file has bytes; more is
// refused by a panic, because running out of memory cannot be recovered from.
// What is given back is used again: the reader fills whatever it asks for, and
// fresh memory would have to be cleared for every batch.
type bounded struct {
	memory.GoAllocator
	limit int

	mu   sync.Mutex
	kept [][]byte
}

// keptMost is the number of buffers that wait to be used again: more than a batch
// and its message have.
const keptMost = 16

func (a *bounded) Allocate(size int) []byte {
	a.check(size)
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, b := range a.kept {
		if n := cap(b); n >= size && n <= 2*size {
			a.kept = slices.Delete(a.kept, i, i+1)
			return b[:size]
		}
	}
	return a.GoAllocator.Allocate(size)
}

func (a *bounded) Reallocate(size int, b []byte) []byte {
	a.check(size)
	return a.GoAllocator.Reallocate(size, b)
}

// Free takes back what nobody looks at any more.
func (a *bounded) Free(b []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.kept) == keptMost {
		a.kept = slices.Delete(a.kept, 0, 1) // the oldest: other batches may have other sizes
	}
	a.kept = append(a.kept, b[:cap(b):cap(b)])
}

func (a *bounded) check(size int) {
	if size < 0 || size > a.limit {
		panic(fmt.Sprintf("a buffer of %d bytes in a file of %d", size, a.limit))
	}
}
