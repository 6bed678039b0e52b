package tensor

import (
	"math"

	"searchloop/internal/par"
	"searchloop/internal/vec"
)

func (b *cpu) RopeTable(cos, sin *Tensor, pos *Ints, rows int, freq []float32, axis []uint8) {
	half := len(freq)
	par.For(rows, piece(32*half), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			c, s := cos.host[r*half:(r+1)*half], sin.host[r*half:(r+1)*half]
			for j, f := range freq {
				// The angle is rounded to float32 before the functions are taken, as
				// the reference does.
				sn, cs := math.Sincos(float64(float32(pos.host[int(axis[j])*rows+r]) * f))
				c[j], s[j] = float32(cs), float32(sn)
			}
		}
	})
}

func (b *cpu) Rope(x Rows, cos, sin *Tensor, rows, heads, dim int, inverse bool) {
	half := dim / 2
	par.For(rows, piece(2*heads*dim), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			row := x.T.host[x.Off+r*x.Stride:]
			for h := range heads {
				vec.Rope(row[h*dim:(h+1)*dim], cos.host[r*half:(r+1)*half], sin.host[r*half:(r+1)*half], inverse)
			}
		}
	})
}

func (b *cpu) NormRope(y, inv *Tensor, x Rows, w, cos, sin *Tensor, rows, heads, dim int, eps float32) {
	half := dim / 2
	par.For(rows, piece(4*heads*dim), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			row := x.T.host[x.Off+r*x.Stride:]
			c, s := cos.host[r*half:(r+1)*half], sin.host[r*half:(r+1)*half]
			for i := range heads {
				dst := y.host[(r*heads+i)*dim : (r*heads+i+1)*dim]
				inv.host[r*heads+i] = vec.RMSNorm(dst, row[i*dim:(i+1)*dim], w.host, eps)
				vec.Rope(dst, c, s, false)
			}
		}
	})
}

func (b *cpu) NormRopeBackward(dx Rows, dw, dy *Tensor, x Rows, w, inv, cos, sin *Tensor, rows, heads, dim int) {
	half := dim / 2
	back := func(part []float32, lo, hi int) {
		for r := lo; r < hi; r++ {
			xr, dxr := x.T.host[x.Off+r*x.Stride:], dx.T.host[dx.Off+r*dx.Stride:]
			clear(dxr[:heads*dim])
			c, s := cos.host[r*half:(r+1)*half], sin.host[r*half:(r+1)*half]
			for i := range heads {
				dyh := dy.host[(r*heads+i)*dim : (r*heads+i+1)*dim]
				vec.Rope(dyh, c, s, true)
				vec.RMSNormBackward(dxr[i*dim:(i+1)*dim], part, xr[i*dim:(i+1)*dim], w.host, dyh, inv.host[r*heads+i])
			}
		}
	}
	if dw == nil {
		par.For(rows, piece(8*heads*dim), func(lo, hi int) { back(nil, lo, hi) })
		return
	}
	b.sumRows(rows, dim, dw.host, back)
}
