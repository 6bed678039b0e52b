package tensor

import (
	"searchloop/internal/par"
	"searchloop/internal/vec"
)

// A page holds, for every layer and key head, the keys transposed,
// [dim][PageTokens], then the values by row, [PageTokens][dim], with dim padded
// to whole tiles: the products of attention read both as they lie.

func (b *cpu) PageFloats(layers int, h Heads) int {
	return layers * h.KVHeads * 2 * ceilTo(h.Dim, tileCols) * PageTokens
}

func (b *cpu) CachedAttention(out *Tensor, q, k, v Rows, runs []Run, layer int, h Heads) {
	par.For(len(runs)*h.KVHeads, 1, func(lo, hi int) {
		sc := b.get()
		for t := lo; t < hi; t++ {
			attendCached(sc, out, q, k, v, &runs[t/h.KVHeads], layer, t%h.KVHeads, h)
		}
		b.scratch.Put(sc)
	})
}

func attendCached(sc *scratch, out *Tensor, q, k, v Rows, run *Run, layer, g int, h Heads) {
	d, dp, group := h.Dim, ceilTo(h.Dim, tileCols), h.Heads/h.KVHeads
	half := dp * PageTokens
	base := (layer*h.KVHeads + g) * 2 * half
	for i := range run.N {
		page := run.Pages[(run.Start+i)/PageTokens].host[base : base+2*half]
		at := (run.Start + i) % PageTokens
		row := k.T.host[k.Off+(run.Row+i)*k.Stride+g*d:]
		for c, x := range row[:d] {
			page[c*PageTokens+at] = x
		}
		copy(page[half+at*dp:half+at*dp+d], v.T.host[v.Off+(run.Row+i)*v.Stride+g*d:])
	}
	// Rows of a block are (token, head) pairs: in decoding the one new token's
	// heads share a pass over the pages.
	first := run.Start + run.N - run.Ask
	lds := scoreStride(ceilTo(run.Start+run.N, PageTokens))
	qb := grow(&sc.a, blockRows*dp)
	s := grow(&sc.b, blockRows*lds)
	o := grow(&sc.c, blockRows*dp)
	for r0 := 0; r0 < run.Ask*group; r0 += blockRows {
		rows := min(blockRows, run.Ask*group-r0)
		keys := first + (r0+rows-1)/group + 1
		for i := range rows {
			token, hq := (r0+i)/group, g*group+(r0+i)%group
			from := q.Off + (run.AskRow+token)*q.Stride + hq*d
			vec.Scale(qb[i*dp:i*dp+d], q.T.host[from:from+d], h.Scale)
		}
		for p := 0; p*PageTokens < keys; p++ {
			cols := min(PageTokens, ceilTo(keys-p*PageTokens, tileCols))
			kt := run.Pages[p].host[base : base+half]
			mulTile(s[p*PageTokens:], lds, qb, dp, 1, kt, PageTokens, rows, cols, d, false)
		}
		var inv [blockRows]float32
		for i := range rows {
			_, sum := softmaxRow(s[i*lds:(i+1)*lds], first+(r0+i)/group+1, keys)
			inv[i] = 1 / sum
		}
		for p := 0; p*PageTokens < keys; p++ {
			vv := run.Pages[p].host[base+half : base+2*half]
			mulTile(o, dp, s[p*PageTokens:], lds, 1, vv, dp, rows, dp, min(PageTokens, keys-p*PageTokens), p > 0)
		}
		for i := range rows {
			token, hq := (r0+i)/group, g*group+(r0+i)%group
			at := ((run.AskRow+token)*h.Heads + hq) * d
			vec.Scale(out.host[at:at+d], o[i*dp:i*dp+d], inv[i])
		}
	}
}
