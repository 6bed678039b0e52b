package picture

import (
	"encoding/binary"
	"errors"
	"image"
)

// AVIF is an AV1 frame in a box file (ISO/IEC 14496-12 and 23008-12). Sizes and
// orientation are read here from the boxes; decodeAVIF, which runs libavif as
// WebAssembly and never loads a library of the system, is built in with the tag
// nodynamic (make sets it), because without it the decoder's package would make
// every program dynamically linked.

func avifConfig(data []byte) (image.Config, error) {
	b := readAVIF(data)
	if b.cut {
		return image.Config{}, errors.New("the AVIF file is cut short") // libavif would make up the rest
	}
	if b.w == 0 || b.h == 0 {
		return image.Config{}, errors.New("no size in the AVIF header")
	}
	return image.Config{Width: b.w, Height: b.h}, nil
}

// avifBoxes is what the boxes of an image say.
type avifBoxes struct {
	w, h   int // of the largest item: the image, not its tiles or its alpha
	orient int // as EXIF counts
	cut    bool
}

// maxBoxDepth bounds the nesting of boxes that are entered.
const maxBoxDepth = 4

func readAVIF(data []byte) avifBoxes {
	b := avifBoxes{orient: 1}
	angle, mirror := 0, -1
	var walk func(data []byte, depth int)
	walk = func(data []byte, depth int) {
		for len(data) >= 8 && depth <= maxBoxDepth {
			n, head := uint64(binary.BigEndian.Uint32(data)), uint64(8)
			switch {
			case n == 1 && len(data) >= 16:
				n, head = binary.BigEndian.Uint64(data[8:]), 16
			case n == 0:
				n = uint64(len(data))
			}
			if n < head || n > uint64(len(data)) {
				b.cut = true
				return
			}
			body := data[head:n]
			switch string(data[4:8]) {
			case "meta":
				if len(body) >= 4 {
					walk(body[4:], depth+1)
				}
			case "iprp", "ipco":
				walk(body, depth+1)
			case "ispe":
				if len(body) >= 12 {
					w, h := binary.BigEndian.Uint32(body[4:]), binary.BigEndian.Uint32(body[8:])
					if uint64(w)*uint64(h) > uint64(b.w)*uint64(b.h) && w < 1<<31 && h < 1<<31 {
						b.w, b.h = int(w), int(h)
					}
				}
			case "irot":
				if len(body) >= 1 {
					angle = int(body[0] & 3)
				}
			case "imir":
				if len(body) >= 1 {
					mirror = int(body[0] & 1)
				}
			}
			data = data[n:]
		}
		b.cut = b.cut || depth == 0 && len(data) > 0
	}
	walk(data, 0)
	// A turn by angle × 90° against the clock, then a mirror: 0 swaps top and
	// bottom, 1 left and right.
	b.orient = [...][4]int{{1, 8, 3, 6}, {4, 5, 2, 7}, {2, 7, 4, 5}}[mirror+1][angle]
	return b
}
