package tensor

// dryValues stand behind every allocation of a dry back end, so that an Arena
// asks once.
const dryValues = 1 << 50

// Dry is be without memory and without work: a pass that runs over it tells, by
// its Arena's Peak, what the same pass will need over be.
func Dry(be Backend) Backend { return dry{be} }

type dry struct{ Backend }

func (d dry) Alloc(n int) *Tensor     { return FromDevice(1<<40, n, d.Working()) }
func (d dry) AllocFull(n int) *Tensor { return FromDevice(1<<40, max(n, dryValues), Float32) }

func (dry) Free(*Tensor)                                                            {}
func (dry) Upload(*Tensor, []float32)                                               {}
func (dry) Download([]float32, *Tensor)                                             {}
func (dry) UploadInts(src []int32) *Ints                                            { return IntsFromHost(src) }
func (dry) Zero(*Tensor)                                                            {}
func (dry) Copy(dst, src *Tensor)                                                   {}
func (dry) Add(dst, src *Tensor)                                                    {}
func (dry) Linear(y, x, w, bias *Tensor, rows, in, out int, acc bool)               {}
func (dry) RMSNorm(y, inv, x, w *Tensor, rows, dim int, eps float32)                {}
func (dry) RMSNormAgain(y, inv, x, w *Tensor, rows, dim int)                        {}
func (dry) RMSNormBackward(dx, dw, dy, x, w, inv *Tensor, rows, dim int)            {}
func (dry) LayerNorm(y, stat, x, w, b *Tensor, rows, dim int, eps float32)          {}
func (dry) LayerNormAgain(y, stat, x, w, b *Tensor, rows, dim int)                  {}
func (dry) LayerNormBackward(dx, dw, db, dy, x, w, stat *Tensor, rows, dim int)     {}
func (dry) RopeTable(cos, sin *Tensor, pos *Ints, rows int, f []float32, a []uint8) {}
func (dry) Rope(x Rows, cos, sin *Tensor, rows, heads, dim int, inverse bool)       {}
func (dry) Attention(out, lse *Tensor, q, k, v Rows, cu, at *Ints, h Heads)         {}
func (dry) SwiGLU(y, gu *Tensor, rows, dim int)                                     {}
func (dry) SwiGLUBackward(dgu, y, dy, gu *Tensor, rows, dim int)                    {}
func (dry) GELU(y, x *Tensor, rows, dim int, tanh bool)                             {}
func (dry) GELUBackward(dx, dy, x *Tensor, rows, dim int, tanh bool)                {}
func (dry) Gather(y, x *Tensor, rows *Ints, dim int)                                {}
func (dry) Scatter(y, x *Tensor, rows *Ints, dim int)                               {}
func (dry) ScatterAdd(y, x *Tensor, rows *Ints, dim int)                            {}
func (dry) Mix(y, x *Tensor, taps *Ints, weight *Tensor, rows, dim int)             {}
func (dry) MixBackward(dx, dy *Tensor, taps *Ints, weight *Tensor, rows, dim int)   {}
func (dry) RowDots(y, a, b *Tensor, rows *Ints, dim int)                            {}

func (dry) LinearBackward(dx, dw, db, dy, x, w *Tensor, rows, in, out int, accDx bool) {}
func (dry) NormRope(y, inv *Tensor, x Rows, w, cos, sin *Tensor, rows, heads, dim int, eps float32) {
}
func (dry) NormRopeBackward(dx Rows, dw, dy *Tensor, x Rows, w, inv, cos, sin *Tensor, rows, heads, dim int) {
}
func (dry) AttentionBackward(dq, dk, dv Rows, dout, out, lse *Tensor, q, k, v Rows, cu, at *Ints, h Heads) {
}
func (dry) CachedAttention(out *Tensor, q, k, v Rows, runs []Run, layer int, h Heads) {}
func (dry) HeadChunk(logp, entropy, lse, x, w *Tensor, targets *Ints, scale float32, scratch *Tensor, rows, dim, vocab int) {
}
func (dry) HeadChunkBackward(dx, dw, x, w *Tensor, targets *Ints, dlogp, dentropy, entropy, lse *Tensor, scale float32, scratch *Tensor, rows, dim, vocab int, again bool) {
}
