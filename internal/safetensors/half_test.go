package safetensors

import (
	"math"
	"testing"
)

// Every half and every bfloat16 survives the way through float32, and a float32
// becomes the nearer of its two neighbours.
func TestHalvesSurvive(t *testing.T) {
	for h := range 1 << 16 {
		if f := FromF16(uint16(h)); f == f && ToF16(f) != uint16(h) || f != f && FromF16(ToF16(f)) == FromF16(ToF16(f)) {
			t.Fatalf("half %#04x -> %g -> %#04x", h, f, ToF16(f))
		}
		if f := FromBF16(uint16(h)); f == f && ToBF16(f) != uint16(h) || f != f && FromBF16(ToBF16(f)) == FromBF16(ToBF16(f)) {
			t.Fatalf("bfloat16 %#04x -> %g -> %#04x", h, f, ToBF16(f))
		}
	}
}

func TestHalvesRoundToTheNearest(t *testing.T) {
	for h := range 0x7bff {
		a, b := float64(FromF16(uint16(h))), float64(FromF16(uint16(h+1)))
		mid := float32((a + b) / 2) // exact
		even := uint16(h + h&1)
		if got := ToF16(mid); got != even {
			t.Fatalf("between %#04x and the next: %#04x", h, got)
		}
		if got := ToF16(math.Nextafter32(mid, 0)); got != uint16(h) {
			t.Fatalf("below the middle of %#04x: %#04x", h, got)
		}
		if got := ToF16(-math.Nextafter32(mid, 1e9)); got != uint16(h+1)|0x8000 {
			t.Fatalf("above the middle of %#04x: %#04x", h, got)
		}
	}
}
