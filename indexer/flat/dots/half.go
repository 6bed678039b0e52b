package dots

import (
	"encoding/binary"
	"math"
)

// Decode reads len(dst) numbers of kind k from src.
func Decode(dst []float32, src []byte, k Kind) {
	for i := range dst {
		switch k {
		case F32:
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		case F16:
			dst[i] = FromHalf(binary.LittleEndian.Uint16(src[2*i:]))
		case U8:
			dst[i] = float32(src[i])
		}
	}
}

// FromHalf is the value of an IEEE 754 half-precision number.
func FromHalf(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	e, m := uint32(h>>10&31), uint32(h&0x3ff)
	switch {
	case e == 31:
		return math.Float32frombits(sign | 0x7f800000 | m<<13)
	case e > 0:
		return math.Float32frombits(sign | (e+112)<<23 | m<<13)
	}
	// Subnormal: m times 2^-24, exactly.
	f := float32(m) * (1.0 / (1 << 24))
	return math.Float32frombits(math.Float32bits(f) | sign)
}

// FiniteHalf says whether h is neither NaN nor an infinity.
func FiniteHalf(h uint16) bool { return h&0x7c00 != 0x7c00 }

// ToHalf rounds f to the nearest half-precision number, ties to even; what is too
// large becomes an infinity.
func ToHalf(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00
	case b >= 0x477ff000: // 65520, half way to what would follow the largest
		return sign | 0x7c00
	case b < 0x38800000: // below the smallest normal number, 2^-14
		// Adding 0.5 leaves a float32 whose last bit counts 2^-24.
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
	}
	b += 0xfff + b>>13&1
	return sign | uint16((b-0x38000000)>>13)
}
