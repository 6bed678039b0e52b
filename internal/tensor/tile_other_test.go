//go:build !(goexperiment.simd && amd64)

package tensor

func tileKernels() map[string]func(c []float32, ldc int, a []float32, ars, acs int, b []float32, ldb, m, n, k int, acc bool) {
	return nil
}
