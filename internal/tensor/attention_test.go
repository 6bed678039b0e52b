package tensor

import (
	"fmt"
	"math"
	"testing"
)

// noise fills a new tensor with numbers in [-1, 1).
func noise(n int, seed uint32) *Tensor {
	x := make([]float32, n)
	for i := range x {
		seed = seed*1664525 + 1013904223
		x[i] = float32(int32(seed)) / (1 << 31)
	}
	return FromHost(x)
}

// naive is attention and, by differentiating it as written, its gradient in
// float64.
func naive(q, k, v, dout []float32, cu []int32, h Heads) (out, dq, dk, dv []float64) {
	d, n := h.Dim, int(cu[len(cu)-1])
	out, dq = make([]float64, n*h.Heads*d), make([]float64, n*h.Heads*d)
	dk, dv = make([]float64, n*h.KVHeads*d), make([]float64, n*h.KVHeads*d)
	for s := range len(cu) - 1 {
		for hq := range h.Heads {
			g := hq * h.KVHeads / h.Heads
			for i := int(cu[s]); i < int(cu[s+1]); i++ {
				end := int(cu[s+1])
				if h.Causal {
					end = i + 1
				}
				qi, oi := (i*h.Heads+hq)*d, (i*h.Heads+hq)*d
				p, sum := make([]float64, end), 0.0
				for j := int(cu[s]); j < end; j++ {
					for c := range d {
						p[j] += float64(q[qi+c]) * float64(k[(j*h.KVHeads+g)*d+c]) * float64(h.Scale)
					}
					p[j] = math.Exp(p[j])
					sum += p[j]
				}
				dp, inner := make([]float64, end), 0.0
				for j := int(cu[s]); j < end; j++ {
					p[j] /= sum
					for c := range d {
						at := (j*h.KVHeads+g)*d + c
						out[oi+c] += p[j] * float64(v[at])
						dp[j] += float64(dout[oi+c]) * float64(v[at])
						dv[at] += p[j] * float64(dout[oi+c])
					}
					inner += p[j] * dp[j]
				}
				for j := int(cu[s]); j < end; j++ {
					ds := p[j] * (dp[j] - inner) * float64(h.Scale)
					for c := range d {
						dq[qi+c] += ds * float64(k[(j*h.KVHeads+g)*d+c])
						dk[(j*h.KVHeads+g)*d+c] += ds * float64(q[qi+c])
					}
				}
			}
		}
	}
	return out, dq, dk, dv
}

func close64(t *testing.T, what string, got []float32, want []float64) {
	t.Helper()
	var diff, norm float64
	for i := range want {
		diff += (float64(got[i]) - want[i]) * (float64(got[i]) - want[i])
		norm += want[i] * want[i]
	}
	if !(math.Sqrt(diff) <= 2e-6*math.Sqrt(norm)) {
		t.Errorf("%s: relative difference %g", what, math.Sqrt(diff/norm))
	}
}

var attentionCases = []struct {
	cu []int32
	h  Heads
}{
	{[]int32{0, 1, 34, 34, 99, 230}, Heads{Heads: 4, KVHeads: 2, Dim: 32, Scale: .3, Causal: true}},
	{[]int32{0, 64, 128}, Heads{Heads: 6, KVHeads: 2, Dim: 24, Scale: .4, Causal: true}},
	{[]int32{0, 70}, Heads{Heads: 3, KVHeads: 3, Dim: 10, Scale: .5, Causal: true}},
	{[]int32{0, 16, 40, 45}, Heads{Heads: 2, KVHeads: 2, Dim: 36, Scale: .2}},
}

func TestAttentionAgainstFloat64(t *testing.T) {
	for _, c := range attentionCases {
		t.Run(fmt.Sprint(c.h), func(t *testing.T) {
			n, h := int(c.cu[len(c.cu)-1]), c.h
			qd, kd := h.Heads*h.Dim, h.KVHeads*h.Dim
			q, k, v, dout := noise(n*qd, 1), noise(n*kd, 2), noise(n*kd, 3), noise(n*qd, 4)
			out, lse := FromHost(make([]float32, n*qd)), FromHost(make([]float32, n*h.Heads))
			dq, dk, dv := FromHost(make([]float32, n*qd)), FromHost(make([]float32, n*kd)), FromHost(make([]float32, n*kd))
			cu := CPU.UploadInts(c.cu)
			r := func(t *Tensor, stride int) Rows { return Rows{T: t, Stride: stride} }
			CPU.Attention(out, lse, r(q, qd), r(k, kd), r(v, kd), cu, nil, h)
			CPU.AttentionBackward(r(dq, qd), r(dk, kd), r(dv, kd), dout, out, lse, r(q, qd), r(k, kd), r(v, kd), cu, nil, h)
			wo, wq, wk, wv := naive(q.host, k.host, v.host, dout.host, c.cu, h)
			close64(t, "out", out.host, wo)
			close64(t, "dq", dq.host, wq)
			close64(t, "dk", dk.host, wk)
			close64(t, "dv", dv.host, wv)
			if !h.Causal {
				return
			}
			someRows(t, q, k, v, dout, out, cu, h)
			// The same through pages, in pieces: the same bits.
			for s := range len(c.cu) - 1 {
				from, length := int(c.cu[s]), int(c.cu[s+1]-c.cu[s])
				var pages []*Tensor
				for range length/PageTokens + 1 {
					pages = append(pages, noise(CPU.PageFloats(2, h), 9)) // old values must not matter
				}
				got := FromHost(make([]float32, n*qd))
				for start := 0; start < length; {
					m := min(1+start/2, length-start)
					CPU.CachedAttention(got, r(q, qd), r(k, kd), r(v, kd), []Run{{Pages: pages, Start: start, Row: from + start, N: m, AskRow: from + start, Ask: m}}, 1, h)
					start += m
				}
				for i := from * qd; i < (from+length)*qd; i++ {
					if math.Float32bits(got.host[i]) != math.Float32bits(out.host[i]) {
						t.Fatalf("sequence %d differs through pages at %d: %g, want %g", s, i, got.host[i], out.host[i])
					}
				}
			}
		})
	}
}

// someRows checks an attention that only every third row asks for: the same bits
// forward, and the gradient of the same sum.
func someRows(t *testing.T, q, k, v, dout, out *Tensor, cu *Ints, h Heads) {
	t.Helper()
	n, qd, kd := out.n/(h.Heads*h.Dim), h.Heads*h.Dim, h.KVHeads*h.Dim
	masked := make([]float32, n*qd)
	var at []int32
	for i := 2; i < n; i += 3 {
		at = append(at, int32(i))
		copy(masked[i*qd:(i+1)*qd], dout.host[i*qd:(i+1)*qd])
	}
	rows := CPU.UploadInts(at)
	pick := func(x *Tensor) *Tensor {
		y := FromHost(make([]float32, len(at)*qd))
		CPU.Gather(y, x, rows, qd)
		return y
	}
	r := func(t *Tensor, stride int) Rows { return Rows{T: t, Stride: stride} }
	some, lse := FromHost(make([]float32, len(at)*qd)), FromHost(make([]float32, len(at)*h.Heads))
	CPU.Attention(some, lse, r(pick(q), qd), r(k, kd), r(v, kd), cu, rows, h)
	for i, x := range pick(out).host {
		if some.host[i] != x {
			t.Fatalf("of some rows: %g at %d, want %g", some.host[i], i, x)
		}
	}
	dq, dk, dv := noise(len(at)*qd, 1), noise(n*kd, 2), noise(n*kd, 3)
	CPU.AttentionBackward(r(dq, qd), r(dk, kd), r(dv, kd), pick(dout), some, lse, r(pick(q), qd), r(k, kd), r(v, kd), cu, rows, h)
	_, wq, wk, wv := naive(q.host, k.host, v.host, masked, cu.host, h)
	var wantQ []float64
	for _, i := range at {
		wantQ = append(wantQ, wq[int(i)*qd:(int(i)+1)*qd]...)
	}
	close64(t, "dq of some rows", dq.host, wantQ)
	close64(t, "dk of some rows", dk.host, wk)
	close64(t, "dv of some rows", dv.host, wv)
}

func TestMulTile(t *testing.T) {
	for _, c := range []struct{ m, n, k int }{{4, 8, 1}, {4, 16, 5}, {8, 24, 7}, {12, 32, 3}, {4, 56, 33}, {32, 72, 24}} {
		for _, turned := range []bool{false, true} {
			a, b := noise(c.m*c.k, 1).host, noise(c.k*c.n, 2).host
			ars, acs := c.k, 1
			if turned {
				ars, acs = 1, c.m
			}
			got, want := noise(c.m*c.n, 3).host, noise(c.m*c.n, 3).host
			half := c.k / 2
			mulTile(got, c.n, a, ars, acs, b, c.n, c.m, c.n, c.k, true)
			for i := range c.m {
				for j := range c.n {
					sum := float64(want[i*c.n+j])
					for p := range c.k {
						sum += float64(a[i*ars+p*acs]) * float64(b[p*c.n+j])
					}
					if math.Abs(sum-float64(got[i*c.n+j])) > 1e-5 {
						t.Fatalf("%v turned %v: element %d,%d is %g, want %g", c, turned, i, j, got[i*c.n+j], sum)
					}
				}
			}
			// Cut along k: the same bits.
			again := noise(c.m*c.n, 3).host
			mulTile(again, c.n, a, ars, acs, b, c.n, c.m, c.n, half, true)
			mulTile(again, c.n, a[half*acs:], ars, acs, b[half*c.n:], c.n, c.m, c.n, c.k-half, true)
			for i := range got {
				if got[i] != again[i] {
					t.Fatalf("%v turned %v: cut along k differs at %d", c, turned, i)
				}
			}
		}
	}
}

func BenchmarkAttention(b *testing.B) {
	h := Heads{Heads: 4, KVHeads: 2, Dim: 32, Scale: .2, Causal: true}
	const n = 2400
	cu := CPU.UploadInts([]int32{0, 300, 600, 900, 1200, 1500, 1800, 2100, 2400})
	qd, kd := h.Heads*h.Dim, h.KVHeads*h.Dim
	q, k, v, out := noise(n*qd, 1), noise(n*kd, 2), noise(n*kd, 3), noise(n*qd, 4)
	lse := noise(n*h.Heads, 5)
	dq, dk, dv := noise(n*qd, 1), noise(n*kd, 2), noise(n*kd, 3)
	r := func(t *Tensor, stride int) Rows { return Rows{T: t, Stride: stride} }
	b.Run("forward", func(b *testing.B) {
		for b.Loop() {
			CPU.Attention(out, lse, r(q, qd), r(k, kd), r(v, kd), cu, nil, h)
		}
		b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "tokens/s")
	})
	b.Run("backward", func(b *testing.B) {
		for b.Loop() {
			CPU.AttentionBackward(r(dq, qd), r(dk, kd), r(dv, kd), out, out, lse, r(q, qd), r(k, kd), r(v, kd), cu, nil, h)
		}
		b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "tokens/s")
	})
}
