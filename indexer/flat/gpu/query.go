package gpu

import (
	"encoding/binary"
	"math"

	"searchloop/indexer/flat/dots"
	"searchloop/internal/par"
)

// view is how rows are scanned and what is known of them: it bounds how far a sum
// of the scan can be from the score.
type view struct {
	kind   kind
	stored bool      // rows are scanned as they are stored
	norm   float64   // largest norm of a row as stored; of stored bytes unused
	scan   float64   // largest norm of a row as scanned; of bytes: of their distance from 128
	lost   float64   // largest norm of the difference of the two
	column []float32 // of a copy in bytes: lowest value and width of every column
}

// terms of a query: a row whose sum is below (x-shift)·inverse scores less than x.
type terms struct{ shift, inverse float64 }

// Rows and queries whose products could leave the range of float32 are the CPU's.
const smallest, largest = 1e-25, 1e30

// roundings bounds, as a share of |row|·|query|, what summing dim terms in float32
// loses: in the CPU's order, and in any order of the GPU's, whose tensor cores
// round towards zero.
func roundings(dim int) (exact, scan float64) {
	return float64(dim/dots.Lanes+2*dots.Lanes) / (1 << 23), float64(dim+64) / (1 << 22)
}

// prepare makes the queries of a scan, rows of pitch bytes, from exact ones (of
// stored bytes the folded ones, with their bases), and their terms. The query of a
// streaming scan of numbers is the exact one: none is made. It reports false
// where the bounds do not hold.
func prepare(v view, queries, base []float32, dim int, pitch int64, streaming bool) (scan []byte, out []terms, ok bool) {
	n := len(queries) / dim
	out = make([]terms, n)
	if v.kind == u8 || !streaming {
		scan = make([]byte, int64(n)*pitch)
	}
	fine := make([]bool, n)
	par.For(n, 1, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			var to []byte
			if scan != nil {
				to = scan[int64(i)*pitch : int64(i+1)*pitch]
			}
			b := float32(0)
			if base != nil {
				b = base[i]
			}
			out[i], fine[i] = v.prepare(queries[i*dim:(i+1)*dim], b, to)
		}
	})
	for _, f := range fine {
		if !f {
			return nil, nil, false
		}
	}
	return scan, out, true
}

func (v view) prepare(q []float32, base float32, to []byte) (terms, bool) {
	if v.kind == u8 {
		return v.bytes(q, base, to)
	}
	norm := norm(q)
	exact, summing := roundings(len(q))
	lost, rows := v.lost, v.scan
	if v.kind == f32 && to != nil { // the tensor cores drop all but 10 bits of a row's numbers
		lost += v.norm / (1 << 10)
	}
	if !inRange(v.norm*norm) || v.norm > largest || v.norm < 1/largest {
		return terms{}, false
	}
	t := terms{shift: lost*norm + exact*v.norm*norm + summing*(rows+lost)*norm, inverse: 1}
	if to == nil {
		t.shift *= 1.001
		return t, true
	}
	// The largest number between 2^14 and 2^15: none that counts is lost, none is too large.
	var top float64
	for _, x := range q {
		top = max(top, math.Abs(float64(x)))
	}
	_, e := math.Frexp(top)
	scale := math.Ldexp(1, e-15)
	var off float64
	for i, x := range q {
		y := float64(x) / scale
		z := put(to, i, float32(y), v.kind)
		off += (y - float64(z)) * (y - float64(z))
	}
	t.shift = 1.001 * (t.shift + math.Sqrt(off)*scale*(rows+lost))
	t.inverse = 1 / scale
	return t, true
}

// put writes number i of a query, rounded, and returns what it became.
func put(to []byte, i int, x float32, k kind) float32 {
	bits := math.Float32bits(x)
	switch k {
	case f16:
		h := dots.ToHalf(x)
		binary.LittleEndian.PutUint16(to[2*i:], h)
		return dots.FromHalf(h)
	case bf16:
		bits = (bits + 0x7fff + bits>>16&1) &^ 0xffff
		binary.LittleEndian.PutUint16(to[2*i:], uint16(bits>>16))
	default: // 10 bits of the mantissa
		bits = (bits + 0xfff + bits>>13&1) &^ 0x1fff
		binary.LittleEndian.PutUint32(to[4*i:], bits)
	}
	return math.Float32frombits(bits)
}

// bytes makes a query of whole numbers from -127 to 127 for rows of whole numbers
// from 0 to 255.
func (v view) bytes(q []float32, base float32, to []byte) (terms, bool) {
	dim := len(q)
	exact, _ := roundings(dim)
	folded, shift, err := make([]float64, dim), float64(base), 0.0
	var top, size float64
	for i, x := range q {
		y := float64(x)
		if !v.stored {
			shift += y * (float64(v.column[i]) + float64(v.column[dim+i])*0.5/255)
			y *= float64(v.column[dim+i]) / 255
		}
		folded[i] = y
		top = max(top, math.Abs(y))
		size += math.Abs(y) * 255
	}
	if v.stored {
		if !inRange(size) || math.Abs(float64(base)) > largest {
			return terms{}, false
		}
		err = exact*size + math.Abs(float64(base))/(1<<22)
	} else {
		norm := norm(q)
		if !inRange(v.norm*norm) || v.norm > largest || v.norm < 1/largest {
			return terms{}, false
		}
		err = (v.lost + exact*v.norm) * norm
	}
	scale := top / 127
	if top == 0 {
		scale = 1
	}
	var off, sum float64
	for i, y := range folded {
		n := math.Round(y / scale)
		to[i] = byte(int8(n))
		off += (y - n*scale) * (y - n*scale)
		sum += y - n*scale
	}
	return terms{shift: shift + 128*sum + 1.001*(err+math.Sqrt(off)*v.scan), inverse: 1 / scale}, true
}

func norm(q []float32) float64 {
	var s float64
	for _, x := range q {
		s += float64(x) * float64(x)
	}
	return math.Sqrt(s)
}

func inRange(x float64) bool { return x > smallest && x < largest }
