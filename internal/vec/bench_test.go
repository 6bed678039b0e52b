package vec

import (
	"math/rand/v2"
	"testing"
)

func BenchmarkVec(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	const n = 1024
	x, y, z, w, d := randoms(r, n, 1), randoms(r, n, 1), randoms(r, n, 1), randoms(r, n, 1), randoms(r, n, 1)
	var sink float32
	for _, c := range []struct {
		name string
		f    func()
	}{
		{"Dot", func() { sink += Dot(x, y) }},
		{"Sum", func() { sink += Sum(x) }},
		{"Max", func() { sink += Max(x) }},
		{"Add", func() { Add(d, x, y) }},
		{"Axpy", func() { Axpy(d, 1e-9, x) }},
		{"Exp", func() { Exp(d, x) }},
		{"Softmax", func() { Softmax(d, x, 0.5) }},
		{"SiLU", func() { SiLU(d, x) }},
		{"SwiGLU", func() { SwiGLU(d, x, y) }},
		{"SwiGLUBackward", func() { SwiGLUBackward(d, w, x, y, z) }},
		{"GELU", func() { GELU(d, x) }},
		{"GELUBackward", func() { GELUBackward(d, x, y) }},
		{"GELUTanh", func() { GELUTanh(d, x) }},
		{"RMSNorm", func() { RMSNorm(d, x, y, 1e-6) }},
		{"RMSNormBackward", func() { RMSNormBackward(d, w, x, y, z, 1e-9) }},
		{"LayerNorm", func() { LayerNorm(d, x, y, z, 1e-6) }},
		{"Rope", func() { Rope(d, y[:n/2], y[n/2:], false); Scale(d, x, 1) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				c.f()
			}
			b.ReportMetric(float64(n)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "elements/ns")
		})
	}
}
