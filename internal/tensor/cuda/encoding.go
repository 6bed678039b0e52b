//go:build cuda

package cuda

import (
	"fmt"
	"slices"
	"unsafe"

	"searchloop/internal/cuda"
	"searchloop/internal/tensor"
)

// LinearAct joins the function to the product. Exact GELU is taken by its
// approximation by tanh, which cuBLASLt has: they differ by 0.0005 at most, a quarter of
// a rounding to bfloat16 at 1.
func (b *Backend) LinearAct(y, x, w, bias *tensor.Tensor, rows, in, out int, act tensor.Act) {
	if rows == 0 {
		return
	}
	mustKind(tensor.BFloat16, y, x, w, bias)
	kind := cuda.TanhGELU
	if act == tensor.ReLU {
		kind = cuda.ReLU
	}
	b.d.Multiply(cuda.Product{Rows: rows, Cols: out, K: in, TransB: true, LdA: in, LdB: in, LdD: out, Bias: true, Act: kind}, at(x), at(w), at(y), at(bias))
}

// vectors is the number of times 256 columns that kernels of a warp a row are made for.
var vectors = []int{1, 2, 3, 4, 8}

func warpRows(name string, rows, dim int) (string, cuda.Grid) {
	i, _ := slices.BinarySearch(vectors, (dim+255)/256)
	if i == len(vectors) {
		panic(fmt.Sprintf("tensor: a norm of width %d; at most %d", dim, 256*vectors[i-1]))
	}
	return fmt.Sprint(name, vectors[i]), cuda.Grid{X: (rows + 7) / 8, Threads: 256}
}

func (b *Backend) LayerNormIn(x, w, bias *tensor.Tensor, rows, dim int, eps float32) {
	if rows > 0 {
		name, g := warpRows("norm_in_", rows, dim)
		b.launch("encode", name, g, at(x), at(w), at(bias), rows, dim, eps)
	}
}

func (b *Backend) EmbedNorm(x, words, places *tensor.Tensor, ids, spots *tensor.Ints, w, bias *tensor.Tensor, dim int, eps float32) {
	if rows := ids.Len(); rows > 0 {
		name, g := warpRows("embed_norm_", rows, dim)
		b.launch("encode", name, g, at(x), at(words), at(places), ptr(ids.Addr()), ptr(spots.Addr()), at(w), at(bias), rows, dim, eps)
		keep(ids)
		keep(spots)
	}
}

func (b *Backend) SwiGLUNorm(y, gu, w, bias *tensor.Tensor, rows, n, width int, eps float32) {
	threads := (width/8 + 31) / 32 * 32
	if threads > 1024 {
		panic(fmt.Sprintf("tensor: a norm of width %d; at most %d", width, 8*1024))
	}
	if rows > 0 {
		b.launch("encode", "swiglu_norm", cuda.Grid{X: rows, Threads: threads}, at(y), at(gu), at(w), at(bias), n, width, eps)
	}
}

func (b *Backend) Pool(out, x *tensor.Tensor, cu *tensor.Ints, dim int, first, unit bool) {
	mustKind(tensor.Float32, out)
	n := cu.Len() - 1
	if n < 1 {
		return
	}
	lanes := min(512, (dim/8+31)/32*32)
	groups := max(1, 512/lanes)
	b.launch("encode", "pool", cuda.Grid{X: n, Threads: lanes * groups, Shared: 4 * groups * dim}, at(out), at(x), ptr(cu.Addr()), dim, lanes, flag(first), flag(unit))
	keep(cu)
}

func (b *Backend) Later(dst []float32, src *tensor.Tensor) (wait func()) {
	mustKind(tensor.Float32, src)
	mustLen(src, len(dst))
	if len(dst) == 0 {
		return func() {}
	}
	return b.d.Later(unsafe.Pointer(&dst[0]), at(src), 4*len(dst))
}
