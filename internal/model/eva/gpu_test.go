//go:build cuda

package eva

import (
	"math"
	"slices"
	"testing"

	"searchloop/internal/tensor"
	"searchloop/internal/tensor/cuda"
)

// The tower on the GPU is as near to timm as bfloat16 lets it be, and an image has the
// same bits in any company.
func TestGPUAgainstTimm(t *testing.T) {
	be, err := cuda.New(0)
	if err != nil {
		t.Skip(err)
	}
	tower, err := LoadOn(&tensor.Shared{Encoding: be}, "testdata/clip")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tower.Close(); err != nil {
			t.Error(err)
		}
	}()
	patches, want := goldenPatches(t, tower.Patch())
	var many [][]float32
	for range 7 { // more than a pack
		many = append(many, patches...)
	}
	got := encode(t, tower, many...)
	for i := range many {
		w, v := want[i%len(want)], got[i*tower.Dim():(i+1)*tower.Dim()]
		var dot, a, b float64
		for j, x := range w {
			dot, a, b = dot+x*float64(v[j]), a+x*x, b+float64(v[j])*float64(v[j])
		}
		cos := dot / math.Sqrt(a*b)
		if i < len(want) {
			t.Logf("image %d: cosine %.6f", i, cos)
		}
		if !(cos >= 0.9999) {
			t.Errorf("image %d: cosine %.6f", i, cos)
		}
		if !slices.Equal(v, got[i%len(want)*tower.Dim():][:tower.Dim()]) {
			t.Errorf("image %d has other bits", i)
		}
	}
	if !slices.Equal(encode(t, tower, patches[1]), got[tower.Dim():2*tower.Dim()]) {
		t.Error("an image alone has other bits")
	}
}
