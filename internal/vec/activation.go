package vec

import "math"

// Sigmoid sets dst[i] = 1/(1+e^-x[i]).
func Sigmoid(dst, x []float32) {
	same("Sigmoid", len(dst), len(x))
	sigmoid(dst, x)
}

// SiLU sets dst[i] = x[i]·sigmoid(x[i]).
func SiLU(dst, x []float32) {
	same("SiLU", len(dst), len(x))
	silu(dst, x)
}

// SwiGLU sets dst[i] = silu(gate[i])·up[i].
func SwiGLU(dst, gate, up []float32) {
	same("SwiGLU", len(dst), len(gate))
	same("SwiGLU", len(dst), len(up))
	swiglu(dst, gate, up)
}

// SwiGLUBackward sets dgate and dup from the gradient dy of SwiGLU's result.
// dgate and dup may be the same slices as gate and up.
func SwiGLUBackward(dgate, dup, gate, up, dy []float32) {
	same("SwiGLUBackward", len(dgate), len(dup))
	same("SwiGLUBackward", len(dgate), len(gate))
	same("SwiGLUBackward", len(dgate), len(up))
	same("SwiGLUBackward", len(dgate), len(dy))
	swigluBackward(dgate, dup, gate, up, dy)
}

// GELU sets dst[i] = x[i]·Φ(x[i]) with the normal distribution Φ ("gelu", erf).
func GELU(dst, x []float32) {
	same("GELU", len(dst), len(x))
	gelu(dst, x)
}

// GELUBackward sets dx[i] = dy[i]·(Φ(x[i]) + x[i]·φ(x[i])).
func GELUBackward(dx, x, dy []float32) {
	same("GELUBackward", len(dx), len(x))
	same("GELUBackward", len(dx), len(dy))
	geluBackward(dx, x, dy)
}

// GELUTanh sets dst[i] to GELU's approximation by tanh ("gelu_pytorch_tanh").
func GELUTanh(dst, x []float32) {
	same("GELUTanh", len(dst), len(x))
	geluTanh(dst, x)
}

// GELUTanhBackward sets dx[i] = dy[i]·gelutanh'(x[i]).
func GELUTanhBackward(dx, x, dy []float32) {
	same("GELUTanhBackward", len(dx), len(x))
	same("GELUTanhBackward", len(dx), len(dy))
	geluTanhBackward(dx, x, dy)
}

func sigmoid1(x float32) float32 { return 1 / (1 + exp1(-x)) }

func sigmoidGeneric(dst, x []float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = sigmoid1(x[i])
	}
}

func siluGeneric(dst, x []float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = x[i] * sigmoid1(x[i])
	}
}

func swigluGeneric(dst, gate, up []float32) {
	gate, up = gate[:len(dst)], up[:len(dst)]
	for i := range dst {
		dst[i] = gate[i] * sigmoid1(gate[i]) * up[i]
	}
}

func swigluBackwardGeneric(dgate, dup, gate, up, dy []float32) {
	for i := range dgate {
		g, u, d := gate[i], up[i], dy[i]
		s := sigmoid1(g)
		dup[i] = d * (g * s)
		dgate[i] = d * u * (s * (1 + g*(1-s)))
	}
}

// For x >= 0 the normal distribution's upper tail is e^(-x²/2)·t·R(t), t = 1/(1+tailP·x), with a relative error of 3.2e-8
// (testdata/fit.py).
const tailP = 0.35

var tailR = [9]float32{0.1396218240261078, 0.13985474407672882, 0.11988276243209839, 0.10531691461801529, -0.022670803591609,
	0.15855231881141663, -0.2551822364330292, 0.14371953904628754, -0.02909509278833866}

// phi1 gives the normal distribution function and √(2π) times its density.
func phi1(x float32) (phi, density float32) {
	density = exp1(-0.5 * x * x)
	t := 1 / (1 + tailP*float32(math.Abs(float64(x))))
	r := tailR[8]
	for i := 7; i >= 0; i-- {
		r = r*t + tailR[i]
	}
	phi = density * t * r
	if x > 0 {
		phi = 1 - phi
	}
	return phi, density
}

func geluGeneric(dst, x []float32) {
	x = x[:len(dst)]
	for i := range dst {
		phi, _ := phi1(x[i])
		dst[i] = x[i] * phi
	}
}

const invSqrt2Pi = 0.398942280401432678

func geluBackwardGeneric(dx, x, dy []float32) {
	for i := range dx {
		v := x[i]
		phi, density := phi1(v)
		dx[i] = dy[i] * (phi + v*invSqrt2Pi*density)
	}
}

// gelutanh(x) = x·sigmoid(2u), u = √(2/π)·(x + 0.044715·x³).
const (
	geluA = 2 * 0.797884560802865356
	geluB = geluA * 0.044715

	// 1-s is taken as e·s, where it would lose all digits when s is near 1; e is
	// kept finite for that.
	geluBig = 1e18
)

func geluTanhGeneric(dst, x []float32) {
	x = x[:len(dst)]
	for i := range dst {
		v := x[i]
		dst[i] = v * sigmoid1(v*(geluA+geluB*v*v))
	}
}

func geluTanhBackwardGeneric(dx, x, dy []float32) {
	for i := range dx {
		v := x[i]
		e := min(exp1(-v*(geluA+geluB*v*v)), geluBig)
		s := 1 / (1 + e)
		dx[i] = dy[i] * (s + v*s*(e*s)*(geluA+3*geluB*v*v))
	}
}
