package qwenvl

import (
	"math"
	"testing"
)

// Operations a token of the published models, at rows of 8192 and 32768 tokens:
// counted by hand from their shapes.
func TestCost(t *testing.T) {
	for _, m := range []struct {
		name               string
		c                  Config
		none, short, long_ float64 // GFLOP a token without attention, of rows of 8k and 32k
	}{
		{"Qwen2.5-VL-7B", Config{Vocab: 152064, Hidden: 3584, Intermediate: 18944, Layers: 28, Heads: 28, KVHeads: 4, HeadDim: 128}, 42.4, 47.4, 62.2},
		{"Qwen3-VL-8B", Config{Vocab: 151936, Hidden: 4096, Intermediate: 12288, Layers: 36, Heads: 32, KVHeads: 8, HeadDim: 128}, 45.4, 52.7, 74.4},
		{"Qwen3-VL-4B", Config{Vocab: 151936, Hidden: 2560, Intermediate: 9728, Layers: 36, Heads: 32, KVHeads: 8, HeadDim: 128}, 24.1, 31.4, 53.1},
	} {
		k := m.c.Cost()
		for i, want := range []float64{m.none, m.short, m.long_} {
			n := []int{1, 8192, 32768}[i]
			got := k.Row(n, nil, 2) / float64(n) / 1e9
			if math.Abs(got-want) > .06 {
				t.Errorf("%s at %d: %.3f GFLOP a token, want %.1f", m.name, n, got, want)
			}
		}
	}
}

// A picture's frames see only themselves, and windows less than frames.
func TestCostOfPictures(t *testing.T) {
	c := Config{Vocab: 100, Hidden: 64, Intermediate: 128, Layers: 2, Heads: 2, KVHeads: 2, HeadDim: 32, MergeSize: 2, PatchSize: 16, TemporalPatch: 2,
		Vision: VisionConfig{Depth: 4, Hidden: 32, Intermediate: 64, Heads: 2, Channels: 3, Out: 64, Deepstack: []int{1}}}
	k := c.Cost()
	one := k.Row(0, [][3]int32{{1, 8, 8}}, 2)
	want := 64*6*(1536*32+4*(4*32*32+2*32*64)) + 16*6*2*(128*128+128*64) + 12*4*32*64.*64
	if math.Abs(one-want) > 1e-6*want {
		t.Errorf("a picture of 8×8 patches: %g, want %g", one, want)
	}
	if two := k.Row(0, [][3]int32{{2, 8, 8}}, 2); two != 2*one {
		t.Errorf("two frames: %g, one %g", two, one)
	}
	c.Vision.Window, c.Vision.Full, c.Vision.Deepstack = 4, []int{3}, nil
	if w := c.Cost(); w.Patches*4 != k.Patches {
		t.Errorf("one full block of four: %g of %g", w.Patches, k.Patches)
	}
}
