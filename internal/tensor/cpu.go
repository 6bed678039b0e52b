package tensor

import (
	"sync"

	"searchloop/internal/gemm"
	"searchloop/internal/par"
	"searchloop/internal/vec"
)

// CPU is the reference back end: float32 in the process's memory, on all cores.
// It is stateless apart from scratch and safe for concurrent use as long as the
// tensors are not shared.
var CPU Trainer = &cpu{}

type cpu struct{ scratch sync.Pool }

// scratch is the working memory of one goroutine; every slice only grows.
type scratch struct {
	a, b, c, d, e, f []float32
}

func (b *cpu) get() *scratch {
	if s, ok := b.scratch.Get().(*scratch); ok {
		return s
	}
	return &scratch{}
}

// grow returns *s with length n; the content is not defined.
func grow(s *[]float32, n int) []float32 {
	if cap(*s) < n {
		*s = make([]float32, n+n/4)
	}
	*s = (*s)[:cap(*s)]
	return (*s)[:n]
}

// piece is the number of rows of width dim that are worth handing to a worker.
func piece(dim int) int { return max(1, 16384/max(dim, 1)) }

// sumChunk is the number of rows whose contributions to a shared gradient are
// summed before they are added to it: fixed, so that the sum does not depend on
// the number of workers.
const sumChunk = 256

func (b *cpu) Working() Kind                       { return Float32 }
func (b *cpu) Alloc(n int) *Tensor                 { return FromHost(make([]float32, n)) }
func (b *cpu) AllocFull(n int) *Tensor             { return b.Alloc(n) }
func (b *cpu) Free(t *Tensor)                      { *t = Tensor{} }
func (b *cpu) Upload(dst *Tensor, src []float32)   { mustLen(dst, len(src)); copy(dst.host, src) }
func (b *cpu) Download(dst []float32, src *Tensor) { mustLen(src, len(dst)); copy(dst, src.host) }
func (b *cpu) UploadInts(src []int32) *Ints        { return IntsFromHost(src) }
func (b *cpu) Zero(t *Tensor)                      { clear(t.host) }
func (b *cpu) Copy(dst, src *Tensor)               { mustLen(dst, src.n); copy(dst.host, src.host) }

func (b *cpu) Add(dst, src *Tensor) {
	mustLen(dst, src.n)
	par.For(dst.n, 16384, func(lo, hi int) {
		vec.Add(dst.host[lo:hi], dst.host[lo:hi], src.host[lo:hi])
	})
}

func mustLen(t *Tensor, n int) {
	if t.n != n {
		panic("tensor: lengths differ")
	}
}

func (b *cpu) Linear(y, x, w, bias *Tensor, rows, in, out int, acc bool) {
	gemm.NT(y.host, x.host, w.host, rows, out, in, acc)
	if bias != nil {
		par.For(rows, piece(out), func(lo, hi int) {
			vec.AddRows(y.host[lo*out:hi*out], bias.host)
		})
	}
}

func (b *cpu) LinearBackward(dx, dw, db, dy, x, w *Tensor, rows, in, out int, accDx bool) {
	if dx != nil {
		gemm.NN(dx.host, dy.host, w.host, rows, in, out, accDx)
	}
	if dw != nil {
		gemm.TN(dw.host, dy.host, x.host, out, in, rows, true)
	}
	if db != nil {
		b.sumRows(rows, out, db.host, func(part []float32, lo, hi int) {
			vec.SumRows(part, dy.host[lo*out:hi*out])
		})
	}
}

// sumRows adds to dst what add accumulates over chunks of rows, in their order.
func (b *cpu) sumRows(rows, dim int, dst []float32, add func(part []float32, lo, hi int)) {
	if rows <= sumChunk {
		add(dst, 0, rows)
		return
	}
	sc := b.get()
	chunks := (rows + sumChunk - 1) / sumChunk
	parts := grow(&sc.a, chunks*dim)
	clear(parts)
	par.Chunks(rows, sumChunk, func(c, lo, hi int) {
		add(parts[c*dim:(c+1)*dim], lo, hi)
	})
	vec.SumRows(dst, parts)
	b.scratch.Put(sc)
}

func (b *cpu) SwiGLU(y, gu *Tensor, rows, dim int) {
	par.For(rows, piece(3*dim), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			g := gu.host[2*r*dim : 2*(r+1)*dim]
			vec.SwiGLU(y.host[r*dim:(r+1)*dim], g[:dim], g[dim:])
		}
	})
}

func (b *cpu) SwiGLUBackward(dgu, y, dy, gu *Tensor, rows, dim int) {
	par.For(rows, piece(6*dim), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			g := gu.host[2*r*dim : 2*(r+1)*dim]
			d := dgu.host[2*r*dim : 2*(r+1)*dim]
			vec.SwiGLU(y.host[r*dim:(r+1)*dim], g[:dim], g[dim:])
			vec.SwiGLUBackward(d[:dim], d[dim:], g[:dim], g[dim:], dy.host[r*dim:(r+1)*dim])
		}
	})
}

func (b *cpu) GELU(y, x *Tensor, rows, dim int, tanh bool) {
	f := vec.GELU
	if tanh {
		f = vec.GELUTanh
	}
	par.For(rows, piece(2*dim), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			f(y.host[r*dim:(r+1)*dim], x.host[r*dim:(r+1)*dim])
		}
	})
}

func (b *cpu) GELUBackward(dx, dy, x *Tensor, rows, dim int, tanh bool) {
	f := vec.GELUBackward
	if tanh {
		f = vec.GELUTanhBackward
	}
	par.For(rows, piece(3*dim), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			f(dx.host[r*dim:(r+1)*dim], x.host[r*dim:(r+1)*dim], dy.host[r*dim:(r+1)*dim])
		}
	})
}
