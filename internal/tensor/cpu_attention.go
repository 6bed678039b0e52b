package tensor

import (
	"math"

	"searchloop/internal/par"
	"searchloop/internal/vec"
)

// blockRows is the number of query rows whose scores are held at once.
const blockRows = 32

// scoreStride is the leading dimension of a block of scores over n keys: whole
// cache lines, an odd number of them, so that the rows do not fall on each
// other's place in the cache.
func scoreStride(n int) int { return ceilTo(n, 16)/16*16 + 16*(1-ceilTo(n, 16)/16%2) }

// gatherRows copies rows [from, from+n) of one head into dst, ld values apart.
func gatherRows(dst []float32, ld int, x Rows, from, n, col, dim int) {
	for i := range n {
		o := x.Off + (from+i)*x.Stride + col
		copy(dst[i*ld:i*ld+dim], x.T.host[o:o+dim])
	}
}

func gatherScaled(dst []float32, ld int, x Rows, from, n, col, dim int, s float32) {
	for i := range n {
		o := x.Off + (from+i)*x.Stride + col
		vec.Scale(dst[i*ld:i*ld+dim], x.T.host[o:o+dim], s)
	}
}

func transposeRows(dst []float32, ld int, x Rows, from, n, col, dim int) {
	transpose(dst, ld, x.T.host[x.Off+from*x.Stride+col:], x.Stride, n, dim)
}

// softmaxRow turns the first n scores into e^(s-max), clears up to end and
// returns max and the sum. The sum's order depends on n alone.
func softmaxRow(s []float32, n, end int) (shift, sum float32) {
	shift = vec.Max(s[:n])
	sum = vec.ExpSum(s[:n], s[:n], shift)
	clear(s[n:end])
	return shift, sum
}

func (b *cpu) Attention(out, lse *Tensor, q, k, v Rows, cu *Ints, h Heads) {
	seqs := len(cu.host) - 1
	par.For(seqs*h.KVHeads, 1, func(lo, hi int) {
		sc := b.get()
		for t := lo; t < hi; t++ {
			from, to := int(cu.host[t/h.KVHeads]), int(cu.host[t/h.KVHeads+1])
			attend(sc, out, lse, q, k, v, from, to-from, t%h.KVHeads, h)
		}
		b.scratch.Put(sc)
	})
}

// attend does the query heads that share key head g, over one sequence.
func attend(sc *scratch, out, lse *Tensor, q, k, v Rows, from, n, g int, h Heads) {
	d, dp, group := h.Dim, ceilTo(h.Dim, tileCols), h.Heads/h.KVHeads
	ldk, lds := ceilTo(n, tileCols), scoreStride(n)
	kt := grow(&sc.a, d*ldk)
	vv := grow(&sc.b, n*dp)
	qb := grow(&sc.c, blockRows*dp)
	s := grow(&sc.d, blockRows*lds)
	o := grow(&sc.e, blockRows*dp)
	transposeRows(kt, ldk, k, from, n, g*d, d)
	gatherRows(vv, dp, v, from, n, g*d, d)
	total := out.n / (h.Heads * d)
	for hq := g * group; hq < (g+1)*group; hq++ {
		for r0 := 0; r0 < n; r0 += blockRows {
			rows := min(blockRows, n-r0)
			padded, keys := ceilTo(rows, tileRows), n
			if h.Causal {
				keys = r0 + rows
			}
			gatherScaled(qb, dp, q, from+r0, rows, hq*d, d, h.Scale)
			mulTile(s, lds, qb, dp, 1, kt, ldk, padded, ceilTo(keys, tileCols), d, false)
			var inv [blockRows]float32
			for i := range rows {
				valid := keys
				if h.Causal {
					valid = r0 + i + 1
				}
				shift, sum := softmaxRow(s[i*lds:(i+1)*lds], valid, keys)
				inv[i] = 1 / sum
				if lse != nil {
					lse.host[hq*total+from+r0+i] = shift + float32(math.Log(float64(sum)))
				}
			}
			mulTile(o, dp, s, lds, 1, vv, dp, padded, dp, keys, false)
			for i := range rows {
				at := ((from+r0+i)*h.Heads + hq) * d
				vec.Scale(out.host[at:at+d], o[i*dp:i*dp+d], inv[i])
			}
		}
	}
}

func (b *cpu) AttentionBackward(dq, dk, dv Rows, dout, out, lse *Tensor, q, k, v Rows, cu *Ints, h Heads) {
	seqs := len(cu.host) - 1
	par.For(seqs*h.KVHeads, 1, func(lo, hi int) {
		sc := b.get()
		for t := lo; t < hi; t++ {
			from, to := int(cu.host[t/h.KVHeads]), int(cu.host[t/h.KVHeads+1])
			attendBackward(sc, dq, dk, dv, dout, lse, q, k, v, from, to-from, t%h.KVHeads, h)
		}
		b.scratch.Put(sc)
	})
}

// attendBackward recomputes the probabilities from lse, block by block. With
// the query scaled beforehand, dK needs no scale and dQ gets it at the end.
func attendBackward(sc *scratch, dq, dk, dv Rows, dout, lse *Tensor, q, k, v Rows, from, n, g int, h Heads) {
	d, dp, group := h.Dim, ceilTo(h.Dim, tileCols), h.Heads/h.KVHeads
	ldk, lds, n4 := ceilTo(n, tileCols), scoreStride(n), ceilTo(n, tileRows)
	// One slice holds the operands of this sequence: keys by row, keys and values
	// transposed, and the sums of their gradients.
	all := grow(&sc.a, n*dp+2*d*ldk+2*n4*dp)
	kk, all := all[:n*dp], all[n*dp:]
	kt, all := all[:d*ldk], all[d*ldk:]
	vt, all := all[:d*ldk], all[d*ldk:]
	sumK, sumV := all[:n4*dp], all[n4*dp:2*n4*dp]
	clear(all[:2*n4*dp])
	qb, ob, gb := grow(&sc.b, blockRows*dp), grow(&sc.c, blockRows*dp), grow(&sc.d, blockRows*dp)
	p, dp2 := grow(&sc.e, blockRows*lds), grow(&sc.f, blockRows*lds)
	gatherRows(kk, dp, k, from, n, g*d, d)
	transposeRows(kt, ldk, k, from, n, g*d, d)
	transposeRows(vt, ldk, v, from, n, g*d, d)
	total := dout.n / (h.Heads * d)
	do := Rows{T: dout, Stride: h.Heads * d}
	for hq := g * group; hq < (g+1)*group; hq++ {
		for r0 := 0; r0 < n; r0 += blockRows {
			rows := min(blockRows, n-r0)
			padded, keys := ceilTo(rows, tileRows), n
			if h.Causal {
				keys = r0 + rows
			}
			gatherScaled(qb, dp, q, from+r0, rows, hq*d, d, h.Scale)
			gatherRows(ob, dp, do, from+r0, rows, hq*d, d)
			mulTile(p, lds, qb, dp, 1, kt, ldk, padded, ceilTo(keys, tileCols), d, false)
			mulTile(dp2, lds, ob, dp, 1, vt, ldk, padded, ceilTo(keys, tileCols), d, false)
			end := ceilTo(keys, tileRows)
			for i := range rows {
				valid := keys
				if h.Causal {
					valid = r0 + i + 1
				}
				pr, dr := p[i*lds:i*lds+end], dp2[i*lds:i*lds+end]
				vec.ExpSum(pr[:valid], pr[:valid], lse.host[hq*total+from+r0+i])
				vec.SoftmaxBackward(dr[:valid], pr[:valid], dr[:valid], 1)
				clear(pr[valid:])
				clear(dr[valid:])
			}
			mulTile(gb, dp, dp2, lds, 1, kk, dp, padded, dp, keys, false)
			mulTile(sumV, dp, p, 1, lds, ob, dp, end, dp, rows, true)
			mulTile(sumK, dp, dp2, 1, lds, qb, dp, end, dp, rows, true)
			for i := range rows {
				o := dq.Off + (from+r0+i)*dq.Stride + hq*d
				vec.Scale(dq.T.host[o:o+d], gb[i*dp:i*dp+d], h.Scale)
			}
		}
	}
	for i := range n {
		o := dk.Off + (from+i)*dk.Stride + g*d
		copy(dk.T.host[o:o+d], sumK[i*dp:i*dp+d])
		o = dv.Off + (from+i)*dv.Stride + g*d
		copy(dv.T.host[o:o+d], sumV[i*dp:i*dp+d])
	}
}
