package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"searchloop/internal/fail"
)

// Parquet reads a foreign Parquet file column by column. Only the columns that
// are asked for are read, and only at the rows asked for. It is not safe for
// concurrent use.
type Parquet struct {
	path   string
	file   *os.File
	pf     *parquet.File
	starts []int64 // first row of every row group, and the number of rows
	fields map[string]*field
}

// OpenParquet reads the schema of a file. It takes every layout that pyarrow,
// pandas, Hugging Face datasets and parquet-go write: lists of two and three
// levels, leaves of the NULL type, dictionaries, text without annotation.
func OpenParquet(path string) (p *Parquet, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, openError(path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	p = &Parquet{path: path, file: f, starts: []int64{0}, fields: map[string]*field{}}
	err = p.guard(0, func() error {
		st, err := f.Stat()
		if err != nil {
			return err
		}
		if err := checkFrame(f, st.Size()); err != nil {
			return err
		}
		p.pf, err = parquet.OpenFile(f, st.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
		if err != nil {
			return err
		}
		rows := int64(0)
		for _, g := range p.pf.RowGroups() {
			if g.NumRows() < 0 {
				return errors.New("a row group has a negative number of rows")
			}
			rows += g.NumRows()
			p.starts = append(p.starts, rows)
		}
		for _, g := range p.pf.Metadata().RowGroups {
			for _, c := range g.Columns {
				if c.MetaData.Codec == format.Lz4Raw {
					return errLZ4
				}
			}
		}
		for _, c := range p.pf.Root().Columns() {
			p.fields[c.Name()] = &field{root: nodeOf(c, 0, 0), row: -1}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// checkFrame checks both ends of the file, before the library allocates what the
// footer claims to need.
func checkFrame(f io.ReaderAt, size int64) error {
	var head, tail [8]byte
	if size < 12 {
		return fmt.Errorf("the file has %d bytes", size)
	}
	if _, err := f.ReadAt(head[:4], 0); err != nil {
		return err
	}
	if _, err := f.ReadAt(tail[:], size-8); err != nil {
		return err
	}
	if string(head[:4]) != magic || string(tail[4:]) != magic {
		return errors.New("the file does not begin and end as Parquet does")
	}
	if n := int64(binary.LittleEndian.Uint32(tail[:])); n > size-12 {
		return fmt.Errorf("the footer claims %d bytes of %d", n, size)
	}
	return nil
}

const magic = "PAR1"

// errLZ4: the library's LZ4 decoder doubles its buffer for ever when a page is
// damaged, which no recover can stop.
var errLZ4 = errors.New("the file is compressed with LZ4, which cannot be read safely")

// Close closes the file. Values that were read stay valid.
func (p *Parquet) Close() error { return p.file.Close() }

// Rows is the number of rows.
func (p *Parquet) Rows() int64 { return p.starts[len(p.starts)-1] }

// Has says whether there is a top-level column of that name.
func (p *Parquet) Has(column string) bool { return p.fields[column] != nil }

// Columns gives the names of the top-level columns in order of the file.
func (p *Parquet) Columns() []string {
	var names []string
	for _, c := range p.pf.Root().Columns() {
		names = append(names, c.Name())
	}
	return names
}

// Get reads one top-level column of one row, counted from 0; null when there is
// no such column. Going forward is cheap, going back is not. The value stays
// valid after further calls.
func (p *Parquet) Get(row int64, column string) (v Value, err error) {
	fd := p.fields[column]
	if fd == nil {
		return Value{}, nil
	}
	if fd.row == row {
		return fd.last, nil
	}
	err = p.guard(row+1, func() error {
		g := sort.Search(len(p.starts)-1, func(i int) bool { return p.starts[i+1] > row })
		if row < 0 || g == len(p.starts)-1 {
			return fmt.Errorf("there is no row %d", row+1)
		}
		for _, l := range fd.root.leaves {
			if err := l.read(p.pf.RowGroups()[g], p.starts[g], row); err != nil {
				return fmt.Errorf("column %s: %w", column, err)
			}
		}
		fd.last, fd.row = fd.root.value(), row
		return nil
	})
	return fd.last, err
}

// guard turns errors and panics of the Parquet library, which a flipped bit can
// cause, into errors with path, row and remedy.
func (p *Parquet) guard(row int64, read func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the Parquet reader failed: %v", r)
		}
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			e := fail.Wrap(fail.BadInput, "read Parquet", p.path, err).(*fail.Error)
			e.Row = row
			e.Hint = "the file is cut short, damaged or not Parquet: fetch it again and compare its size with the published one"
			if err == errLZ4 {
				e.Hint = "write it again with zstd or snappy"
			}
			err = e
		}
	}()
	return read()
}

// field is one top-level column and the value read last.
type field struct {
	root *node
	row  int64
	last Value
}

// leaf reads one physical column, row by row.
type leaf struct {
	column int
	group  parquet.RowGroup
	pages  parquet.Pages
	values parquet.ValueReader
	buf    [32]parquet.Value
	at, n  int
	next   int64           // row that comes next
	row    []parquet.Value // the values of the row read last
	pos    int             // how many of them were taken
}

// read puts the values of one row into l.row. Rows on the way are read and
// dropped, which is right for pages that do not begin at a row, too. Pages are
// never released, so that values stay valid; the garbage collector has them.
func (l *leaf) read(group parquet.RowGroup, start, row int64) error {
	if l.group != group || row < l.next {
		if l.pages != nil {
			l.pages.Close()
		}
		l.group, l.pages = group, group.ColumnChunks()[l.column].Pages()
		l.values, l.at, l.n, l.next = nil, 0, 0, start
	}
	for l.next < row {
		if err := l.one(); err != nil {
			return err
		}
	}
	return l.one()
}

// one reads the next row.
func (l *leaf) one() error {
	l.row, l.pos = l.row[:0], 0
	for {
		more, err := l.fill()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		v := l.buf[l.at]
		if len(l.row) > 0 && v.RepetitionLevel() == 0 {
			break
		}
		l.row = append(l.row, v)
		l.at++
	}
	if len(l.row) == 0 {
		return io.ErrUnexpectedEOF
	}
	l.next++
	return nil
}

// fill makes sure that a value is at hand; false at the end of the row group.
func (l *leaf) fill() (bool, error) {
	for l.at == l.n {
		if l.values == nil {
			page, err := l.pages.ReadPage()
			if err == io.EOF {
				return false, nil
			}
			if err != nil {
				return false, err
			}
			l.values = page.Values()
		}
		n, err := l.values.ReadValues(l.buf[:])
		l.at, l.n = 0, n
		if err == io.EOF {
			l.values = nil
		} else if err != nil {
			return false, err
		} else if n == 0 {
			return false, io.ErrNoProgress
		}
	}
	return true, nil
}
