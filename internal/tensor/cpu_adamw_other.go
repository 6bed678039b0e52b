//go:build !(goexperiment.simd && amd64)

package tensor

func (k *adamStep) update(w, g, m, v []float32) { k.updateScalar(w, g, m, v) }
