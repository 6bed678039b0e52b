package tensor

import (
	"searchloop/internal/par"
	"searchloop/internal/vec"
)

func (b *cpu) Gather(y, x *Tensor, rows *Ints, dim int) {
	par.For(len(rows.host), piece(dim), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			dst := y.host[i*dim : (i+1)*dim]
			if r := int(rows.host[i]); r >= 0 {
				copy(dst, x.host[r*dim:(r+1)*dim])
			} else {
				clear(dst)
			}
		}
	})
}

func (b *cpu) Scatter(y, x *Tensor, rows *Ints, dim int) {
	for i, r := range rows.host {
		copy(y.host[int(r)*dim:(int(r)+1)*dim], x.host[i*dim:(i+1)*dim])
	}
}

func (b *cpu) ScatterAdd(y, x *Tensor, rows *Ints, dim int) {
	for i, r := range rows.host {
		if r >= 0 {
			dst := y.host[int(r)*dim : (int(r)+1)*dim]
			vec.Add(dst, dst, x.host[i*dim:(i+1)*dim])
		}
	}
}

func (b *cpu) RowDots(y, x, z *Tensor, rows *Ints, dim int) {
	par.For(len(rows.host), piece(2*dim), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			r := int(rows.host[i])
			y.host[i] = vec.Dot(x.host[i*dim:(i+1)*dim], z.host[r*dim:(r+1)*dim])
		}
	})
}

func (b *cpu) Mix(y, x *Tensor, taps *Ints, weight *Tensor, rows, dim int) {
	par.For(rows, piece(4*dim), func(lo, hi int) {
		for i := 4 * lo; i < 4*hi; i++ {
			r := int(taps.host[i])
			vec.Axpy(y.host[i/4*dim:(i/4+1)*dim], weight.host[i], x.host[r*dim:(r+1)*dim])
		}
	})
}

func (b *cpu) MixBackward(dx, dy *Tensor, taps *Ints, weight *Tensor, rows, dim int) {
	for i, r := range taps.host[:4*rows] {
		vec.Axpy(dx.host[int(r)*dim:(int(r)+1)*dim], weight.host[i], dy.host[i/4*dim:(i/4+1)*dim])
	}
}
