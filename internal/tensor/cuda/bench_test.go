//go:build cuda

package cuda

import (
	"slices"
	"testing"

	"searchloop/internal/tensor"
)

// median runs f until it is warm and returns the median of the seconds of n runs.
func median(n int, f func()) float64 {
	f()
	f()
	times := make([]float64, n)
	for i := range times {
		times[i] = gpu.Device().Time(f)
	}
	slices.Sort(times)
	return times[n/2]
}

func noise(b *testing.B, n int) *tensor.Tensor {
	x := newBench(&testing.T{}).normal(min(n, 1<<20), 0.5)
	t := gpu.Alloc(n)
	for i := 0; i < n; i += len(x) {
		m := min(len(x), n-i)
		gpu.Upload(t.View(i, m), x[:m])
	}
	b.Cleanup(func() { gpu.Free(t) })
	return t
}

// BenchmarkMemory are the operations that move memory, in GB/s.
func BenchmarkMemory(b *testing.B) {
	const rows, dim = 16384, 4096
	x, y, w, gu := noise(b, rows*dim), noise(b, rows*dim), noise(b, dim), noise(b, 2*rows*dim)
	inv, dw := gpu.AllocFull(rows), gpu.AllocFull(dim)
	for _, c := range []struct {
		name  string
		moved int // values of 2 bytes
		f     func()
	}{
		{"copy", 2 * rows * dim, func() { gpu.Copy(y, x) }},
		{"rmsnorm", 2 * rows * dim, func() { gpu.RMSNorm(y, inv, x, w, rows, dim, 1e-6) }},
		{"rmsnorm-backward", 4 * rows * dim, func() { gpu.RMSNormBackward(y, dw, x, x, w, inv, rows, dim) }},
		{"swiglu", 3 * rows * dim, func() { gpu.SwiGLU(y, gu, rows, dim) }},
		{"add", 3 * rows * dim, func() { gpu.Add(y, x) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportMetric(2*float64(c.moved)/median(21, c.f)/1e9, "GB/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
