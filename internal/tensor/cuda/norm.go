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

// wide is the number of times 2,048 columns that a row has, and blocks the
// number of blocks that share the rows.
func (b *Backend) wide(rows, dim, most int) (wide, blocks int) {
	wide = (dim + 2047) / 2048
	if wide > most {
		panic(fmt.Sprintf("tensor: a norm of width %d; at most %d", dim, 2048*most))
	}
	return wide, min(rows, 2*b.d.SMs)
}

func (b *Backend) RMSNormBackward(dx, dw, dy, x, w, inv *tensor.Tensor, rows, dim int) {
	if rows == 0 {
		return
	}
	wide, blocks := b.wide(rows, dim, 4)
	var p ptr
	if dw != nil {
		p = b.parts(blocks * dim)
	}
	b.launch("norm", fmt.Sprint("rms_norm_backward_", wide), cuda.Grid{X: blocks, Threads: 256}, at(dx), p, at(dy), at(x), at(w), at(inv), rows, dim)
	if dw != nil {
		b.launch("norm", "sum_parts", each(dim), at(dw), p, blocks, dim)
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
	wide, blocks := b.wide(rows, dim, 3)
	var p ptr
	if dw != nil {
		p = b.parts(blocks*2*dim + 2*dim)
	}
	b.launch("norm", fmt.Sprint("layer_norm_backward_", wide), cuda.Grid{X: blocks, Threads: 256}, at(dx), p, at(dy), at(x), at(w), at(stat), rows, dim)
	if dw == nil {
		return
	}
	// Weight and bias share a row of the parts: they are summed together, then
	// added to where each belongs.
	both := p + ptr(4*blocks*2*dim)
	b.d.Clear(both, 4*2*dim)
	b.launch("norm", "sum_parts", each(2*dim), both, p, blocks, 2*dim)
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
