//go:build !(goexperiment.simd && amd64)

package train

func (k *kernel) update(w, g, m, v []float32) { k.updateScalar(w, g, m, v) }
