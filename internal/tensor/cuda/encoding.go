//go:build cuda

package cuda

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"searchloop/internal/cuda"
	"searchloop/internal/tensor"
)

// Widths: rows are moved 16 bytes at a time.
func (b *Backend) Widths() int { return 8 }

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

// copyOf are the arguments of a copy of rows in 8 bits, which may be absent.
func copyOf(x *tensor.Eighth, dim int) (to ptr, scale float32, scales ptr) {
	switch {
	case x == nil:
		return 0, 0, 0
	case x.Block == 0:
		return at(x.T), x.Scale, 0
	case x.Block != dim:
		panic(fmt.Sprintf("tensor: rows of %d values with a scale for %d", dim, x.Block))
	}
	return at(x.T), 0, at(x.Scales)
}

func (b *Backend) LayerNormIn(x *tensor.Tensor, x8 *tensor.Eighth, w, bias *tensor.Tensor, rows, dim int, eps float32) {
	if rows > 0 {
		name, g := warpRows("norm_in_", rows, dim)
		to, scale, scales := copyOf(x8, dim)
		b.launch("encode", name, g, at(x), to, scale, scales, at(w), at(bias), rows, dim, eps)
	}
}

func (b *Backend) EmbedNorm(x *tensor.Tensor, x8 *tensor.Eighth, words, places *tensor.Tensor, ids, spots *tensor.Ints, w, bias *tensor.Tensor, dim int, eps float32) {
	if rows := ids.Len(); rows > 0 {
		name, g := warpRows("embed_norm_", rows, dim)
		to, scale, scales := copyOf(x8, dim)
		b.launch("encode", name, g, at(x), to, scale, scales, at(words), at(places), ptr(ids.Addr()), ptr(spots.Addr()), at(w), at(bias), rows, dim, eps)
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

// HasEighths: products of e4m3 came with compute capability 8.9.
func (b *Backend) HasEighths() bool { return 10*b.d.Major+b.d.Minor >= 89 }

func (b *Backend) AllocEighth(n int, scale float32) *tensor.Eighth {
	t := &tensor.Eighth{T: b.alloc(n, tensor.Float8), Scale: scale, Scales: b.AllocFull(2)}
	b.Upload(t.Scales, []float32{1 / scale, scale})
	return t
}

// HasBytes: their kernels are made of warpgroup products.
func (b *Backend) HasBytes() bool { return b.d.Major == 9 }

func (b *Backend) AllocBytes(n, block int) *tensor.Eighth {
	return &tensor.Eighth{T: b.alloc(n, tensor.Float8), Block: block, Scales: b.AllocFull(n / block)}
}

func (b *Backend) FreeEighth(t *tensor.Eighth) {
	b.Free(t.T)
	b.Free(t.Scales)
}

func (b *Backend) UploadEighth(dst *tensor.Eighth, src []float32) {
	mustLen(dst.T, len(src))
	if dst.Block > 0 {
		b.uploadBytes(dst, src)
		return
	}
	for i := 0; i < len(src); i += uploadPiece {
		part := src[i:min(i+uploadPiece, len(src))]
		p := b.parts(len(part))
		b.d.Upload(p, unsafe.Pointer(&part[0]), 4*len(part))
		b.launch("encode", "eighth", each8(len(part)), at(dst.T)+ptr(i), p, int64(len(part)), dst.Scale)
	}
}

func (b *Backend) uploadBytes(dst *tensor.Eighth, src []float32) {
	bytes, row, scales := make([]int8, len(src)), make([]float32, dst.Block), make([]float32, len(src)/dst.Block)
	for i := range scales {
		scales[i] = tensor.RoundBytes(row, src[i*dst.Block:(i+1)*dst.Block])
		for j, x := range row {
			bytes[i*dst.Block+j] = int8(math.Round(float64(x / scales[i])))
		}
	}
	b.d.Upload(at(dst.T), unsafe.Pointer(&bytes[0]), len(bytes))
	b.Upload(dst.Scales, scales)
}

// bytes queues a product of integers. kind is that of the kernel.
func (b *Backend) bytes(kind string, y *tensor.Tensor, scales ptr, x, w *tensor.Eighth, bias *tensor.Tensor, rows, in, out int) {
	cols, stages, block := 256, 4, in
	if kind == "add" {
		cols, stages, block = 192, 5, tensor.ByteBlock
	}
	if x.Block != block || w.Block != in || in%block != 0 {
		panic(fmt.Sprintf("tensor: products of bytes with a scale for %d and for %d values, rows of %d", x.Block, w.Block, in))
	}
	tiles := (rows + 255) / 256 * ((out + cols - 1) / cols)
	describe := func(t *tensor.Eighth, rows, box int) cuda.Map {
		return b.d.Bytes(at(t.T), int64(rows), int64(in), int64(in), box)
	}
	b.launch("encode_hopper", "bytes_"+kind, cuda.Grid{X: 2 * min(tiles, b.d.SMs/2), Threads: 384, Shared: stages*(128+cols)*128 + 1024},
		at(y), scales, describe(x, rows, 128), describe(w, out, cols/2), at(x.Scales), at(w.Scales), at(bias), rows, in, out)
}

// eighths are the product of e4m3 operands and what scales them.
func eighths(x, w *tensor.Eighth, rows, in, out int) (cuda.Product, cuda.Scales) {
	return cuda.Product{Rows: rows, Cols: out, K: in, TransB: true, LdA: in, LdB: in, LdD: out, Bias: true, Eighth: true},
		cuda.Scales{A: at(x.Scales), B: at(w.Scales)}
}

func (b *Backend) LinearEighth(y *tensor.Tensor, x, w *tensor.Eighth, bias *tensor.Tensor, rows, in, out int, acc bool) {
	switch {
	case rows == 0:
	case x.Block == 0:
		p, s := eighths(x, w, rows, in, out)
		p.Accumulate = acc
		b.d.MultiplyScaled(p, at(x.T), at(w.T), at(y), at(bias), s)
	case acc:
		b.bytes("add", y, 0, x, w, bias, rows, in, out)
	default:
		b.bytes("put", y, 0, x, w, bias, rows, in, out)
	}
}

func (b *Backend) LinearActEighth(y, x, w *tensor.Eighth, bias *tensor.Tensor, rows, in, out int, act tensor.Act) {
	if rows == 0 {
		return
	}
	if x.Block > 0 {
		kind := "put_gelu"
		if act == tensor.ReLU {
			kind = "put_relu"
		}
		if y.Block != tensor.ByteBlock || out%y.Block != 0 {
			panic(fmt.Sprintf("tensor: rows of %d values with a scale for %d", out, y.Block))
		}
		b.bytes(kind, y.T, at(y.Scales), x, w, bias, rows, in, out)
		return
	}
	p, s := eighths(x, w, rows, in, out)
	p.EighthOut, p.Act = true, cuda.TanhGELU
	if act == tensor.ReLU {
		p.Act = cuda.ReLU
	}
	s.D = at(y.Scales) + 4
	b.d.MultiplyScaled(p, at(x.T), at(w.T), at(y.T), at(bias), s)
}
