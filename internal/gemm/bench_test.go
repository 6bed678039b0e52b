//go:build unix

package gemm

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"searchloop/internal/bench"
)

// The sizes of the models that are trained and served here.
func BenchmarkProduct(b *testing.B) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, kn := range kernels {
		for _, s := range []struct {
			f       form
			m, n, k int
		}{
			{forms[0], 2048, 384, 96}, {forms[0], 64, 192, 64}, {forms[0], 8, 192, 64}, {forms[0], 1, 192, 64},
			{forms[0], 512, 640, 96}, {forms[1], 2048, 96, 384}, {forms[2], 384, 96, 2048}, {forms[0], 128, 128, 16},
			{forms[1], 128, 16, 128}, {forms[0], 1024, 1024, 1024}, {forms[1], 1024, 1024, 1024}, {forms[2], 1024, 1024, 1024}, {forms[0], 1, 1024, 1024},
		} {
			if kn.name == "portable" && s.m*s.n*s.k > 1<<28 {
				continue
			}
			b.Run(fmt.Sprintf("%s/%s/%dx%dx%d", kn.name, s.f.name, s.m, s.n, s.k), func(b *testing.B) {
				withKernel(b, kn)
				_, aCols, _, bCols := s.f.shapes(s.m, s.n, s.k)
				x, y, c := randoms(r, s.m*s.k), randoms(r, s.n*s.k), make([]float32, s.m*s.n)
				start := bench.ProcessorTime()
				for b.Loop() {
					s.f.f(View{c, s.n}, View{x, aCols}, View{y, bCols}, s.m, s.n, s.k, false)
				}
				flop := 2 * float64(s.m*s.n*s.k) * float64(b.N)
				b.ReportMetric(flop/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
				b.ReportMetric(flop/float64(bench.ProcessorTime()-start), "GFLOP/s-core")
			})
		}
	}
}

func BenchmarkPacked(b *testing.B) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, m := range []int{1, 4, 8, 64} {
		b.Run(fmt.Sprintf("%dx384x96", m), func(b *testing.B) {
			x, p, c := randoms(r, m*96), Pack(randoms(r, 384*96), 384, 96), make([]float32, m*384)
			start := bench.ProcessorTime()
			for b.Loop() {
				p.NT(c, x, m, false)
			}
			b.ReportMetric(2*float64(m*384*96)*float64(b.N)/float64(bench.ProcessorTime()-start), "GFLOP/s-core")
		})
	}
}

func BenchmarkDirect(b *testing.B) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, s := range [][3]int{{32, 512, 32}, {32, 32, 512}, {4, 32, 256}, {1, 64, 32}} {
		b.Run(fmt.Sprintf("%dx%dx%d", s[0], s[1], s[2]), func(b *testing.B) {
			m, n, k := s[0], s[1], s[2]
			x, y, c := randoms(r, m*k), randoms(r, n*k), make([]float32, m*n)
			start := bench.ProcessorTime()
			for b.Loop() {
				Direct(View{c, n}, x, k, 1, View{y, n}, m, n, k, false)
			}
			b.ReportMetric(2*float64(m*n*k)*float64(b.N)/float64(bench.ProcessorTime()-start), "GFLOP/s-core")
		})
	}
}
