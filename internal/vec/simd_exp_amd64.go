//go:build goexperiment.simd && amd64

package vec

import "math"

// The places of the constants in table.
const (
	kOne = iota
	kInf
	kMinusHalf
	kExpMax
	kExpMin
	kLog2E
	kRoundUp
	kNegLn2Hi
	kNegLn2Lo
	kExpP0
	kExpP1
	kExpP2
	kExpP3
	kExpP4
	kGeluA
	kGeluB
	kGelu3B
	kGeluBig
	kInvSqrt2Pi
	kTailP
	kTailR // nine of them
	kCount = kTailR + 9
)

// The tables hold every constant in all lanes: one load, where a constant in the
// code would be a load and a broadcast.
var table8, table16 = func() (t8 [kCount][8]float32, t16 [kCount][16]float32) {
	set := func(k int, values ...float32) {
		for i, v := range values {
			for j := range t16[k+i] {
				t16[k+i][j] = v
			}
			copy(t8[k+i][:], t16[k+i][:])
		}
	}
	set(kOne, 1, float32(math.Inf(1)), -0.5, expMax, expMin, log2E, roundUp, -ln2Hi, -ln2Lo,
		expP0, expP1, expP2, expP3, expP4, geluA, geluB, 3*geluB, geluBig, invSqrt2Pi, tailP)
	set(kTailR, tailR[:]...)
	return t8, t16
}()

func exp(dst, x []float32) {
	switch {
	case hasAVX512:
		expAVX512(dst, x, 0)
	case hasAVX2:
		expAVX2(dst, x, 0)
	default:
		expGeneric(dst, x)
	}
}

func expSum(dst, x []float32, shift float32) float32 {
	switch {
	case hasAVX512:
		expAVX512(dst, x, shift)
	case hasAVX2:
		expAVX2(dst, x, shift)
	default:
		return expSumGeneric(dst, x, shift)
	}
	return sumAVX2(dst)
}

func sigmoid(dst, x []float32) {
	switch {
	case hasAVX512:
		sigmoidAVX512(dst, x)
	case hasAVX2:
		sigmoidAVX2(dst, x)
	default:
		sigmoidGeneric(dst, x)
	}
}

func silu(dst, x []float32) {
	switch {
	case hasAVX512:
		siluAVX512(dst, x)
	case hasAVX2:
		siluAVX2(dst, x)
	default:
		siluGeneric(dst, x)
	}
}

func swiglu(dst, gate, up []float32) {
	switch {
	case hasAVX512:
		swigluAVX512(dst, gate, up)
	case hasAVX2:
		swigluAVX2(dst, gate, up)
	default:
		swigluGeneric(dst, gate, up)
	}
}

func swigluBackward(dgate, dup, gate, up, dy []float32) {
	switch {
	case hasAVX512:
		swigluBackwardAVX512(dgate, dup, gate, up, dy)
	case hasAVX2:
		swigluBackwardAVX2(dgate, dup, gate, up, dy)
	default:
		swigluBackwardGeneric(dgate, dup, gate, up, dy)
	}
}

func gelu(dst, x []float32) {
	switch {
	case hasAVX512:
		geluAVX512(dst, x)
	case hasAVX2:
		geluAVX2(dst, x)
	default:
		geluGeneric(dst, x)
	}
}

func geluBackward(dx, x, dy []float32) {
	switch {
	case hasAVX512:
		geluBackwardAVX512(dx, x, dy)
	case hasAVX2:
		geluBackwardAVX2(dx, x, dy)
	default:
		geluBackwardGeneric(dx, x, dy)
	}
}

func geluTanh(dst, x []float32) {
	switch {
	case hasAVX512:
		geluTanhAVX512(dst, x)
	case hasAVX2:
		geluTanhAVX2(dst, x)
	default:
		geluTanhGeneric(dst, x)
	}
}

func geluTanhBackward(dx, x, dy []float32) {
	switch {
	case hasAVX512:
		geluTanhBackwardAVX512(dx, x, dy)
	case hasAVX2:
		geluTanhBackwardAVX2(dx, x, dy)
	default:
		geluTanhBackwardGeneric(dx, x, dy)
	}
}
