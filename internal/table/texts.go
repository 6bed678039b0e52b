package table

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"searchloop/internal/fail"
)

const (
	sliceBytes = 1 << 20 // of rows that are encoded together, on one core
	textGroup  = 8 << 20 // of the rows of a row group, of which only the pages are kept; the last one is written at once
	maxSlices  = 16      // in work at most, however many cores there are
	rowCost    = 16      // what a row counts beside its texts: a slice of empty rows ends, too
)

// Texts writes rows of texts like Writer, encoded on all cores, and with Snappy in
// place of zstd, which would take most of the time: for large tables that are made
// at the speed of the disk. Texts of lists that repeat are written once a row group. A row has fields of type string, and lists of structs
// of strings. Equal rows give equal bytes, whatever the number of cores. It is not
// safe for concurrent use.
type Texts[T any] struct {
	w       io.Writer
	at      int64 // bytes written
	size    func(*T) int
	columns []textColumn
	footer  format.FileMetaData // without row groups
	chunks  []written           // of all row groups, column by column
	counts  []int64             // rows of each row group
	index   format.OffsetIndex  // its memory is used again
	limit   int                 // sliceBytes
	most    int                 // textGroup
	rows    []T                 // of the slice that is being gathered
	bytes   int
	work    []chan *slice[T] // being encoded, in order
	free    sync.Pool        // of *slice[T] that are written
	group   []*slice[T]      // encoded, of the row group that is being gathered
	grouped int              // bytes of their rows
	err     error
}

// slice is some rows as pages, a chunk for each column. Its memory is used again.
type slice[T any] struct {
	n      int64 // rows
	bytes  int
	chunks []chunk
	pages  pageWriter
	err    error
}

// NewTexts begins a file on w. size says about how many bytes a row has; row groups
// are cut by it.
func NewTexts[T any](w io.Writer, size func(*T) int) *Texts[T] {
	t := &Texts[T]{w: w, size: size, limit: sliceBytes, most: textGroup}
	t.err = guard(fail.Bug, "write table", "", func() (err error) {
		if t.columns, err = textColumns[T](); err != nil {
			return err
		}
		if err := t.write([]byte(magic)); err != nil {
			return err
		}
		t.footer, err = emptyFooter[T]()
		return err
	})
	return t
}

// emptyFooter is the footer that the library writes for no rows.
func emptyFooter[T any]() (out format.FileMetaData, err error) {
	var b bytes.Buffer
	if err := parquet.NewGenericWriter[T](&b, options[T](&parquet.Snappy)...).Close(); err != nil {
		return out, err
	}
	end := b.Len() - 8
	size := int(binary.LittleEndian.Uint32(b.Bytes()[end:]))
	return out, thrift.Unmarshal(new(thrift.CompactProtocol), b.Bytes()[end-size:end], &out)
}

func (t *Texts[T]) write(b []byte) error {
	n, err := t.w.Write(b)
	t.at += int64(n)
	return err
}

// Write appends rows. They are kept for a while and must not change any more.
// After an error the file is lost.
func (t *Texts[T]) Write(rows ...T) error {
	for i := range rows {
		t.rows = append(t.rows, rows[i])
		if t.bytes += t.size(&rows[i]) + rowCost; t.bytes >= t.limit {
			t.begin()
		}
	}
	return t.err
}

// begin encodes the gathered slice.
func (t *Texts[T]) begin() {
	if len(t.work) >= min(1+runtime.GOMAXPROCS(0), maxSlices) {
		t.take()
	}
	rows, done := t.rows, make(chan *slice[T], 1)
	t.rows, t.bytes = make([]T, 0, len(rows)), 0
	t.work = append(t.work, done)
	go func() { done <- t.encode(rows) }()
}

func (t *Texts[T]) encode(rows []T) *slice[T] {
	s, ok := t.free.Get().(*slice[T])
	if !ok {
		s = &slice[T]{chunks: make([]chunk, len(t.columns))}
	}
	s.n, s.bytes = int64(len(rows)), 0
	for i := range rows {
		s.bytes += t.size(&rows[i]) + rowCost
	}
	s.err = guard(fail.Bug, "write table", "", func() error { return encodeTexts(t.columns, rows, s.chunks, &s.pages) })
	return s
}

// Encoded are rows on their way into a file.
type Encoded[T any] struct{ s *slice[T] }

// Encode is the work of Write that needs no order: whoever has just made some rows,
// about a megabyte of them, may encode them where they are. It may be called at the
// same time for several. The rows are not kept. Append must follow, or nothing.
func (t *Texts[T]) Encode(rows []T) Encoded[T] { return Encoded[T]{t.encode(rows)} }

// Append appends encoded rows, once.
func (t *Texts[T]) Append(e Encoded[T]) error {
	if t.settle(); e.s.n > 0 {
		t.add(e.s)
	}
	return t.err
}

// settle encodes what was gathered and waits for all that is in work.
func (t *Texts[T]) settle() {
	if len(t.rows) > 0 {
		t.begin()
	}
	for len(t.work) > 0 {
		t.take() // the error stays in t
	}
}

// take waits for the first slice in work.
func (t *Texts[T]) take() {
	s := <-t.work[0]
	t.work = t.work[1:]
	t.add(s)
}

// add puts the next slice into its row group.
func (t *Texts[T]) add(s *slice[T]) {
	if t.err == nil {
		t.err = s.err
	}
	t.group = append(t.group, s)
	if t.grouped += s.bytes; t.grouped >= t.most && t.err == nil {
		t.err = guard(fail.Bug, "write table", "", t.flush)
	}
}

// flush writes the gathered row group: of each column the chunks of all slices.
func (t *Texts[T]) flush() error {
	if len(t.counts) == parquet.MaxRowGroups {
		return parquet.ErrTooManyRowGroups
	}
	rows := int64(0)
	for i := range t.columns {
		c := written{at: t.at}
		t.index.Reset()
		rows = 0
		var all []*chunk
		for _, s := range t.group {
			all = append(all, &s.chunks[i])
		}
		page, unpacked, err := join(all)
		if err != nil {
			return err
		}
		if c.dictionary = int64(len(page)); page != nil {
			c.packed, c.unpacked = c.dictionary, int64(unpacked)
			if err := t.write(page); err != nil {
				return err
			}
		}
		for _, s := range t.group {
			if s.chunks[i].coded.used {
				c.coded++
			}
			s.chunks[i].describe(&c, &t.index, rows)
			if err := t.write(s.chunks[i].file); err != nil {
				return err
			}
			rows += s.n
		}
		if c.index, err = thrift.Marshal(new(thrift.CompactProtocol), &t.index); err != nil {
			return err
		}
		c.index = bytes.Clone(c.index) // without the room that it grew in
		t.chunks = append(t.chunks, c)
	}
	t.footer.NumRows += rows
	t.counts = append(t.counts, rows)
	for _, s := range t.group {
		t.free.Put(s)
	}
	t.group, t.grouped = t.group[:0], 0
	return nil
}

// Close ends the file.
func (t *Texts[T]) Close() error {
	if t.settle(); t.err != nil {
		return t.err
	}
	if t.err = guard(fail.Bug, "write table", "", t.end); t.err != nil {
		return t.err
	}
	t.err = fail.New(fail.Bug, "write table", "", "closed already")
	return nil
}

// end writes the last row group, the offsets of all pages and the footer.
func (t *Texts[T]) end() error {
	if len(t.group) > 0 {
		if err := t.flush(); err != nil {
			return err
		}
	}
	for i, rows := range t.counts {
		chunks := t.chunks[i*len(t.columns):][:len(t.columns)]
		g := format.RowGroup{FileOffset: chunks[0].at, Ordinal: int16(i), NumRows: rows}
		for k := range chunks {
			c := &chunks[k]
			g.TotalByteSize += c.unpacked
			g.TotalCompressedSize += c.packed
			g.Columns = append(g.Columns, format.ColumnChunk{MetaData: t.columns[k].metadata(c), OffsetIndexOffset: t.at, OffsetIndexLength: int32(len(c.index))})
			if err := t.write(c.index); err != nil {
				return err
			}
		}
		t.footer.RowGroups = append(t.footer.RowGroups, g)
	}
	text, err := thrift.Marshal(new(thrift.CompactProtocol), &t.footer)
	if err != nil {
		return err
	}
	if int64(len(text)) > 1<<31-1 {
		return fmt.Errorf("the footer has %d bytes", len(text))
	}
	return t.write(append(binary.LittleEndian.AppendUint32(text, uint32(len(text))), magic...))
}

// Rows is the number of rows that are in the file; after Close, of all.
func (t *Texts[T]) Rows() int64 { return t.footer.NumRows }
