package tensor

// Backend is the set of operations. Methods are called from one goroutine at a
// time; a back end may run them asynchronously as long as Download sees all
// that was asked for before it.
//
// In the comments a matrix [r,c] is row-major with leading dimension c.
type Backend interface {
	// Working is how weights and activations are stored.
	Working() Kind
	// Alloc returns n zeros of the working kind, AllocFull of float32; they live
	// until Free.
	Alloc(n int) *Tensor
	AllocFull(n int) *Tensor
	Free(t *Tensor)
	// Upload and Download copy all of src or dst; UploadInts may keep src.
	Upload(dst *Tensor, src []float32)
	Download(dst []float32, src *Tensor)
	UploadInts(src []int32) *Ints

	Zero(t *Tensor)
	Copy(dst, src *Tensor) // rounds or widens where the kinds differ
	Add(dst, src *Tensor)  // dst += src

	// Linear sets y[rows,out] = x[rows,in]·w[out,in]ᵀ (+ bias[out] unless nil),
	// added to y when acc is set.
	Linear(y, x, w, bias *Tensor, rows, in, out int, acc bool)
	// LinearBackward: dx[rows,in] = dy·w (set, or added with accDx; skipped when
	// nil); dw += dyᵀ·x and db += Σ dy, each skipped when nil.
	LinearBackward(dx, dw, db, dy, x, w *Tensor, rows, in, out int, accDx bool)

	// RMSNorm sets y[rows,dim] = x·inv·w with inv[rows] = 1/√(mean x² + eps).
	RMSNorm(y, inv, x, w *Tensor, rows, dim int, eps float32)
	// RMSNormAgain recomputes y from the inv that RMSNorm left.
	RMSNormAgain(y, inv, x, w *Tensor, rows, dim int)
	RMSNormBackward(dx, dw, dy, x, w, inv *Tensor, rows, dim int)
	// LayerNorm leaves mean and 1/√(variance + eps) of each row in stat[rows,2].
	LayerNorm(y, stat, x, w, b *Tensor, rows, dim int, eps float32)
	LayerNormAgain(y, stat, x, w, b *Tensor, rows, dim int)
	LayerNormBackward(dx, dw, db, dy, x, w, stat *Tensor, rows, dim int)

	// RopeTable sets cos and sin [rows,len(freq)] of the angle
	// pos[axis[j]*rows + r] * freq[j].
	RopeTable(cos, sin *Tensor, pos *Ints, rows int, freq []float32, axis []uint8)
	// Rope turns, in place, the first heads heads of each row of x by the row's
	// angles; inverse turns back, which is the gradient.
	Rope(x Rows, cos, sin *Tensor, rows, heads, dim int, inverse bool)
	// NormRope normalises every head of x's rows by RMSNorm with w [dim] and turns
	// it: y[rows,heads*dim]. inv[rows,heads] is kept for the gradient.
	NormRope(y, inv *Tensor, x Rows, w, cos, sin *Tensor, rows, heads, dim int, eps float32)
	// NormRopeBackward sets dx's rows from dy, which it overwrites, and adds to dw
	// (skipped when nil).
	NormRopeBackward(dx Rows, dw, dy *Tensor, x Rows, w, inv, cos, sin *Tensor, rows, heads, dim int)

	// Attention sets out[rows,Heads*Dim] and, unless nil, lse[Heads,rows], the
	// logarithm of each row's softmax denominator. cu are the cumulative lengths of
	// the keys. Row i of q and out is token i, or token at[i] of an ascending list
	// without repetitions when only some tokens ask.
	Attention(out, lse *Tensor, q, k, v Rows, cu, at *Ints, h Heads)
	// AttentionBackward sets dq, dk and dv.
	AttentionBackward(dq, dk, dv Rows, dout, out, lse *Tensor, q, k, v Rows, cu, at *Ints, h Heads)
	// PageFloats is the size of one page that holds PageTokens keys and values of
	// every layer.
	PageFloats(layers int, h Heads) int
	// CachedAttention writes the new keys and values of every run into its pages
	// and attends from the last Ask of the new rows to all keys up to each row.
	CachedAttention(out *Tensor, q, k, v Rows, runs []Run, layer int, h Heads)

	// SwiGLU sets y[rows,dim] = silu(gate)·up from gu[rows,2*dim] = [gate | up].
	SwiGLU(y, gu *Tensor, rows, dim int)
	// SwiGLUBackward sets dgu from dy; dgu may be gu. It also sets y again.
	SwiGLUBackward(dgu, y, dy, gu *Tensor, rows, dim int)
	// GELU is exact (erf) or the approximation by tanh.
	GELU(y, x *Tensor, rows, dim int, tanh bool)
	GELUBackward(dx, dy, x *Tensor, rows, dim int, tanh bool) // sets dx; dx may be dy

	// Gather sets y[i] = x[rows[i]], rows of width dim; a negative row gives zeros.
	Gather(y, x *Tensor, rows *Ints, dim int)
	// Scatter sets y[rows[i]] = x[i]; ScatterAdd adds, in the order of i, and
	// skips negative rows.
	Scatter(y, x *Tensor, rows *Ints, dim int)
	ScatterAdd(y, x *Tensor, rows *Ints, dim int)
	// Mix adds to y[i] the sum of weight[i,k]·x[taps[i,k]] over the 4 taps;
	// MixBackward adds to dx.
	Mix(y, x *Tensor, taps *Ints, weight *Tensor, rows, dim int)
	MixBackward(dx, dy *Tensor, taps *Ints, weight *Tensor, rows, dim int)

	// RowDots sets y[i] = Σ_c a[i,c]·b[rows[i],c], in float32.
	RowDots(y, a, b *Tensor, rows *Ints, dim int)

	// HeadValues is the number of logits worth holding at once.
	HeadValues() int
	// HeadChunk scores targets against the softmax of z = x[rows,dim]·w[vocab,dim]ᵀ·scale:
	// logp[i] of targets[i], the entropy and ln Σ e^z. scratch holds rows*vocab.
	HeadChunk(logp, entropy, lse, x, w *Tensor, targets *Ints, scale float32, scratch *Tensor, rows, dim, vocab int)
	// HeadChunkBackward sets dx and adds to dw (skipped when nil) the gradient of
	// Σ dlogp·logp + dentropy·entropy. logp, entropy and lse are HeadChunk's
	// results. With again unset scratch still holds HeadChunk's product; it is
	// overwritten either way.
	HeadChunkBackward(dx, dw, x, w *Tensor, targets *Ints, dlogp, dentropy, entropy, lse *Tensor, scale float32, scratch *Tensor, rows, dim, vocab int, again bool)
}

// PageTokens is the number of tokens of a cache page.
const PageTokens = 64

// Run is the part of one sequence that a CachedAttention handles: rows
// [Row, Row+N) of the keys and values are its tokens [Start, Start+N); Pages hold
// those from token 0 on and have room for Start+N. Rows [AskRow, AskRow+Ask) of
// queries and results are the last Ask of these tokens.
type Run struct {
	Pages         []*Tensor
	Start, Row, N int
	AskRow, Ask   int
}
