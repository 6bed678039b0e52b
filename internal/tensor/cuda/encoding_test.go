//go:build cuda

package cuda

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"searchloop/internal/tensor"
)

var hostEncoding = tensor.CPU.(tensor.Encoding)

// bothEncoding is both for what only encoders need.
func bothEncoding(f func(be tensor.Encoding, of func(pair) *tensor.Tensor)) {
	f(hostEncoding, func(p pair) *tensor.Tensor { return p.host })
	f(gpu, func(p pair) *tensor.Tensor { return p.dev })
}

func TestLinearAct(t *testing.T) {
	for _, act := range []tensor.Act{tensor.GELU, tensor.TanhGELU, tensor.ReLU} {
		b := newBench(t)
		rows, in, out := 300, 72, 136
		x, w, bias, y := b.rand(rows*in), b.of(b.normal(out*in, 0.1)), b.rand(out), b.poison(rows*out)
		bothEncoding(func(be tensor.Encoding, of func(pair) *tensor.Tensor) {
			be.LinearAct(of(y), of(x), of(w), of(bias), rows, in, out, act)
		})
		b.check(fmt.Sprint("act ", act), y, once)
	}
}

func TestEncodingNorms(t *testing.T) {
	for _, dim := range []int{24, 256, 384, 768, 1024, 2048} {
		b := newBench(t)
		const rows, vocab = 133, 50
		w, bias, words, places := b.rand(dim), b.rand(dim), b.rand(vocab*dim), b.rand(vocab*dim)
		x, e := b.of(b.normal(rows*dim, 3)), b.poison(rows*dim)
		ids, spots := make([]int32, rows), make([]int32, rows)
		for i := range ids {
			ids[i], spots[i] = b.rnd.Int32N(vocab), b.rnd.Int32N(vocab)
		}
		bothEncoding(func(be tensor.Encoding, of func(pair) *tensor.Tensor) {
			be.LayerNormIn(of(x), nil, of(w), of(bias), rows, dim, 1e-5)
			be.EmbedNorm(of(e), nil, of(words), of(places), ints(be, ids), ints(be, spots), of(w), of(bias), dim, 1e-12)
		})
		b.check(fmt.Sprint("norm ", dim), x, once)
		b.check(fmt.Sprint("embed ", dim), e, once)
	}
}

func TestSwiGLUNorm(t *testing.T) {
	for _, n := range []int{42, 48, 2730} {
		b := newBench(t)
		const rows = 77
		width := (n + 7) / 8 * 8
		wx, bx := b.normal(width, 1), b.normal(width, 1)
		clear(wx[n:])
		clear(bx[n:])
		w, bias, gu, y := b.of(wx), b.of(bx), b.rand(rows*2*width), b.poison(rows*width)
		bothEncoding(func(be tensor.Encoding, of func(pair) *tensor.Tensor) {
			be.SwiGLUNorm(of(y), of(gu), of(w), of(bias), rows, n, width, 1e-6)
		})
		b.check(fmt.Sprint("swiglu norm ", n), y, once)
	}
}

func TestPool(t *testing.T) {
	for _, dim := range []int{24, 384, 768, 1024, 2048} {
		for _, first := range []bool{false, true} {
			b := newBench(t)
			cu := []int32{0, 1, 170, 171, 700}
			x, out := b.rand(700*dim), b.poisonFull(4*dim)
			later := make([]float32, 4*dim)
			var wait func()
			bothEncoding(func(be tensor.Encoding, of func(pair) *tensor.Tensor) {
				be.Pool(of(out), of(x), ints(be, cu), dim, first, true)
				wait = be.Later(later, of(out))
			})
			wait()
			b.check(fmt.Sprint("pool ", dim, first), out, exact)
			now := make([]float32, len(later))
			gpu.Download(now, out.dev)
			if !slices.Equal(now, later) {
				t.Errorf("pool %d: Later brings other values than Download", dim)
			}
		}
	}
}

// Attention of sequences that are known to be short is that of the others.
func TestShortAttention(t *testing.T) {
	for _, c := range []struct {
		h    tensor.Heads
		lens []int
	}{
		{tensor.Heads{Heads: 12, KVHeads: 12, Dim: 64, Longest: 512}, []int{170, 1, 63, 64, 65, 0, 128, 129, 512, 191, 3}},
		{tensor.Heads{Heads: 4, KVHeads: 2, Dim: 64, Longest: 300, Causal: true}, []int{300, 5, 200}},
		{tensor.Heads{Heads: 12, KVHeads: 12, Dim: 32, Longest: 512}, []int{170, 1, 63, 512}},
	} {
		b := newBench(t)
		h := c.h
		h.Scale = float32(1 / math.Sqrt(float64(h.Dim)))
		cu := []int32{0}
		for _, n := range c.lens {
			cu = append(cu, cu[len(cu)-1]+int32(n))
		}
		n := int(cu[len(cu)-1])
		wide := (h.Heads + 2*h.KVHeads) * h.Dim
		qkv, out := b.rand(n*wide), b.poison(n*h.Heads*h.Dim)
		both(func(be tensor.Backend, of func(pair) *tensor.Tensor) {
			part := func(at int) tensor.Rows { return tensor.Rows{T: of(qkv), Off: at * h.Dim, Stride: wide} }
			be.Attention(of(out), nil, part(0), part(h.Heads), part(h.Heads+h.KVHeads), ints(be, cu), nil, h)
		})
		b.check(fmt.Sprint(c.h, " short"), out, often)
	}
}

// Products in integers: both back ends round operands to the same integers but where a
// number lies in the middle, and sums are exact. Shapes with parts of tiles in every
// direction, more tiles than there are blocks of threads, and one.
func TestBytes(t *testing.T) {
	if !gpu.HasBytes() {
		t.Skip("the GPU has no products in integers")
	}
	for _, s := range []struct{ rows, in, out int }{{133, 64, 256}, {1, 16, 512}, {700, 768, 3072}, {6000, 384, 1536}} {
		for _, act := range []tensor.Act{tensor.TanhGELU, tensor.ReLU} {
			b := newBench(t)
			rows, in, out := s.rows, s.in, s.out
			bias, y, z := b.rand(out), b.poison(rows*out), b.rand(rows*in)
			norm, zero, hidden := b.of(slices.Repeat([]float32{1}, in)), b.of(make([]float32, in)), b.rand(rows*in)
			wx, vx := b.normal(out*in, 0.1), b.normal(in*out, 0.1)
			bothEncoding(func(be tensor.Encoding, of func(pair) *tensor.Tensor) {
				x, w, up, v := be.AllocBytes(rows*in, in), be.AllocBytes(out*in, in), be.AllocBytes(rows*out, tensor.ByteBlock), be.AllocBytes(in*out, out)
				be.UploadEighth(w, wx)
				be.UploadEighth(v, vx)
				be.LayerNormIn(of(hidden), x, of(norm), of(zero), rows, in, 1e-5)
				be.LinearEighth(of(y), x, w, of(bias), rows, in, out, false)
				be.LinearActEighth(up, x, w, of(bias), rows, in, out, act)
				be.LinearEighth(of(z), up, v, of(bias).View(0, in), rows, out, in, true)
				for _, t := range []*tensor.Eighth{x, w, up, v} {
					be.FreeEighth(t)
				}
			})
			b.check(fmt.Sprint("bytes ", s), y, once)
			b.check(fmt.Sprint("bytes after bytes ", s, act), z, often)
		}
	}
}

// Products in 8 bits: operands and results are rounded as the processor's are. A result
// between two numbers of e4m3 may go the other way.
func TestEighths(t *testing.T) {
	if !gpu.HasEighths() {
		t.Skip("the GPU has no products in 8 bits")
	}
	b := newBench(t)
	const rows, in, out = 133, 64, 96
	bias, y, z := b.rand(out), b.poison(rows*out), b.rand(rows*out)
	norm, zero, hidden := b.of(slices.Repeat([]float32{1}, in)), b.of(make([]float32, in)), b.rand(rows*in)
	wx, vx := b.normal(out*in, 0.1), b.normal(in*out, 0.1)
	bothEncoding(func(be tensor.Encoding, of func(pair) *tensor.Tensor) {
		x, w, up, v := be.AllocEighth(rows*in, 8), be.AllocEighth(out*in, 500), be.AllocEighth(rows*out, 4), be.AllocEighth(in*out, 500)
		be.UploadEighth(w, wx)
		be.UploadEighth(v, vx)
		be.LayerNormIn(of(hidden), x, of(norm), of(zero), rows, in, 1e-5)
		be.LinearEighth(of(y), x, w, of(bias), rows, in, out, false)
		be.LinearActEighth(up, x, w, of(bias), rows, in, out, tensor.GELU)
		be.LinearEighth(of(z).View(0, rows*in), up, v, of(bias).View(0, in), rows, out, in, true)
		for _, t := range []*tensor.Eighth{x, w, up, v} {
			be.FreeEighth(t)
		}
	})
	b.check("eighths", y, often)
	b.check("eighths after eighths", z, 2*often)
}
