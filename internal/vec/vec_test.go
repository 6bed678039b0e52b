package vec

import (
	"math"
	"math/rand/v2"
	"testing"
)

func randoms(r *rand.Rand, n int, scale float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * scale)
	}
	return x
}

func TestExpIsAccurate(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, 1<<18)
	for i := range x {
		x[i] = float32(r.Float64()*176 - 87.3)
		if i%2 == 0 {
			x[i] = float32(r.NormFloat64())
		}
	}
	dst := make([]float32, len(x))
	Exp(dst, x)
	worst := 0.0
	for i := range x {
		want := math.Exp(float64(x[i]))
		if want > math.MaxFloat32 {
			continue
		}
		worst = max(worst, math.Abs(float64(dst[i])-want)/want)
	}
	if worst > 2e-7 {
		t.Errorf("relative error %g", worst)
	}
	t.Logf("relative error %g", worst)
}
