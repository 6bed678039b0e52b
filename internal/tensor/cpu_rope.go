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

func (b *cpu) NormRope(q, k, inv *Tensor, qkv Rows, wq, wk, cos, sin *Tensor, rows int, h Heads, eps float32) {
	d, half, all := h.Dim, h.Dim/2, h.Heads+h.KVHeads
	par.For(rows, piece(4*all*d), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			row := qkv.T.host[qkv.Off+r*qkv.Stride:]
			c, s := cos.host[r*half:(r+1)*half], sin.host[r*half:(r+1)*half]
			for i := range all {
				var dst, w []float32
				if i < h.Heads {
					dst, w = q.host[(r*h.Heads+i)*d:], wq.host
				} else {
					dst, w = k.host[(r*h.KVHeads+i-h.Heads)*d:], wk.host
				}
				dst = dst[:d]
				inv.host[r*all+i] = vec.RMSNorm(dst, row[i*d:(i+1)*d], w, eps)
				vec.Rope(dst, c, s, false)
			}
		}
	})
}

func (b *cpu) NormRopeBackward(dqkv Rows, dwq, dwk, dq, dk *Tensor, qkv Rows, wq, wk, inv, cos, sin *Tensor, rows int, h Heads) {
	d, half, all := h.Dim, h.Dim/2, h.Heads+h.KVHeads
	sc := b.get()
	both := grow(&sc.b, 2*d)
	clear(both)
	b.sumRows(rows, 2*d, both, func(part []float32, lo, hi int) {
		for r := lo; r < hi; r++ {
			x, dx := qkv.T.host[qkv.Off+r*qkv.Stride:], dqkv.T.host[dqkv.Off+r*dqkv.Stride:]
			clear(dx[:all*d])
			c, s := cos.host[r*half:(r+1)*half], sin.host[r*half:(r+1)*half]
			for i := range all {
				var dy, w, dw []float32
				if i < h.Heads {
					dy, w, dw = dq.host[(r*h.Heads+i)*d:], wq.host, part[:d]
				} else {
					dy, w, dw = dk.host[(r*h.KVHeads+i-h.Heads)*d:], wk.host, part[d:]
				}
				dy = dy[:d]
				vec.Rope(dy, c, s, true)
				vec.RMSNormBackward(dx[i*d:(i+1)*d], dw, x[i*d:(i+1)*d], w, dy, inv.host[r*all+i])
			}
		}
	})
	if dwq != nil {
		vec.Add(dwq.host, dwq.host, both[:d])
		vec.Add(dwk.host, dwk.host, both[d:])
	}
	b.scratch.Put(sc)
}
