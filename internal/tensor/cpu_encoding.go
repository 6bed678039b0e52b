package tensor

import (
	"searchloop/internal/par"
	"searchloop/internal/vec"
)

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

func (b *cpu) LayerNormIn(x, w, bias *Tensor, rows, dim int, eps float32) {
	par.For(rows, piece(2*dim), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			row := x.host[r*dim : (r+1)*dim]
			vec.LayerNorm(row, row, w.host, bias.host, eps)
		}
	})
}

func (b *cpu) EmbedNorm(x, words, places *Tensor, ids, at *Ints, w, bias *Tensor, dim int, eps float32) {
	par.For(len(ids.host), piece(3*dim), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			row := x.host[r*dim : (r+1)*dim]
			vec.Add(row, words.host[int(ids.host[r])*dim:][:dim], places.host[int(at.host[r])*dim:][:dim])
			vec.LayerNorm(row, row, w.host, bias.host, eps)
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
