package table

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	mathbits "math/bits"
	"strings"
	"unsafe"

	"github.com/klauspost/compress/s2"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// A slice's texts of a list go into a dictionary when each comes so many times on
// average: fewer are as small without, by Snappy. A dictionary has at most so many
// texts, and bytes of them.
const (
	minRepeats     = 4
	dictionaryMost = 1 << 20
)

// coded is the texts of a slice in a column of a list, as places among those that are
// different. It is empty when they do not repeat.
type coded struct {
	used   bool
	texts  []string // that are different, in the order in which they come
	places []uint32 // of the values
	page   textPage
	levels []byte
	first  int // bytes of levels that are repetitions

	known                    map[string]uint32
	repetitions, definitions bits
}

// encode finds the different texts of n rows, and says whether they repeat enough.
func (d *coded) encode(c *textColumn, rows unsafe.Pointer, size uintptr, n int) bool {
	d.used, d.texts, d.places, d.page = false, d.texts[:0], d.places[:0], textPage{rows: n}
	d.repetitions, d.definitions = d.repetitions[:0], d.definitions[:0]
	if d.known == nil {
		d.known = map[string]uint32{}
	}
	defer func() { // the rows are not kept
		clear(d.known)
		if !d.used {
			clear(d.texts)
		}
	}()
	bytes, all := 0, 0
	for k := range n {
		list, items := c.items(unsafe.Add(rows, uintptr(k)*size))
		if items == 0 {
			d.repetitions.add(0, d.page.values)
			d.definitions.add(0, d.page.values)
			d.page.values++
			d.page.nulls++
		}
		for j := range items {
			text := c.itemText(list, j)
			place, ok := d.known[text]
			if !ok {
				place = uint32(len(d.texts))
				d.known[text], d.texts = place, append(d.texts, text)
				bytes += 4 + len(text)
			}
			all += 4 + len(text)
			d.places = append(d.places, place)
			d.repetitions.add(min(1, j), d.page.values)
			d.definitions.add(1, d.page.values)
			d.page.values++
		}
		// Soon enough it shows that nothing repeats.
		if len(d.texts) > 256 && minRepeats*len(d.texts) > 3*len(d.places) || bytes > dictionaryMost {
			return false
		}
	}
	if len(d.places) == 0 || minRepeats*bytes > all {
		return false
	}
	d.levels = d.repetitions.run(d.levels[:0])
	d.first = len(d.levels)
	d.levels = d.definitions.run(d.levels)
	for i, s := range d.texts {
		d.texts[i] = strings.Clone(s)
	}
	d.used = true
	return true
}

// dictionary is that of a column chunk.
type dictionary struct {
	place map[string]uint32
	text  []byte // PLAIN
}

// join makes one dictionary of those of a row group's chunks of a column, writes
// their pages, and gives the dictionary's page; nil when no chunk has a dictionary.
func join(chunks []*chunk) ([]byte, int, error) {
	d := dictionary{place: map[string]uint32{}}
	for _, c := range chunks {
		if c.coded.used {
			for _, s := range c.coded.texts {
				if _, ok := d.place[s]; !ok {
					d.place[s] = uint32(len(d.place))
					d.text = append(binary.LittleEndian.AppendUint32(d.text, uint32(len(s))), s...)
				}
			}
		}
	}
	if len(d.place) == 0 {
		return nil, 0, nil
	}
	width := mathbits.Len(uint(len(d.place) - 1))
	var buf bytes.Buffer
	var body []byte
	for _, c := range chunks {
		x := &c.coded
		if !x.used {
			continue
		}
		to := make([]uint32, len(x.texts))
		for i, s := range x.texts {
			to[i] = d.place[s]
		}
		body = packPlaces(append(body[:0], byte(width)), x.places, to, width)
		if err := c.add(&x.page, format.RLEDictionary, x.levels, x.first, body, len(body), &buf); err != nil {
			return nil, 0, err
		}
		clear(x.texts)
	}
	packed := s2.EncodeSnappy(nil, d.text)
	header := format.PageHeader{Type: format.DictionaryPage, UncompressedPageSize: int32(len(d.text)), CompressedPageSize: int32(len(packed)), CRC: int32(crc32.ChecksumIEEE(packed))}
	header.DictionaryPageHeader = thrift.New(format.DictionaryPageHeader{NumValues: int32(len(d.place)), Encoding: format.Plain})
	buf.Reset()
	if err := thrift.NewEncoder(new(thrift.CompactProtocol).NewWriter(&buf)).Encode(&header); err != nil {
		return nil, 0, err
	}
	return append(buf.Bytes(), packed...), buf.Len() + len(d.text), nil
}

// packPlaces appends a bit-packed run of to[place] for all places.
func packPlaces(dst []byte, places, to []uint32, width int) []byte {
	groups := (len(places) + 7) / 8
	dst = binary.AppendUvarint(dst, uint64(groups)<<1|1)
	end := len(dst) + groups*width
	bits, n := uint64(0), 0
	for _, p := range places {
		bits |= uint64(to[p]) << n
		for n += width; n >= 8; n -= 8 {
			dst = append(dst, byte(bits))
			bits >>= 8
		}
	}
	if n > 0 {
		dst = append(dst, byte(bits))
	}
	for len(dst) < end {
		dst = append(dst, 0)
	}
	return dst
}
