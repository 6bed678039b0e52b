package safetensors

import (
	"encoding/binary"
	"math"
)

// FromBF16 widens a bfloat16.
func FromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// ToBF16 rounds to the nearest bfloat16, ties to even. NaN stays a (quiet) NaN.
func ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// FromF16 widens an IEEE half.
func FromF16(h uint16) float32 {
	sign, exp, frac := uint32(h&0x8000)<<16, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exp {
	case 0: // zero or subnormal: frac · 2^-24 is exact in float32
		return math.Float32frombits(sign | math.Float32bits(float32(frac)*(1.0/(1<<24))))
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

// ToF16 rounds to the nearest half, ties to even; above 65504 by half a step it
// becomes infinite. NaN stays a (quiet) NaN.
func ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign, abs := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case abs > 0x7f800000:
		return sign | 0x7e00 | uint16(abs>>13&0x3ff)
	case abs >= 0x477ff000: // 65520
		return sign | 0x7c00
	case abs < 0x38800000: // below 2^-14: count in steps of 2^-24, rounded by the addition
		step := math.Float32bits(math.Float32frombits(abs)+0.5) - math.Float32bits(0.5)
		return sign | uint16(step)
	}
	return sign | uint16((abs-112<<23+0xfff+abs>>13&1)>>13)
}

// widen converts little-endian elements of dtype to float32.
func widen(dst []float32, src []byte, dtype string) {
	switch dtype {
	case "F32":
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case "BF16":
		for i := range dst {
			dst[i] = FromBF16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case "F16":
		for i := range dst {
			dst[i] = FromF16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	}
}

// narrow converts float32 to little-endian elements of dtype.
func narrow(dst []byte, src []float32, dtype string) {
	switch dtype {
	case "F32":
		for i, v := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
	case "BF16":
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], ToBF16(v))
		}
	case "F16":
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], ToF16(v))
		}
	}
}
