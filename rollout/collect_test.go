package rollout

import "testing"

func TestGrowth(t *testing.T) {
	for live, want := range map[uint64]int{0: 1000, 1 << 20: 1000, 64 << 20: 400, 256 << 20: 100, 8 << 30: 100} {
		if got := growth(live); got != want {
			t.Errorf("%d MB live: %d %%, want %d", live>>20, got, want)
		}
	}
}
