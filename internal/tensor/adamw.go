package tensor

import "math"

// Trainer is a Backend that also updates weights.
type Trainer interface {
	Backend
	// NewMoments takes the state of AdamW for the weight w with the gradient g (in
	// float32): moments of zero, and masters that equal the weight.
	NewMoments(w, g *Tensor, k Keeping) Moments
	// SquaredSums gives Σ g² of each tensor, in an order of summation that depends
	// on shapes alone.
	SquaredSums(g []*Tensor) []float64
}

// Moments is what AdamW (arXiv 1711.05101) keeps of one weight.
type Moments interface {
	// Step applies one update from the present gradient.
	Step(u Update)
	// Read copies the master weights and both moments out; what is nil is left out.
	// Write is its inverse, and makes the weight what the masters say.
	Read(w, m, v []float32)
	Write(w, m, v []float32)
	// Free gives the memory back. The weight stays.
	Free()
}

// Master is how the float32 weights are kept that updates change.
type Master uint8

const (
	MasterWeights Master = iota // the weight itself is the master; only where it is float32
	MasterWhole                 // in float32, beside the weight, which is rounded to bfloat16
	MasterSplit                 // only the 16 bits that rounding took, beside the weight
)

// Keeping is how a state is kept.
type Keeping struct {
	Master Master
	// Offload keeps the state in host memory, from which a device fetches it piece
	// by piece for every update. It changes no bit, and nothing where there is no
	// other memory.
	Offload bool
}

// Update is one step's settings. T counts the updates from 1; the gradient is
// multiplied by Scale; Decay is decoupled from it.
type Update struct {
	T                                   int64
	LR, Beta1, Beta2, Eps, Decay, Scale float64
}

// Fixes are the factors of the bias correction: of the first moment, and of the
// root of the second.
func (u *Update) Fixes() (fix1, fix2 float32) {
	t := float64(u.T)
	return float32(1 / (1 - math.Pow(u.Beta1, t))), float32(1 / math.Sqrt(1-math.Pow(u.Beta2, t)))
}

// Halves is w rounded to bfloat16 and the difference of the bits. Ties go away
// from zero: rounded to even they would leave 65537 differences, one more than 16
// bits hold.
func Halves(w float32) (high float32, low int16) {
	bits := math.Float32bits(w)
	top := (bits + 1<<15) &^ (1<<16 - 1)
	return math.Float32frombits(top), int16(bits - top)
}

// Whole is the inverse of Halves, for every bit pattern.
func Whole(high float32, low int16) float32 {
	return math.Float32frombits(math.Float32bits(high) + uint32(int32(low)))
}
