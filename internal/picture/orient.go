package picture

import (
	"bytes"
	"encoding/binary"
)

// orientation returns the EXIF orientation of a file, 1 (as stored) to 8. Damaged
// or missing EXIF data means 1.
func orientation(format string, data []byte) int {
	var exif []byte
	switch format {
	case "jpeg":
		exif = jpegExif(data)
	case "png":
		exif = chunk(data[8:], "eXIf", binary.BigEndian, 4)
	case "avif":
		return readAVIF(data).orient // EXIF data does not count beside it
	case "webp":
		exif = chunk(data[12:], "EXIF", binary.LittleEndian, 0)
	}
	return tiffOrientation(bytes.TrimPrefix(exif, []byte("Exif\x00\x00")))
}

// jpegExif returns the APP1 segment that holds EXIF.
func jpegExif(data []byte) []byte {
	for i := 2; i+4 <= len(data); {
		if data[i] != 0xff {
			return nil
		}
		marker := data[i+1]
		if marker == 0xff { // fill
			i++
			continue
		}
		if marker == 0xda || marker == 0xd9 { // pixels begin
			return nil
		}
		n := int(binary.BigEndian.Uint16(data[i+2:]))
		if n < 2 || i+2+n > len(data) {
			return nil
		}
		body := data[i+4 : i+2+n]
		if marker == 0xe1 && bytes.HasPrefix(body, []byte("Exif\x00\x00")) {
			return body
		}
		i += 2 + n
	}
	return nil
}

// chunk finds a chunk by name in PNG's layout (length, name, body, 4 bytes of
// sum) or RIFF's (name, length, body, even padding).
func chunk(data []byte, name string, order binary.ByteOrder, sum int) []byte {
	for len(data) >= 8 {
		head, length := string(data[:4]), order.Uint32(data[4:])
		if sum > 0 {
			head, length = string(data[4:8]), order.Uint32(data[:4])
		}
		data = data[8:]
		if uint64(length) > uint64(len(data)) {
			return nil
		}
		if head == name {
			return data[:length]
		}
		skip := int(length) + sum
		if sum == 0 {
			skip += skip & 1
		}
		data = data[min(skip, len(data)):]
	}
	return nil
}

// tiffOrientation reads tag 0x0112 of the first directory.
func tiffOrientation(b []byte) int {
	if len(b) < 8 {
		return 1
	}
	var order binary.ByteOrder
	switch string(b[:4]) {
	case "II*\x00":
		order = binary.LittleEndian
	case "MM\x00*":
		order = binary.BigEndian
	default:
		return 1
	}
	at := uint64(order.Uint32(b[4:]))
	if at+2 > uint64(len(b)) {
		return 1
	}
	n := int(order.Uint16(b[at:]))
	for b = b[at+2:]; n > 0 && len(b) >= 12; n, b = n-1, b[12:] {
		const short = 3
		if order.Uint16(b) == 0x0112 && order.Uint16(b[2:]) == short {
			if o := int(order.Uint16(b[8:])); o >= 1 && o <= 8 {
				return o
			}
			return 1
		}
	}
	return 1
}

// orient turns and mirrors the stored picture the way EXIF orientation o says.
func (p *Picture) orient(o int) *Picture {
	if o <= 1 {
		return p
	}
	q := &Picture{W: p.W, H: p.H, Pix: make([]uint8, len(p.Pix))}
	if o >= 5 {
		q.W, q.H = p.H, p.W
	}
	for y := range q.H {
		for x := range q.W {
			sx, sy := x, y
			if o >= 5 {
				sx, sy = y, x
			}
			if o == 2 || o == 3 || o == 7 || o == 8 {
				sx = p.W - 1 - sx
			}
			if o == 3 || o == 4 || o == 6 || o == 7 {
				sy = p.H - 1 - sy
			}
			copy(q.Pix[3*(y*q.W+x):][:3], p.Pix[3*(sy*p.W+sx):])
		}
	}
	return q
}
