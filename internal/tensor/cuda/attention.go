//go:build cuda

package cuda

import (
	"fmt"
	"slices"

	"searchloop/internal/cuda"
	"searchloop/internal/tensor"
)

// kernels is a set of attention kernels.
type kernels struct {
	module, forward, backQ, backKV string
	rows, threads                  int // of a tile
	sharedForward, sharedBack      int // bytes
}

// widths are the head dimensions that there are kernels for; others are padded.
var widths = []int{16, 32, 64, 80, 96, 128}

func mustServe(d int) {
	if d > widths[len(widths)-1] || d%8 != 0 {
		panic(fmt.Sprintf("tensor: head dimension %d: want a multiple of 8, at most 128", d))
	}
}

// kernelsFor chooses by head dimension and GPU.
func (b *Backend) kernelsFor(d int) kernels {
	mustServe(d)
	if b.d.Major == 9 && !b.portable && (d == 64 || d == 128) {
		return kernels{"hopper", fmt.Sprint("hopper_", d), fmt.Sprint("hopper_back_q_", d), fmt.Sprint("hopper_back_kv_", d),
			128, 384, 5*128*d*2 + 1024, (2*128+4*64)*d*2 + 1024}
	}
	i, _ := slices.BinarySearch(widths, d)
	w := widths[i]
	return kernels{"attention", fmt.Sprint("attention_", w), fmt.Sprint("attention_back_q_", w), fmt.Sprint("attention_back_kv_", w),
		64, 128, 2 * 64 * (w + 8) * 2, (2*64 + 2*32) * (w + 8) * 2}
}

// pack is a packed attention laid out for its kernels.
type pack struct {
	ints             *tensor.Ints
	cu, rows, qt, kt ptr // cumulative keys and queries; tiles of queries and of keys
	qTiles, kTiles   int
	queries, keys    int
	kernels
}

// layOut is newPack with a memory: the layers of a pass have the same lists.
func (b *Backend) layOut(cu, at *tensor.Ints, h tensor.Heads) pack {
	for i := range b.packs {
		if k := &b.packs[i]; k.of == cu && k.at == at && k.dim == h.Dim {
			return k.pack
		}
	}
	p := b.newPack(cu, at, h)
	b.packs[b.oldest] = packOf{cu, at, h.Dim, p}
	b.oldest = (b.oldest + 1) % len(b.packs)
	return p
}

// packOf is a layout and what it was made of.
type packOf struct {
	of, at *tensor.Ints
	dim    int
	pack
}

// newPack finds which query rows belong to which sequence and cuts both into
// tiles, those of the longest sequences first.
func (b *Backend) newPack(cu, at *tensor.Ints, h tensor.Heads) pack {
	ends := cu.Host()
	rows := slices.Clone(ends)
	if at != nil {
		for i, e := range ends {
			n, _ := slices.BinarySearch(at.Host(), e)
			rows[i] = int32(n)
		}
	}
	p := pack{kernels: b.kernelsFor(h.Dim), queries: int(rows[len(rows)-1]), keys: int(ends[len(ends)-1])}
	qt, kt := tiles(rows, ends, p.kernels.rows), tiles(ends, ends, p.kernels.rows)
	p.qTiles, p.kTiles = len(qt)/2, len(kt)/2
	p.ints = b.UploadInts(slices.Concat(ends, rows, qt, kt))
	p.cu = ptr(p.ints.Addr())
	p.rows = p.cu + ptr(4*len(ends))
	p.qt = p.rows + ptr(4*len(rows))
	p.kt = p.qt + ptr(4*len(qt))
	return p
}

// tiles lists (sequence, first row) pairs; the last tiles of a causal sequence
// have the most to do and come first.
func tiles(rows, keys []int32, size int) []int32 {
	type tile struct{ seq, row, work int32 }
	var all []tile
	for s := range len(rows) - 1 {
		for r := int32(0); r < rows[s+1]-rows[s]; r += int32(size) {
			all = append(all, tile{int32(s), r, keys[s+1] - keys[s]})
		}
	}
	slices.SortStableFunc(all, func(x, y tile) int {
		if x.work != y.work {
			return int(y.work - x.work)
		}
		return int(y.row - x.row)
	})
	out := make([]int32, 0, 2*len(all))
	for _, t := range all {
		out = append(out, t.seq, t.row)
	}
	return out
}

// operand is how a kernel takes a matrix of rows of width values: by its address,
// or as a Map where the copy engine fetches boxes of the given number of rows.
func (b *Backend) operand(p *pack, x tensor.Rows, rows, width, box int) any {
	if p.module != "hopper" {
		return first(x)
	}
	return b.d.Matrix(first(x), rows, width, x.Stride, box)
}

// shape is the tail of the kernels' arguments.
func (p *pack) shape(at *tensor.Ints, q, k, v tensor.Rows, h tensor.Heads) []any {
	var list ptr
	if at != nil {
		list = ptr(at.Addr())
	}
	return []any{p.cu, p.rows, list, int64(q.Stride), int64(k.Stride), int64(v.Stride), h.Heads, h.KVHeads, h.Dim, flag(h.Causal), p.queries, h.Scale}
}

func (b *Backend) Attention(out, lse *tensor.Tensor, q, k, v tensor.Rows, cu, asked *tensor.Ints, h tensor.Heads) {
	p := b.layOut(cu, asked, h)
	if p.qTiles == 0 {
		return
	}
	g := cuda.Grid{X: p.qTiles, Y: h.Heads, Threads: p.threads, Shared: p.sharedForward}
	qw, kw := h.Heads*h.Dim, h.KVHeads*h.Dim
	b.launch(p.module, p.forward, g, append([]any{at(out), at(lse), b.operand(&p, q, p.queries, qw, 128),
		b.operand(&p, k, p.keys, kw, 128), b.operand(&p, v, p.keys, kw, 128), p.qt}, p.shape(asked, q, k, v, h)...)...)
	keep(p.ints)
}

func (b *Backend) AttentionBackward(dq, dk, dv tensor.Rows, dout, out, lse *tensor.Tensor, q, k, v tensor.Rows, cu, asked *tensor.Ints, h tensor.Heads) {
	p := b.layOut(cu, asked, h)
	delta := b.parts(p.queries * h.Heads)
	if p.queries > 0 {
		b.launch("attention", "attention_delta", heads8(p.queries, h.Heads), delta, at(dout), at(out), p.queries, h.Heads, h.Dim)
	}
	shape := p.shape(asked, q, k, v, h)
	qw, kw := h.Heads*h.Dim, h.KVHeads*h.Dim
	do := tensor.Rows{T: dout, Stride: qw}
	if p.qTiles > 0 {
		b.launch(p.module, p.backQ, cuda.Grid{X: p.qTiles, Y: h.Heads, Threads: p.threads, Shared: p.sharedBack},
			append([]any{first(dq), int64(dq.Stride), b.operand(&p, do, p.queries, qw, 128), at(lse), delta,
				b.operand(&p, q, p.queries, qw, 128), b.operand(&p, k, p.keys, kw, 64), b.operand(&p, v, p.keys, kw, 64), p.qt}, shape...)...)
	}
	if p.kTiles > 0 {
		// Without queries there is nothing to fetch, but an empty matrix cannot be described.
		n := max(1, p.queries)
		b.launch(p.module, p.backKV, cuda.Grid{X: p.kTiles, Y: h.KVHeads, Threads: p.threads, Shared: p.sharedBack},
			append([]any{first(dk), int64(dk.Stride), first(dv), int64(dv.Stride), b.operand(&p, do, n, qw, 64), at(lse), delta,
				b.operand(&p, q, n, qw, 64), b.operand(&p, k, p.keys, kw, 128), b.operand(&p, v, p.keys, kw, 128), p.kt}, shape...)...)
	}
	keep(p.ints)
}

func (b *Backend) PageFloats(layers int, h tensor.Heads) int {
	return layers * h.KVHeads * 2 * tensor.PageTokens * h.Dim
}

func (b *Backend) CachedAttention(out *tensor.Tensor, q, k, v tensor.Rows, runs []tensor.Run, layer int, h tensor.Heads) {
	rows, asks := 0, 0
	for _, r := range runs {
		rows, asks = max(rows, r.Row+r.N), max(asks, r.AskRow+r.Ask)
	}
	if rows == 0 {
		return
	}
	mustServe(h.Dim)
	// 64-bit addresses as pairs of 32-bit values, then the 32-bit lists.
	var table []int32
	place, slot := make([]int32, 2*rows), make([]int32, rows)
	first1, keys := make([]int32, asks), make([]int32, asks)
	for _, r := range runs {
		begin := int32(len(table) / 2)
		for _, p := range r.Pages {
			table = append(table, int32(uint32(p.Addr())), int32(uint64(p.Addr())>>32))
		}
		for i := range r.N {
			t := r.Start + i
			copy(place[2*(r.Row+i):], table[2*(int(begin)+t/tensor.PageTokens):][:2])
			slot[r.Row+i] = int32(t % tensor.PageTokens)
		}
		for i := range r.Ask {
			first1[r.AskRow+i], keys[r.AskRow+i] = begin, int32(r.Start+r.N-r.Ask+i+1)
		}
	}
	all := b.UploadInts(slices.Concat(place, table, slot, first1, keys))
	p := ptr(all.Addr())
	pages := p + ptr(4*len(place))
	slots := pages + ptr(4*len(table))
	firsts := slots + ptr(4*len(slot))
	b.launch("cache", "cache_write", cuda.Grid{X: rows, Threads: 128}, p, slots, first(k), int64(k.Stride), first(v), int64(v.Stride), layer, h.KVHeads, h.Dim)
	if asks > 0 {
		b.launch("cache", "cache_attend", cuda.Grid{X: asks, Y: h.Heads, Threads: 128}, at(out), first(q), int64(q.Stride), pages, firsts, firsts+ptr(4*asks),
			layer, h.Heads, h.KVHeads, h.Dim, h.Scale)
	}
	keep(all)
}
