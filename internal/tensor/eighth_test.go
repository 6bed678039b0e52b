package tensor

import (
	"math"
	"testing"
)

// Every number of e4m3 is its own rounding, and what lies between goes to the nearest.
func TestE4M3(t *testing.T) {
	last := float32(0)
	for bits := 1; bits < 127; bits++ { // 127 is NaN
		e, f := bits>>3, bits&7
		x := float32(math.Ldexp(float64(8+f), e-7-3))
		if e == 0 {
			x = float32(math.Ldexp(float64(f), -9))
		}
		middle := (last + x) / 2
		even := last
		if bits%2 == 0 {
			even = x
		}
		for v, want := range map[float32]float32{x: x, -x: -x, middle: even, math.Nextafter32(middle, 1000): x, math.Nextafter32(middle, 0): last} {
			if got := e4m3(v); got != want {
				t.Errorf("%v becomes %v, want %v", v, got, want)
			}
		}
		last = x
	}
	if last != 448 || e4m3(1000) != 448 || e4m3(-1e9) != -448 || e4m3(0) != 0 {
		t.Errorf("the largest is %v; %v %v %v", last, e4m3(1000), e4m3(-1e9), e4m3(0))
	}
}
