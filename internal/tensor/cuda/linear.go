//go:build cuda

package cuda

import (
	"searchloop/internal/cuda"
	"searchloop/internal/tensor"
)

func (b *Backend) Linear(y, x, w, bias *tensor.Tensor, rows, in, out int, acc bool) {
	if rows == 0 {
		return
	}
	mustKind(tensor.BFloat16, x, w, bias)
	b.d.Multiply(cuda.Product{
		Rows: rows, Cols: out, K: in, TransB: true, LdA: in, LdB: in, LdD: out,
		Float: y.Kind() == tensor.Float32, Accumulate: acc, Bias: bias != nil,
	}, at(x), at(w), at(y), at(bias))
}

func (b *Backend) LinearBackward(dx, dw, db, dy, x, w *tensor.Tensor, rows, in, out int, accDx bool) {
	if rows == 0 {
		return
	}
	mustKind(tensor.BFloat16, dx, dy, x, w)
	mustKind(tensor.Float32, dw, db)
	if dx != nil {
		b.d.Multiply(cuda.Product{
			Rows: rows, Cols: in, K: out, LdA: out, LdB: in, LdD: in, Accumulate: accDx,
		}, at(dy), at(w), at(dx), 0)
	}
	if dw != nil {
		b.d.Multiply(cuda.Product{
			Rows: out, Cols: in, K: rows, TransA: true, LdA: out, LdB: in, LdD: in, Float: true, Accumulate: true,
		}, at(dy), at(x), at(dw), 0)
	}
	if db != nil {
		const chunk = 256
		n := (rows + chunk - 1) / chunk
		p := b.parts(n * out)
		g := each8(out)
		g.Y = n
		b.launch("norm", "sum_rows", g, p, at(dy), rows, out, chunk)
		b.launch("norm", "sum_parts", sumParts(out), at(db), p, n, out)
	}
}

// The logits are float32 in scratch; their gradient takes the first half of each
// row's place as bfloat16.

// HeadValues take 1 GiB, so that a chunk is a large product.
func (b *Backend) HeadValues() int { return 1 << 28 }

func (b *Backend) HeadChunk(logp, entropy, lse, x, w *tensor.Tensor, targets *tensor.Ints, scale float32, scratch *tensor.Tensor, rows, dim, vocab int) {
	mustKind(tensor.Float32, logp, entropy, lse, scratch)
	b.Linear(scratch, x, w, nil, rows, dim, vocab, false)
	b.launch("head", "head", cuda.Grid{X: rows, Threads: 512}, at(logp), at(entropy), at(lse), at(scratch), ptr(targets.Addr()), scale, vocab)
}

func (b *Backend) HeadChunkBackward(dx, dw, x, w *tensor.Tensor, targets *tensor.Ints, dlogp, dentropy, entropy, lse *tensor.Tensor, scale float32, scratch *tensor.Tensor, rows, dim, vocab int, again bool) {
	mustKind(tensor.Float32, dlogp, dentropy, entropy, lse, scratch, dw)
	if again {
		b.Linear(scratch, x, w, nil, rows, dim, vocab, false)
	}
	b.launch("head", "head_backward", cuda.Grid{X: rows, Threads: 512}, at(scratch), ptr(targets.Addr()), at(dlogp), at(dentropy), at(entropy), at(lse), scale, vocab)
	b.d.Multiply(cuda.Product{Rows: rows, Cols: dim, K: vocab, LdA: 2 * vocab, LdB: dim, LdD: dim}, at(scratch), at(w), at(dx), 0)
	if dw != nil {
		b.d.Multiply(cuda.Product{
			Rows: vocab, Cols: dim, K: rows, TransA: true, LdA: 2 * vocab, LdB: dim, LdD: dim, Float: true, Accumulate: true,
		}, at(scratch), at(x), at(dw), 0)
	}
}
