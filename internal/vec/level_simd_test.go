//go:build goexperiment.simd && amd64

package vec

// eachLevel runs f with every instruction set that this CPU has.
func eachLevel(f func(level string)) {
	avx2, avx512 := hasAVX2, hasAVX512
	defer func() { hasAVX2, hasAVX512 = avx2, avx512 }()
	hasAVX2, hasAVX512 = false, false
	f("generic")
	if avx2 {
		hasAVX2 = true
		f("AVX2")
	}
	if avx512 {
		hasAVX512 = true
		f("AVX-512")
	}
}
