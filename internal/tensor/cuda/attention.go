//go:build cuda

package cuda

import (
	"cmp"
	"fmt"
	"slices"

	"searchloop/internal/cuda"
	"searchloop/internal/tensor"
)

// kernels is a set of attention kernels.
type kernels struct {
	module                    string
	forward                   string
	backQ, backKV             string // one after the other, or
	back, backSums            string // both at once, and dQ from its sums
	rows, threads             int    // of a tile
	box                       int    // rows that the copy engine fetches at once, if not a tile's
	sharedForward, sharedBack int    // bytes
}

// widths are the head dimensions that there are kernels for; others are padded.
var widths = []int{16, 32, 64, 80, 96, 128}

func mustServe(d int) {
	if d > widths[len(widths)-1] || d%8 != 0 {
		panic(fmt.Sprintf("tensor: head dimension %d: want a multiple of 8, at most 128", d))
	}
}

// shortest is the length of sequences whose keys and values of a head fit into a
// multiprocessor's memory.
const shortest = 512

// kernelsFor chooses by head dimension and GPU; short is for a forward pass alone, of
// short sequences.
func (b *Backend) kernelsFor(d int, short bool) kernels {
	mustServe(d)
	if b.d.Major == 9 && !b.portable && d == 64 && short {
		return kernels{module: "hopper", forward: "hopper_short_64", rows: shortest, box: 64, threads: 256}
	}
	if b.d.Major == 9 && !b.portable && (d == 64 || d == 128) {
		return kernels{module: "hopper", forward: fmt.Sprint("hopper_", d), back: fmt.Sprint("hopper_back_", d), backSums: fmt.Sprint("hopper_back_sums_", d),
			rows: 128, threads: 384, sharedForward: 5*128*d*2 + 1024, sharedBack: (2*128+4*64)*d*2 + 2*128*64*2 + 2*sumRows*d*4 + 1024}
	}
	i, _ := slices.BinarySearch(widths, d)
	w := widths[i]
	return kernels{module: "attention", forward: fmt.Sprint("attention_", w), backQ: fmt.Sprint("attention_back_q_", w), backKV: fmt.Sprint("attention_back_kv_", w),
		rows: 64, threads: 128, sharedForward: 2 * 64 * (w + 8) * 2, sharedBack: (2*64 + 2*32) * (w + 8) * 2}
}

// pack is a packed attention laid out for its kernels.
type pack struct {
	ints             *tensor.Ints
	cu, rows, qt, kt ptr // cumulative keys and queries; tiles of queries and of keys
	qTiles, kTiles   int
	queries, keys    int
	sequences        int
	kernels
}

// layOut is newPack with a memory: the layers of a pass have the same lists.
func (b *Backend) layOut(cu, at *tensor.Ints, h tensor.Heads, short bool) pack {
	for i := range b.packs {
		if k := &b.packs[i]; k.of == cu && k.at == at && k.dim == h.Dim && k.short == short {
			return k.pack
		}
	}
	p := b.newPack(cu, at, b.kernelsFor(h.Dim, short))
	b.packs[b.oldest] = packOf{cu, at, h.Dim, short, p}
	b.oldest = (b.oldest + 1) % len(b.packs)
	return p
}

// packOf is a layout and what it was made of.
type packOf struct {
	of, at *tensor.Ints
	dim    int
	short  bool
	pack
}

// newPack finds which query rows belong to which sequence and cuts both into
// tiles, those of the longest sequences first.
func (b *Backend) newPack(cu, at *tensor.Ints, k kernels) pack {
	ends := cu.Host()
	rows := slices.Clone(ends)
	if at != nil {
		for i, e := range ends {
			n, _ := slices.BinarySearch(at.Host(), e)
			rows[i] = int32(n)
		}
	}
	p := pack{kernels: k, queries: int(rows[len(rows)-1]), keys: int(ends[len(ends)-1]), sequences: len(ends) - 1}
	qt, kt := tiles(rows, ends, p.kernels.rows), tiles(ends, ends, p.kernels.rows)
	if p.back != "" {
		kt = twoTiles(ends, p.kernels.rows)
	}
	if p.box > 0 { // two tiles of queries, and the longest sequence's of keys and values
		p.sharedForward = (2+2*int((longest(ends)+63)/64))*64*64*2 + 1024
	}
	p.qTiles, p.kTiles = len(qt)/2, len(kt)/2
	p.ints = b.UploadInts(slices.Concat(ends, rows, qt, kt))
	p.cu = ptr(p.ints.Addr())
	p.rows = p.cu + ptr(4*len(ends))
	p.qt = p.rows + ptr(4*len(rows))
	p.kt = p.qt + ptr(4*len(qt))
	return p
}

// twoTiles lists (sequence, first key) pairs of the first halves of sequences, the
// longest sequence first: each stands for its tile and for the one as far from the
// end, and their order is that of back in hopper.cu.
func twoTiles(ends []int32, size int) []int32 {
	var all []int32
	order := make([]int, len(ends)-1)
	for s := range order {
		order[s] = s
	}
	length := func(s int) int32 { return ends[s+1] - ends[s] }
	slices.SortStableFunc(order, func(x, y int) int { return int(length(y) - length(x)) })
	for _, s := range order {
		n := (int(length(s)) + size - 1) / size
		for i := range (n + 1) / 2 {
			all = append(all, int32(s), int32(i*size))
		}
	}
	return all
}

// longest is the most keys of a sequence.
func longest(ends []int32) (n int32) {
	for i := range len(ends) - 1 {
		n = max(n, ends[i+1]-ends[i])
	}
	return n
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
	p := b.layOut(cu, asked, h, lse == nil && 0 < h.Longest && h.Longest <= shortest)
	if p.qTiles == 0 {
		return
	}
	g := cuda.Grid{X: p.qTiles, Y: h.Heads, Threads: p.threads, Shared: p.sharedForward}
	qw, kw, box := h.Heads*h.Dim, h.KVHeads*h.Dim, cmp.Or(p.box, p.kernels.rows)
	b.launch(p.module, p.forward, g, append([]any{at(out), at(lse), b.operand(&p, q, p.queries, qw, box),
		b.operand(&p, k, p.keys, kw, box), b.operand(&p, v, p.keys, kw, box), p.qt}, p.shape(asked, q, k, v, h)...)...)
	keep(p.ints)
}

func (b *Backend) AttentionBackward(dq, dk, dv tensor.Rows, dout, out, lse *tensor.Tensor, q, k, v tensor.Rows, cu, asked *tensor.Ints, h tensor.Heads) {
	p := b.layOut(cu, asked, h, false)
	defer keep(p.ints)
	if p.back != "" {
		b.backAtOnce(&p, dq, dk, dv, dout, out, lse, q, k, v, asked, h)
		return
	}
	scratch := b.parts(p.queries * h.Heads)
	if p.queries > 0 {
		b.launch("attention", "attention_delta", heads8(p.queries, h.Heads), scratch, at(dout), at(out), p.queries, h.Heads, h.Dim)
	}
	shape := p.shape(asked, q, k, v, h)
	if p.qTiles > 0 {
		b.launch(p.module, p.backQ, cuda.Grid{X: p.qTiles, Y: h.Heads, Threads: p.threads, Shared: p.sharedBack},
			append([]any{first(dq), int64(dq.Stride), at(dout), at(lse), scratch, first(q), first(k), first(v), p.qt}, shape...)...)
	}
	if p.kTiles > 0 {
		b.launch(p.module, p.backKV, cuda.Grid{X: p.kTiles, Y: h.KVHeads, Threads: p.threads, Shared: p.sharedBack},
			append([]any{first(dk), int64(dk.Stride), first(dv), int64(dv.Stride), at(dout), at(lse), scratch, first(q), first(k), first(v), p.kt}, shape...)...)
	}
}

// Of the backward pass at once: rows of a block whose dQ is summed in memory, and
// the most float32 for these sums. Heads beyond that wait for the next launch.
const (
	sumRows = 64
	mostSum = 1 << 26
)

// headsAtOnce is the number of key heads, at most most unless that is none, of a
// launch with blocks blocks for each, so that the multiprocessors are filled the
// fewest times.
func (b *Backend) headsAtOnce(blocks, heads, most int) int {
	best, least := 1, 0
	for n := 1; n <= min(heads, most); n++ {
		if times := (heads + n - 1) / n * ((blocks*n + b.d.SMs - 1) / b.d.SMs); least == 0 || times <= least {
			best, least = n, times
		}
	}
	return best
}

func (b *Backend) backAtOnce(p *pack, dq, dk, dv tensor.Rows, dout, out, lse *tensor.Tensor, q, k, v tensor.Rows, asked *tensor.Ints, h tensor.Heads) {
	if p.kTiles == 0 {
		return
	}
	// Blocks are numbered through all sequences, with a gap where one does not end
	// with a whole block; each has two sums.
	slots, each := p.queries/sumRows+p.sequences+1, h.Heads/h.KVHeads
	groups := b.headsAtOnce(p.kTiles, h.KVHeads, mostSum/(2*slots*sumRows*h.Dim*each))
	sums := 2 * groups * each * slots
	turns := 1 + sums
	sums *= sumRows * h.Dim
	sums0 := b.parts(sums + p.queries*h.Heads + turns)
	delta := sums0 + ptr(4*sums)
	turns0 := delta + ptr(4*p.queries*h.Heads)
	if p.queries > 0 {
		b.launch("attention", "attention_delta", heads8(p.queries, h.Heads), delta, at(dout), at(out), p.queries, h.Heads, h.Dim)
	}
	qw, kw := h.Heads*h.Dim, h.KVHeads*h.Dim
	// Without queries there is nothing to fetch, but an empty matrix cannot be described.
	n := max(1, p.queries)
	shape := p.shape(asked, q, k, v, h)
	maps := []any{b.operand(p, tensor.Rows{T: dout, Stride: qw}, n, qw, sumRows), at(lse), delta,
		b.operand(p, q, n, qw, sumRows), b.operand(p, k, p.keys, kw, 128), b.operand(p, v, p.keys, kw, 128)}
	for from := 0; from < h.KVHeads; from += groups {
		now := min(groups, h.KVHeads-from)
		b.d.Clear(turns0, 4*turns)
		b.launch(p.module, p.back, cuda.Grid{X: p.kTiles, Y: now, Threads: p.threads, Shared: p.sharedBack},
			slices.Concat([]any{first(dk), int64(dk.Stride), first(dv), int64(dv.Stride), sums0, turns0}, maps, []any{p.kt, from, slots}, shape)...)
		if p.qTiles > 0 {
			b.launch(p.module, p.backSums, cuda.Grid{X: p.qTiles, Y: now * each, Threads: 256},
				slices.Concat([]any{first(dq), int64(dq.Stride), sums0, p.qt, from * each, slots}, shape)...)
		}
	}
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
