//go:build !(goexperiment.simd && amd64)

package vec

// Without archsimd every loop is the generic one.

func dot(a, b []float32) float32                        { return dotGeneric(a, b) }
func sum(x []float32) float32                           { return sumGeneric(x) }
func maximum(x []float32) float32                       { return maximumGeneric(x) }
func add(dst, a, b []float32)                           { addGeneric(dst, a, b) }
func sub(dst, a, b []float32)                           { subGeneric(dst, a, b) }
func mul(dst, a, b []float32)                           { mulGeneric(dst, a, b) }
func mulAdd(dst, a, b []float32)                        { mulAddGeneric(dst, a, b) }
func scale(dst, x []float32, s float32)                 { scaleGeneric(dst, x, s) }
func axpy(y []float32, s float32, x []float32)          { axpyGeneric(y, s, x) }
func rope(a, b, cos, sin []float32, inverse bool)       { ropeGeneric(a, b, cos, sin, inverse) }
func exp(dst, x []float32)                              { expGeneric(dst, x) }
func expSum(dst, x []float32, shift float32) float32    { return expSumGeneric(dst, x, shift) }
func softmaxBackward(dx, p, dp []float32, d, s float32) { softmaxBackwardGeneric(dx, p, dp, d, s) }
func sigmoid(dst, x []float32)                          { sigmoidGeneric(dst, x) }
func silu(dst, x []float32)                             { siluGeneric(dst, x) }
func swiglu(dst, gate, up []float32)                    { swigluGeneric(dst, gate, up) }
func swigluBackward(dgate, dup, gate, up, dy []float32) {
	swigluBackwardGeneric(dgate, dup, gate, up, dy)
}
func gelu(dst, x []float32)                                    { geluGeneric(dst, x) }
func geluBackward(dx, x, dy []float32)                         { geluBackwardGeneric(dx, x, dy) }
func geluTanh(dst, x []float32)                                { geluTanhGeneric(dst, x) }
func geluTanhBackward(dx, x, dy []float32)                     { geluTanhBackwardGeneric(dx, x, dy) }
func mulScaled(dst, a, b []float32, s float32)                 { mulScaledGeneric(dst, a, b, s) }
func mulScaledAdd(dst, a, b []float32, s float32)              { mulScaledAddGeneric(dst, a, b, s) }
func dot3(a, b, c []float32) float32                           { return dot3Generic(a, b, c) }
func sumSqDiff(x []float32, m float32) float32                 { return sumSqDiffGeneric(x, m) }
func normalise(dst, x, w, b []float32, mean, inv float32)      { normaliseGeneric(dst, x, w, b, mean, inv) }
func centre(dst, x []float32, mean, inv float32)               { centreGeneric(dst, x, mean, inv) }
func axpyShift(y []float32, s float32, x []float32, c float32) { axpyShiftGeneric(y, s, x, c) }
