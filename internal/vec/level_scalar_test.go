//go:build !(goexperiment.simd && amd64)

package vec

func eachLevel(f func(level string)) { f("generic") }
