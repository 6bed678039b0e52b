//go:build goexperiment.simd && amd64

package tensor

import "simd/archsimd"

func tileKernels() map[string]func(c []float32, ldc int, a []float32, ars, acs int, b []float32, ldb, m, n, k int, acc bool) {
	all := map[string]func(c []float32, ldc int, a []float32, ars, acs int, b []float32, ldb, m, n, k int, acc bool){}
	if archsimd.X86.AVX512() {
		all["AVX-512"] = mulTile512
	}
	if archsimd.X86.AVX2() && archsimd.X86.FMA() {
		all["AVX2"] = mulTile256
	}
	return all
}
