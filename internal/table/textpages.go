package table

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"reflect"
	"slices"
	"unsafe"

	"github.com/klauspost/compress/s2"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// What is written here is a small part of the format (github.com/apache/parquet-format):
//
//   - Data pages of version 2 (README.md, "Data Pages"; parquet.thrift, DataPageHeaderV2):
//     a header in Thrift's compact protocol, repetition levels, definition levels, and
//     the values, which alone are compressed. A page begins with a row. Its CRC is of
//     everything behind the header.
//   - Values in encoding PLAIN (Encodings.md): four bytes of length, little endian, and
//     the text.
//   - Levels, which are 0 or 1 here, in the hybrid encoding RLE (Encodings.md) as one
//     bit-packed run: (number of groups of eight)<<1 | 1 as a varint, then the bits, the
//     first in the lowest place. Version 2 writes no length before it.
//   - Or, in a column of a list whose texts repeat, encoding RLE_DICTIONARY
//     (Encodings.md): the chunk begins with a page of its different texts, in PLAIN, and
//     a page of values is the bits of a place in it, one byte, and the places as one
//     bit-packed run, the lowest bit first. Pages of both encodings may follow each other.
//   - Lists (LogicalTypes.md): of the items of a row the first has repetition level 0
//     and the others 1, all of them definition level 1; an empty list is one place of
//     repetition and definition level 0 without a value.

// pageBytes bounds the values of a page, if they are not one row's: Snappy is quickest
// for what it can look back over in 16 bits.
const pageBytes = 64 << 10

// textColumn is a column of the file. Rows are read by the places of their fields:
// reflection would take longer for a short text than to copy it.
type textColumn struct {
	path []string
	at   uintptr // of the field in a row
	list bool
	size uintptr // of an item of the list
	item uintptr // of the field in an item
}

// text is the column's text in a row that is no list.
func (c *textColumn) text(row unsafe.Pointer) string { return *(*string)(unsafe.Add(row, c.at)) }

// items gives where the list of a row begins, and its length. A slice of structs is
// laid out like any other.
func (c *textColumn) items(row unsafe.Pointer) (unsafe.Pointer, int) {
	list := *(*[]byte)(unsafe.Add(row, c.at))
	return unsafe.Pointer(unsafe.SliceData(list)), len(list)
}

// itemText is the column's text in an item of a list.
func (c *textColumn) itemText(list unsafe.Pointer, i int) string {
	return *(*string)(unsafe.Add(list, uintptr(i)*c.size+c.item))
}

// textColumns gives the columns of T.
func textColumns[T any]() ([]textColumn, error) {
	var out []textColumn
	row := reflect.TypeFor[T]()
	for i := range row.NumField() {
		f, at := row.Field(i).Type, row.Field(i).Offset
		switch {
		case f.Kind() == reflect.String:
			out = append(out, textColumn{at: at})
		case f.Kind() == reflect.Slice && f.Elem().Kind() == reflect.Struct:
			for k := range f.Elem().NumField() {
				item := f.Elem().Field(k)
				if item.Type.Kind() != reflect.String {
					return nil, fmt.Errorf("%v in a list is no text", item.Type)
				}
				out = append(out, textColumn{at: at, list: true, size: f.Elem().Size(), item: item.Offset})
			}
		default:
			return nil, fmt.Errorf("%v is neither text nor a list of structs of texts", f)
		}
	}
	schema := parquet.SchemaOf(new(T))
	paths := schema.Columns()
	if len(paths) != len(out) {
		return nil, fmt.Errorf("%d columns for %d texts", len(paths), len(out))
	}
	for i := range out {
		c, depth := &out[i], 0
		if c.list {
			depth = 1
		}
		leaf, _ := schema.Lookup(paths[i]...)
		if leaf.Node.Type().Kind() != parquet.ByteArray || leaf.MaxRepetitionLevel != depth || leaf.MaxDefinitionLevel != depth {
			return nil, fmt.Errorf("column %v is of a kind that is not written here", paths[i])
		}
		c.path = paths[i]
	}
	return out, nil
}

// written is a column chunk of the file. There are thousands in a large file, so
// that the footer's form of them, which is ten times as large, is made at its end.
type written struct {
	at               int64 // where it begins
	dictionary       int64 // bytes of the dictionary's page, with which it begins; 0: it has none
	packed, unpacked int64 // bytes with headers
	values, nulls    int64
	pages, coded     int32  // pages of values; of them with places in the dictionary
	index            []byte // the offset index, encoded
}

// metadata is the footer's form of a chunk.
func (c *textColumn) metadata(w *written) format.ColumnMetaData {
	m := format.ColumnMetaData{
		Type: format.ByteArray, Encoding: []format.Encoding{format.Plain}, PathInSchema: c.path, Codec: format.Snappy, DataPageOffset: w.at,
		NumValues: w.values, TotalCompressedSize: w.packed, TotalUncompressedSize: w.unpacked, Statistics: format.Statistics{NullCount: w.nulls},
		EncodingStats: []format.PageEncodingStats{{PageType: format.DataPageV2, Encoding: format.Plain, Count: w.pages}},
	}
	if c.list {
		m.Encoding = append(m.Encoding, format.RLE)
	}
	if w.dictionary > 0 {
		m.Encoding = append(m.Encoding, format.RLEDictionary)
		m.DictionaryPageOffset, m.DataPageOffset = w.at, w.at+w.dictionary
		m.EncodingStats = []format.PageEncodingStats{{PageType: format.DictionaryPage, Encoding: format.Plain, Count: 1},
			{PageType: format.DataPageV2, Encoding: format.RLEDictionary, Count: w.coded}}
		if plain := w.pages - w.coded; plain > 0 {
			m.EncodingStats = append(m.EncodingStats, format.PageEncodingStats{PageType: format.DataPageV2, Encoding: format.Plain, Count: plain})
		}
	}
	return m
}

// chunk is the pages of some rows in one column.
type chunk struct {
	file  []byte
	pages []textPage
	coded coded
}

// textPage is what a page holds.
type textPage struct {
	size, unpacked int // with its header
	rows           int
	values, nulls  int
}

// describe adds the chunk to a column chunk of the file; it begins with a row of the
// row group.
func (c *chunk) describe(to *written, index *format.OffsetIndex, row int64) {
	for _, p := range c.pages {
		index.PageLocations = append(index.PageLocations, format.PageLocation{Offset: to.at + to.packed, CompressedPageSize: int32(p.size), FirstRowIndex: row})
		to.values += int64(p.values)
		to.nulls += int64(p.nulls)
		to.packed += int64(p.size)
		to.unpacked += int64(p.unpacked)
		row += int64(p.rows)
	}
	to.pages += int32(len(c.pages))
}

// encodeTexts writes rows into chunks, which are emptied before.
func encodeTexts[T any](columns []textColumn, rows []T, chunks []chunk, p *pageWriter) error {
	for i := range columns {
		c := &columns[i]
		p.out, p.list = &chunks[i], c.list
		p.out.file, p.out.pages = p.out.file[:0], p.out.pages[:0]
		if c.list && p.out.coded.encode(c, unsafe.Pointer(unsafe.SliceData(rows)), unsafe.Sizeof(rows[0]), len(rows)) {
			continue
		}
		if !c.list {
			n := 0
			for k := range rows {
				n += 4 + len(c.text(unsafe.Pointer(&rows[k])))
			}
			p.out.file = slices.Grow(p.out.file, n*5/8) // what text takes: growing leaves half of the memory unused
		}
		for k := range rows {
			if !c.list {
				text := c.text(unsafe.Pointer(&rows[k]))
				p.row(4 + len(text))
				p.value(text)
				continue
			}
			list, n := c.items(unsafe.Pointer(&rows[k]))
			size := 0
			for j := range n {
				size += 4 + len(c.itemText(list, j))
			}
			p.row(size)
			if n == 0 {
				p.repetitions.add(0, p.values)
				p.definitions.add(0, p.values)
				p.values++
				p.nulls++
			}
			for j := range n {
				p.repetitions.add(min(1, j), p.values)
				p.definitions.add(1, p.values)
				p.value(c.itemText(list, j))
			}
		}
		p.end()
		if p.err != nil {
			return p.err
		}
	}
	return nil
}

// pageWriter gathers a page and appends it to a chunk. It serves one chunk after the
// other.
type pageWriter struct {
	out                      *chunk
	list                     bool
	text                     []byte // the values
	repetitions, definitions bits
	textPage
	packed []byte
	header bytes.Buffer
	err    error
}

// row begins a row whose values take size bytes.
func (p *pageWriter) row(size int) {
	if p.rows > 0 && len(p.text)+size > pageBytes {
		p.end()
	}
	p.rows++
}

func (p *pageWriter) value(s string) {
	p.text = binary.LittleEndian.AppendUint32(p.text, uint32(len(s)))
	p.text = append(p.text, s...)
	p.values++
}

// end writes the page, if there is one.
func (p *pageWriter) end() {
	if p.rows == 0 || p.err != nil {
		return
	}
	var levels []byte
	repetitions := 0
	if p.list {
		levels = p.repetitions.run(nil)
		repetitions = len(levels)
		levels = p.definitions.run(levels)
	}
	if len(levels)+len(p.text) > math.MaxInt32 {
		p.err = fmt.Errorf("a row of %d bytes", len(p.text))
		return
	}
	body := p.text
	if len(p.text) > 0 { // without values nothing is compressed: readers differ over the compressed form of nothing
		p.packed = p.packed[:cap(p.packed)]
		p.packed = s2.EncodeSnappy(p.packed, p.text)
		body = p.packed
	}
	if p.err = p.out.add(&p.textPage, format.Plain, levels, repetitions, body, len(p.text), &p.header); p.err != nil {
		return
	}
	p.text, p.repetitions, p.definitions, p.textPage = p.text[:0], p.repetitions[:0], p.definitions[:0], textPage{}
}

// add appends a page: its levels, of which the repetitions take so many bytes, and its
// values, which took unpacked bytes before they were compressed, if they are.
func (c *chunk) add(p *textPage, encoding format.Encoding, levels []byte, repetitions int, body []byte, unpacked int, buf *bytes.Buffer) error {
	header := format.PageHeader{
		Type:                 format.DataPageV2,
		UncompressedPageSize: int32(len(levels) + unpacked),
		CompressedPageSize:   int32(len(levels) + len(body)),
		CRC:                  int32(crc32.Update(crc32.ChecksumIEEE(levels), crc32.IEEETable, body)),
	}
	header.DataPageHeaderV2 = thrift.New(format.DataPageHeaderV2{
		NumValues: int32(p.values), NumNulls: int32(p.nulls), NumRows: int32(p.rows), Encoding: encoding,
		RepetitionLevelsByteLength: int32(repetitions), DefinitionLevelsByteLength: int32(len(levels) - repetitions),
		IsCompressed: thrift.New(encoding == format.Plain && unpacked > 0), Statistics: format.Statistics{NullCount: int64(p.nulls)},
	})
	buf.Reset()
	if err := thrift.NewEncoder(new(thrift.CompactProtocol).NewWriter(buf)).Encode(&header); err != nil {
		return err
	}
	p.size = buf.Len() + len(levels) + len(body)
	p.unpacked = buf.Len() + len(levels) + unpacked
	c.file, c.pages = append(append(append(c.file, buf.Bytes()...), levels...), body...), append(c.pages, *p)
	return nil
}

// bits are levels, eight a byte.
type bits []byte

// add appends a level, the n-th from 0.
func (b *bits) add(level, n int) {
	if n%8 == 0 {
		*b = append(*b, 0)
	}
	(*b)[n/8] |= byte(level) << (n % 8)
}

// run appends the bit-packed run of all levels.
func (b bits) run(dst []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))<<1|1), b...)
}
