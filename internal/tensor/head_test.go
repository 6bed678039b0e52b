package tensor

import (
	"math"
	"testing"
)

// headOf runs HeadChunk and its gradient over rows of dim 2 with a head that
// makes the logits visible: z = x·w.
func headOf(x, w []float32, dim, vocab int, targets []int32, scale float32, dlogp, dent []float32, again bool) (logp, ent, dx, dw []float32) {
	rows := len(x) / dim
	f := func(n int) *Tensor { return FromHost(make([]float32, n)) }
	lp, en, lse, scratch := f(rows), f(rows), f(rows), f(rows*vocab)
	gx, gw := f(rows*dim), f(vocab*dim)
	tx, tw, tt := FromHost(x), FromHost(w), CPU.UploadInts(targets)
	CPU.HeadChunk(lp, en, lse, tx, tw, tt, scale, scratch, rows, dim, vocab)
	if again {
		clear(scratch.host)
	}
	CPU.HeadChunkBackward(gx, gw, tx, tw, tt, FromHost(dlogp), FromHost(dent), en, lse, scale, scratch, rows, dim, vocab, again)
	return lp.host, en.host, gx.host, gw.host
}

// Logits 2, 1, 0, -1 and target 1, worked out by hand; with x = 1 the gradient of
// the head's rows is that of the logits.
func TestHeadByHand(t *testing.T) {
	w := []float32{2, 1, 0, -1}
	check := func(what string, got, want []float32) {
		t.Helper()
		for i := range want {
			if math.Abs(float64(got[i]-want[i])) > 1e-6 {
				t.Errorf("%s: %v, want %v", what, got, want)
				return
			}
		}
	}
	for _, again := range []bool{false, true} {
		logp, ent, _, dw := headOf([]float32{1}, w, 1, 4, []int32{1}, 1, []float32{1}, []float32{0}, again)
		check("logp", logp, []float32{-1.4401897})
		check("entropy", ent, []float32{.9475370})
		check("gradient of logp", dw, []float32{-.6439143, .7631172, -.0871443, -.0320586})
		_, _, _, dw = headOf([]float32{1}, w, 1, 4, []int32{1}, 1, []float32{0}, []float32{1}, again)
		check("gradient of the entropy", dw, []float32{-.3266881, .1167010, .1300762, .0799110})
		logp, ent, _, dw = headOf([]float32{1}, w, 1, 4, []int32{1}, 1/.7, []float32{1}, []float32{0}, again)
		check("logp at .7", logp, []float32{-1.6992453})
		check("entropy at .7", ent, []float32{.7020280})
		check("gradient at .7", dw, []float32{-1.0898075, 1.1673979, -.0625905, -.0149999})
	}
}

// A row without coefficients has no influence even where its logits overflow.
func TestHeadLeavesMaskedRowsAlone(t *testing.T) {
	w := []float32{1e30, 1, 2, 3}
	for _, again := range []bool{false, true} {
		_, _, dx, dw := headOf([]float32{1e-30, 1e30}, w, 1, 4, []int32{1, 2}, 1, []float32{1, 0}, []float32{0, 0}, again)
		_, _, dx1, dw1 := headOf([]float32{1e-30}, w, 1, 4, []int32{1}, 1, []float32{1}, []float32{0}, again)
		if dx[0] != dx1[0] || dx[1] != 0 {
			t.Errorf("gradient of the rows %v, want [%v 0]", dx, dx1[0])
		}
		for i := range dw {
			if dw[i] != dw1[i] {
				t.Errorf("gradient of the head %v, want %v", dw, dw1)
			}
		}
	}
}
