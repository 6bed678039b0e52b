package tensor

import (
	"searchloop/internal/par"
	"searchloop/internal/vec"
)

func (b *cpu) RMSNorm(y, inv, x, w *Tensor, rows, dim int, eps float32) {
	par.For(rows, piece(2*dim), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			inv.host[r] = vec.RMSNorm(y.host[r*dim:(r+1)*dim], x.host[r*dim:(r+1)*dim], w.host, eps)
		}
	})
}

func (b *cpu) RMSNormAgain(y, inv, x, w *Tensor, rows, dim int) {
	par.For(rows, piece(2*dim), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			yr := y.host[r*dim : (r+1)*dim]
			vec.Scale(yr, x.host[r*dim:(r+1)*dim], inv.host[r])
			vec.Mul(yr, yr, w.host)
		}
	})
}

func (b *cpu) RMSNormBackward(dx, dw, dy, x, w, inv *Tensor, rows, dim int) {
	back := func(part []float32, lo, hi int) {
		for r := lo; r < hi; r++ {
			i, j := r*dim, (r+1)*dim
			vec.RMSNormBackward(dx.host[i:j], part, x.host[i:j], w.host, dy.host[i:j], inv.host[r])
		}
	}
	if dw == nil {
		par.For(rows, piece(4*dim), func(lo, hi int) { back(nil, lo, hi) })
		return
	}
	b.sumRows(rows, dim, dw.host, back)
}

func (b *cpu) LayerNorm(y, stat, x, w, bias *Tensor, rows, dim int, eps float32) {
	par.For(rows, piece(2*dim), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			i, j := r*dim, (r+1)*dim
			stat.host[2*r], stat.host[2*r+1] = vec.LayerNorm(y.host[i:j], x.host[i:j], w.host, bias.host, eps)
		}
	})
}

func (b *cpu) LayerNormAgain(y, stat, x, w, bias *Tensor, rows, dim int) {
	par.For(rows, piece(2*dim), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			yr, xr := y.host[r*dim:(r+1)*dim], x.host[r*dim:(r+1)*dim]
			mean, inv := stat.host[2*r], stat.host[2*r+1]
			for c, v := range xr {
				yr[c] = (v-mean)*inv*w.host[c] + bias.host[c]
			}
		}
	})
}

func (b *cpu) LayerNormBackward(dx, dw, db, dy, x, w, stat *Tensor, rows, dim int) {
	// The gradients of weight and bias share one row of 2*dim, because they are
	// summed over the same chunks.
	sc := b.get()
	both := grow(&sc.b, 2*dim)
	clear(both)
	b.sumRows(rows, 2*dim, both, func(part []float32, lo, hi int) {
		tmp := b.get()
		t := grow(&tmp.a, dim)
		for r := lo; r < hi; r++ {
			i, j := r*dim, (r+1)*dim
			vec.LayerNormBackward(dx.host[i:j], part[:dim], part[dim:], x.host[i:j], w.host, dy.host[i:j], t,
				stat.host[2*r], stat.host[2*r+1])
		}
		b.scratch.Put(tmp)
	})
	if dw != nil {
		vec.Add(dw.host, dw.host, both[:dim])
		vec.Add(db.host, db.host, both[dim:])
	}
	b.scratch.Put(sc)
}
