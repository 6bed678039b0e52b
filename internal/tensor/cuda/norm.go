//go:build cuda

package cuda

import (
	"fmt"

	"searchloop/internal/cuda"
	"searchloop/internal/tensor"
)

// rowThreads is the number of threads that share a row of dim values.
func rowThreads(dim int) int { return max(32, min(256, (dim/8+31)/32*32)) }

func eachRow(rows, dim int) cuda.Grid { return cuda.Grid{X: rows, Threads: rowThreads(dim)} }

func (b *Backend) RMSNorm(y, inv, x, w *tensor.Tensor, rows, dim int, eps float32) {
	if rows > 0 {
		b.launch("norm", "rms_norm", eachRow(rows, dim), at(y), at(inv), at(x), at(w), dim, eps)
	}
}

func (b *Backend) RMSNormAgain(y, inv, x, w *tensor.Tensor, rows, dim int) {
	if rows > 0 {
		b.launch("norm", "rms_norm_again", eachRow(rows, dim), at(y), at(inv), at(x), at(w), dim)
	}
}

// mostThreads share a row in a norm's backward pass, 8 columns each.
const mostThreads = 512

// wide is how often the threads of a block must go over a row, and the launch of as
// many blocks as there is room for, which share the rows.
func (b *Backend) wide(rows, dim, threads, most int) (wide int, g cuda.Grid) {
	wide = (dim + 8*threads - 1) / (8 * threads)
	if wide > most {
		panic(fmt.Sprintf("tensor: a norm of width %d; at most %d", dim, 8*threads*most))
	}
	return wide, cuda.Grid{X: min(rows, max(2, min(8, 1024/threads))*b.d.SMs), Threads: threads}
}

// sumParts is the launch of sum_parts.
func sumParts(dim int) cuda.Grid { return cuda.Grid{X: (dim + 31) / 32, Threads: 256} }

func (b *Backend) RMSNormBackward(dx, dw, dy, x, w, inv *tensor.Tensor, rows, dim int) {
	if rows == 0 {
		return
	}
	wide, g := b.wide(rows, dim, min(mostThreads, (dim/8+31)/32*32), 2)
	var p ptr
	if dw != nil {
		p = b.parts(g.X * dim)
	}
	b.launch("norm", fmt.Sprint("rms_norm_backward_", wide), g, at(dx), p, at(dy), at(x), at(w), at(inv), rows, dim)
	if dw != nil {
		b.launch("norm", "sum_parts", sumParts(dim), at(dw), p, g.X, dim)
	}
}

func (b *Backend) LayerNorm(y, stat, x, w, bias *tensor.Tensor, rows, dim int, eps float32) {
	if rows > 0 {
		b.launch("norm", "layer_norm", eachRow(rows, dim), at(y), at(stat), at(x), at(w), at(bias), dim, eps)
	}
}

func (b *Backend) LayerNormAgain(y, stat, x, w, bias *tensor.Tensor, rows, dim int) {
	if rows > 0 {
		b.launch("norm", "layer_norm_again", eachRow(rows, dim), at(y), at(stat), at(x), at(w), at(bias), dim)
	}
}

func (b *Backend) LayerNormBackward(dx, dw, db, dy, x, w, stat *tensor.Tensor, rows, dim int) {
	if rows == 0 {
		return
	}
	wide, g := b.wide(rows, dim, 256, 3)
	var p ptr
	if dw != nil {
		p = b.parts(g.X*2*dim + 2*dim)
	}
	b.launch("norm", fmt.Sprint("layer_norm_backward_", wide), g, at(dx), p, at(dy), at(x), at(w), at(stat), rows, dim)
	if dw == nil {
		return
	}
	// Weight and bias share a row of the parts: they are summed together, then
	// added to where each belongs.
	both := p + ptr(4*g.X*2*dim)
	b.d.Clear(both, 4*2*dim)
	b.launch("norm", "sum_parts", sumParts(2*dim), both, p, g.X, 2*dim)
	b.launch("elementwise", "add_float", each(dim), at(dw), both, int64(dim))
	b.launch("elementwise", "add_float", each(dim), at(db), both+ptr(4*dim), int64(dim))
}

func (b *Backend) SwiGLU(y, gu *tensor.Tensor, rows, dim int) {
	if n := rows * dim; n > 0 {
		b.launch("elementwise", "swiglu", each8(n), at(y), at(gu), int64(n), dim)
	}
}

func (b *Backend) SwiGLUBackward(dgu, y, dy, gu *tensor.Tensor, rows, dim int) {
	if n := rows * dim; n > 0 {
		b.launch("elementwise", "swiglu_backward", each8(n), at(dgu), at(y), at(dy), at(gu), int64(n), dim)
	}
}

func (b *Backend) GELU(y, x *tensor.Tensor, rows, dim int, tanh bool) {
	if n := rows * dim; n > 0 {
		b.launch("elementwise", "gelu", each8(n), at(y), at(x), int64(n), flag(tanh))
	}
}

func (b *Backend) GELUBackward(dx, dy, x *tensor.Tensor, rows, dim int, tanh bool) {
	if n := rows * dim; n > 0 {
		b.launch("elementwise", "gelu_backward", each8(n), at(dx), at(dy), at(x), int64(n), flag(tanh))
	}
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
