package tensor

import (
	"math"
	"slices"

	"searchloop/internal/par"
	"searchloop/internal/vec"
)

// blockRows is the number of query rows whose scores are held at once.
const blockRows = 32

// scoreStride is the leading dimension of a block of scores over n keys: whole
// cache lines, an odd number of them, so that the rows do not fall on each
// other's place in the cache.
func scoreStride(n int) int {
	lines := (n + 15) / 16
	return 16 * (lines + 1 - lines%2)
}

// segment is one sequence of an attention: keys [from, from+n) and the query
// rows [row, row+asks), of which row r is token at[r], or r without a list.
type segment struct {
	from, n   int
	row, asks int
	at        []int32
	h         Heads
}

func segmentOf(cu, at *Ints, s int, h Heads) segment {
	g := segment{from: int(cu.host[s]), n: int(cu.host[s+1] - cu.host[s]), h: h}
	if at == nil {
		g.row, g.asks = g.from, g.n
		return g
	}
	g.at = at.host
	g.row, _ = slices.BinarySearch(at.host, cu.host[s])
	end, _ := slices.BinarySearch(at.host, cu.host[s+1])
	g.asks = end - g.row
	return g
}

// sees is the number of keys that query row row+i sees.
func (g *segment) sees(i int) int {
	switch {
	case !g.h.Causal:
		return g.n
	case g.at == nil:
		return i + 1
	}
	return int(g.at[g.row+i]) - g.from + 1
}

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

// eachSegment calls f for every sequence and key head that has queries, or for
// all of them.
func (b *cpu) eachSegment(cu, at *Ints, h Heads, all bool, f func(sc *scratch, s *segment, head int)) {
	par.For((len(cu.host)-1)*h.KVHeads, 1, func(lo, hi int) {
		sc := b.get()
		for t := lo; t < hi; t++ {
			if s := segmentOf(cu, at, t/h.KVHeads, h); s.asks > 0 || all {
				f(sc, &s, t%h.KVHeads)
			}
		}
		b.scratch.Put(sc)
	})
}

func (b *cpu) Attention(out, lse *Tensor, q, k, v Rows, cu, at *Ints, h Heads) {
	b.eachSegment(cu, at, h, false, func(sc *scratch, s *segment, head int) {
		attend(sc, s, out, lse, q, k, v, head)
	})
}

// attend does the query heads that share key head g, over one sequence.
func attend(sc *scratch, seg *segment, out, lse *Tensor, q, k, v Rows, g int) {
	h := &seg.h
	d, dp, group := h.Dim, ceilTo(h.Dim, tileCols), h.Heads/h.KVHeads
	n := seg.sees(seg.asks - 1) // no query sees more
	ldk, lds := ceilTo(n, tileCols), scoreStride(n)
	kt := grow(&sc.a, d*ldk)
	vv := grow(&sc.b, n*dp)
	qb := grow(&sc.c, blockRows*dp)
	s := grow(&sc.d, blockRows*lds)
	o := grow(&sc.e, blockRows*dp)
	transposeRows(kt, ldk, k, seg.from, n, g*d, d)
	gatherRows(vv, dp, v, seg.from, n, g*d, d)
	total := out.n / (h.Heads * d)
	for hq := g * group; hq < (g+1)*group; hq++ {
		for r0 := 0; r0 < seg.asks; r0 += blockRows {
			rows := min(blockRows, seg.asks-r0)
			keys := seg.sees(r0 + rows - 1)
			padded := ceilTo(rows, tileRows)
			gatherScaled(qb, dp, q, seg.row+r0, rows, hq*d, d, h.Scale)
			mulTile(s, lds, qb, dp, 1, kt, ldk, padded, ceilTo(keys, tileCols), d, false)
			var inv [blockRows]float32
			for i := range rows {
				shift, sum := softmaxRow(s[i*lds:(i+1)*lds], seg.sees(r0+i), keys)
				inv[i] = 1 / sum
				if lse != nil {
					lse.host[hq*total+seg.row+r0+i] = shift + float32(math.Log(float64(sum)))
				}
			}
			for i := 0; i < rows; i += tileRows { // zeros from here on add nothing
				end := seg.sees(r0 + min(i+tileRows, rows) - 1)
				mulTile(o[i*dp:], dp, s[i*lds:], lds, 1, vv, dp, tileRows, dp, end, false)
			}
			for i := range rows {
				at := ((seg.row+r0+i)*h.Heads + hq) * d
				vec.Scale(out.host[at:at+d], o[i*dp:i*dp+d], inv[i])
			}
		}
	}
}

func (b *cpu) AttentionBackward(dq, dk, dv Rows, dout, out, lse *Tensor, q, k, v Rows, cu, at *Ints, h Heads) {
	b.eachSegment(cu, at, h, true, func(sc *scratch, s *segment, head int) {
		attendBackward(sc, s, dq, dk, dv, dout, lse, q, k, v, head)
	})
}

// attendBackward recomputes the probabilities from lse, block by block. With
// the query scaled beforehand, dK needs no scale and dQ gets it at the end.
func attendBackward(sc *scratch, seg *segment, dq, dk, dv Rows, dout, lse *Tensor, q, k, v Rows, g int) {
	h, n := &seg.h, seg.n
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
	gatherRows(kk, dp, k, seg.from, n, g*d, d)
	transposeRows(kt, ldk, k, seg.from, n, g*d, d)
	transposeRows(vt, ldk, v, seg.from, n, g*d, d)
	total := dout.n / (h.Heads * d)
	do := Rows{T: dout, Stride: h.Heads * d}
	for hq := g * group; hq < (g+1)*group; hq++ {
		for r0 := 0; r0 < seg.asks; r0 += blockRows {
			rows := min(blockRows, seg.asks-r0)
			keys := seg.sees(r0 + rows - 1)
			padded, end := ceilTo(rows, tileRows), ceilTo(keys, tileRows)
			gatherScaled(qb, dp, q, seg.row+r0, rows, hq*d, d, h.Scale)
			gatherRows(ob, dp, do, seg.row+r0, rows, hq*d, d)
			mulTile(p, lds, qb, dp, 1, kt, ldk, padded, ceilTo(keys, tileCols), d, false)
			mulTile(dp2, lds, ob, dp, 1, vt, ldk, padded, ceilTo(keys, tileCols), d, false)
			for i := range rows {
				valid := seg.sees(r0 + i)
				pr, dr := p[i*lds:i*lds+end], dp2[i*lds:i*lds+end]
				vec.ExpSum(pr[:valid], pr[:valid], lse.host[hq*total+seg.row+r0+i])
				vec.SoftmaxBackward(dr[:valid], pr[:valid], dr[:valid], 1)
				clear(pr[valid:])
				clear(dr[valid:])
			}
			for i := 0; i < rows; i += tileRows {
				last := seg.sees(r0 + min(i+tileRows, rows) - 1)
				mulTile(gb[i*dp:], dp, dp2[i*lds:], lds, 1, kk, dp, tileRows, dp, last, false)
			}
			mulTile(sumV, dp, p, 1, lds, ob, dp, end, dp, rows, true)
			mulTile(sumK, dp, dp2, 1, lds, qb, dp, end, dp, rows, true)
			for i := range rows {
				o := dq.Off + (seg.row+r0+i)*dq.Stride + hq*d
				vec.Scale(dq.T.host[o:o+d], gb[i*dp:i*dp+d], h.Scale)
			}
		}
	}
	for i := range n {
		o := dk.Off + (seg.from+i)*dk.Stride + g*d
		copy(dk.T.host[o:o+d], sumK[i*dp:i*dp+d])
		o = dv.Off + (seg.from+i)*dv.Stride + g*d
		copy(dv.T.host[o:o+d], sumV[i*dp:i*dp+d])
	}
}
