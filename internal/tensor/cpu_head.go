package tensor

import (
	"math"

	"searchloop/internal/gemm"
	"searchloop/internal/par"
	"searchloop/internal/vec"
)

// HeadValues fit a core's cache.
func (b *cpu) HeadValues() int { return 1 << 18 }

func (b *cpu) HeadChunk(logp, entropy, lse, x, w *Tensor, targets *Ints, scale float32, scratch *Tensor, rows, dim, vocab int) {
	z := scratch.host[:rows*vocab]
	gemm.NT(z, x.host, w.host, rows, vocab, dim, false)
	par.For(rows, piece(8*vocab), func(lo, hi int) {
		sc := b.get()
		p := grow(&sc.a, vocab)
		for r := lo; r < hi; r++ {
			zr := z[r*vocab : (r+1)*vocab]
			if scale != 1 {
				vec.Scale(zr, zr, scale)
			}
			shift := vec.Max(zr)
			sum := vec.ExpSum(p, zr, shift)
			l := shift + float32(math.Log(float64(sum)))
			lse.host[r] = l
			logp.host[r] = zr[targets.host[r]] - l
			entropy.host[r] = l - vec.Dot(p, zr)/sum
		}
		b.scratch.Put(sc)
	})
}

// The gradient of logp[y] and of the entropy H by z_i are (1[i=y]-p_i)·scale and
// -p_i(ln p_i + H)·scale; with ln p_i = z_i - lse both are p_i·(c0 + c1·z_i) but
// for the target.
func (b *cpu) HeadChunkBackward(dx, dw, x, w *Tensor, targets *Ints, dlogp, dentropy, entropy, lse *Tensor, scale float32, scratch *Tensor, rows, dim, vocab int, again bool) {
	z := scratch.host[:rows*vocab]
	if again {
		gemm.NT(z, x.host, w.host, rows, vocab, dim, false)
	}
	par.For(rows, piece(8*vocab), func(lo, hi int) {
		sc := b.get()
		p := grow(&sc.a, vocab)
		for r := lo; r < hi; r++ {
			zr := z[r*vocab : (r+1)*vocab]
			dl, de := dlogp.host[r], dentropy.host[r]
			if dl == 0 && de == 0 { // zero times an infinite logit must not become NaN
				clear(zr)
				continue
			}
			if again && scale != 1 {
				vec.Scale(zr, zr, scale)
			}
			vec.ExpSum(p, zr, lse.host[r])
			c0 := scale * (de*(lse.host[r]-entropy.host[r]) - dl)
			if de == 0 {
				vec.Scale(zr, p, c0)
			} else {
				vec.Scale(zr, zr, -scale*de)
				vec.Mul(zr, zr, p)
				vec.Axpy(zr, c0, p)
			}
			zr[targets.host[r]] += scale * dl
		}
		b.scratch.Put(sc)
	})
	gemm.NN(dx.host, z, w.host, rows, dim, vocab, false)
	if dw != nil {
		gemm.TN(dw.host, z, x.host, vocab, dim, rows, true)
	}
}
