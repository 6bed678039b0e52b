package tensor

import (
	"math"

	"searchloop/internal/par"
	"searchloop/internal/vec"
)

func (b *cpu) Widths() int { return 1 }

func (b *cpu) LinearAct(y, x, w, bias *Tensor, rows, in, out int, act Act) {
	b.Linear(y, x, w, bias, rows, in, out, false)
	if act != ReLU {
		b.GELU(y, y, rows, out, act == TanhGELU)
		return
	}
	par.For(rows, piece(out), func(lo, hi int) {
		for i, v := range y.host[lo*out : hi*out] {
			y.host[lo*out+i] = max(v, 0)
		}
	})
}

func (b *cpu) LayerNormIn(x *Tensor, x8 *Eighth, w, bias *Tensor, rows, dim int, eps float32) {
	par.For(rows, piece(2*dim), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			row := x.host[r*dim : (r+1)*dim]
			vec.LayerNorm(row, row, w.host, bias.host, eps)
			if x8 != nil {
				x8.round(row, r*dim)
			}
		}
	})
}

func (b *cpu) EmbedNorm(x *Tensor, x8 *Eighth, words, places *Tensor, ids, at *Ints, w, bias *Tensor, dim int, eps float32) {
	par.For(len(ids.host), piece(3*dim), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			row := x.host[r*dim : (r+1)*dim]
			vec.Add(row, words.host[int(ids.host[r])*dim:][:dim], places.host[int(at.host[r])*dim:][:dim])
			vec.LayerNorm(row, row, w.host, bias.host, eps)
			if x8 != nil {
				x8.round(row, r*dim)
			}
		}
	})
}

func (b *cpu) SwiGLUNorm(y, gu, w, bias *Tensor, rows, n, width int, eps float32) {
	par.For(rows, piece(4*width), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			row, g := y.host[r*width:(r+1)*width], gu.host[2*r*width:2*(r+1)*width]
			vec.SwiGLU(row[:n], g[:n], g[width:width+n])
			vec.LayerNorm(row[:n], row[:n], w.host[:n], bias.host[:n], eps)
			clear(row[n:])
		}
	})
}

func (b *cpu) Pool(out, x *Tensor, cu *Ints, dim int, first, unit bool) {
	par.For(len(cu.host)-1, 1, func(lo, hi int) {
		for s := lo; s < hi; s++ {
			v, rows := out.host[s*dim:(s+1)*dim], x.host[int(cu.host[s])*dim:int(cu.host[s+1])*dim]
			if first {
				copy(v, rows)
			} else {
				clear(v)
				vec.SumRows(v, rows)
				vec.Scale(v, v, 1/float32(len(rows)/dim))
			}
			if unit {
				vec.Unit(v)
			}
		}
	})
}

func (b *cpu) Later(dst []float32, src *Tensor) (wait func()) {
	b.Download(dst, src)
	return func() {}
}

// On the processor an Eighth holds float32 that e4m3 could hold.
func (b *cpu) HasEighths() bool { return true }
func (b *cpu) AllocEighth(n int, scale float32) *Eighth {
	return &Eighth{T: b.Alloc(n), Scale: scale}
}
func (b *cpu) FreeEighth(t *Eighth)                    { *t = Eighth{} }
func (b *cpu) UploadEighth(dst *Eighth, src []float32) { mustLen(dst.T, len(src)); dst.round(src, 0) }

func (b *cpu) HasBytes() bool                  { return true }
func (b *cpu) AllocBytes(n, block int) *Eighth { return &Eighth{T: b.Alloc(n), Block: block} }

// round stores src from value at on, whole blocks where there are such.
func (t *Eighth) round(src []float32, at int) {
	if t.Block > 0 {
		for lo := 0; lo < len(src); lo += t.Block {
			RoundBytes(t.T.host[at+lo:at+lo+t.Block], src[lo:lo+t.Block])
		}
		return
	}
	for i, x := range src {
		t.T.host[at+i] = e4m3(x*t.Scale) / t.Scale
	}
}

// RoundBytes sets dst to the integers that src, a block, becomes, times their scale, and
// returns that.
func RoundBytes(dst, src []float32) (scale float32) {
	most := float32(1e-20)
	for _, x := range src {
		most = max(most, x, -x)
	}
	scale = most / 127
	f := 127 / most
	for i, x := range src {
		dst[i] = float32(math.RoundToEven(float64(x*f))) * scale
	}
	return scale
}

// e4m3 is the nearest number of that kind, ties to even, and at most 448 away from 0.
func e4m3(x float32) float32 {
	a := math.Abs(float64(x))
	_, e := math.Frexp(a)
	step := math.Ldexp(1, max(e-1, -6)-3)
	return float32(math.Copysign(min(448, math.RoundToEven(a/step)*step), float64(x)))
}

func (b *cpu) LinearEighth(y *Tensor, x, w *Eighth, bias *Tensor, rows, in, out int, acc bool) {
	b.Linear(y, x.T, w.T, bias, rows, in, out, acc)
}

func (b *cpu) LinearActEighth(y, x, w *Eighth, bias *Tensor, rows, in, out int, act Act) {
	b.LinearAct(y.T, x.T, w.T, bias, rows, in, out, act)
	par.For(rows, piece(4*out), func(lo, hi int) { y.round(y.T.host[lo*out:hi*out], lo*out) })
}
