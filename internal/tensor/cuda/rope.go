//go:build cuda

package cuda

import (
	"math"

	"searchloop/internal/cuda"
	"searchloop/internal/tensor"
)

func (b *Backend) RopeTable(cos, sin *tensor.Tensor, pos *tensor.Ints, rows int, freq []float32, axis []uint8) {
	half := len(freq)
	if rows*half == 0 {
		return
	}
	mustKind(tensor.Float32, cos, sin)
	table := make([]int32, 2*half) // frequencies by their bits, then axes
	for j, f := range freq {
		table[j], table[half+j] = int32(math.Float32bits(f)), int32(axis[j])
	}
	t := b.UploadInts(table)
	p := ptr(t.Addr())
	b.launch("rope", "rope_table", each(rows*half), at(cos), at(sin), ptr(pos.Addr()), p, p+ptr(4*half), rows, half)
	keep(t)
}

// heads8 is the launch of one warp for every head of every row.
func heads8(rows, heads int) cuda.Grid { return cuda.Grid{X: (rows*heads + 7) / 8, Threads: 256} }

func (b *Backend) Rope(x tensor.Rows, cos, sin *tensor.Tensor, rows, heads, dim int, inverse bool) {
	if rows > 0 {
		b.launch("rope", "rope", heads8(rows, heads), first(x), int64(x.Stride), at(cos), at(sin), rows, heads, dim, flag(inverse))
	}
}

// headGroups is the launch of one warp for every four heads of every row, as the
// kernels that norm and turn them share the work.
func headGroups(rows, heads, dim int) cuda.Grid {
	mustServe(dim)
	return heads8(rows, (heads+3)/4)
}

func (b *Backend) NormRope(y, inv *tensor.Tensor, x tensor.Rows, w, cos, sin *tensor.Tensor, rows, heads, dim int, eps float32) {
	if rows > 0 {
		b.launch("rope", "norm_rope", headGroups(rows, heads, dim), at(y), at(inv), first(x), int64(x.Stride), at(w), at(cos), at(sin), rows, heads, dim, eps)
	}
}

func (b *Backend) NormRopeBackward(dx tensor.Rows, dw, dy *tensor.Tensor, x tensor.Rows, w, inv, cos, sin *tensor.Tensor, rows, heads, dim int) {
	if rows == 0 {
		return
	}
	g := headGroups(rows, heads, dim)
	g.X, g.Shared = min(g.X, 4*b.d.SMs), 4*8*dim
	var p ptr
	if dw != nil {
		p = b.parts(g.X * dim)
	}
	b.launch("rope", "norm_rope_backward", g, first(dx), int64(dx.Stride), p, at(dy), first(x), int64(x.Stride), at(w), at(inv), at(cos), at(sin), rows, heads, dim)
	if dw != nil {
		b.launch("norm", "sum_parts", sumParts(dim), at(dw), p, g.X, dim)
	}
}
