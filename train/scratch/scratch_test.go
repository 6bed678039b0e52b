package scratch

import (
	"math"
	"slices"
	"testing"

	"searchloop/internal/model/qwenvl"
	"searchloop/internal/recipe"
	"searchloop/internal/token"
)

// The matrices of a new policy are as wide as its recipe says, and its config.json
// says so too.
func TestInitStd(t *testing.T) {
	tok, err := token.TrainBPE(slices.Values([]string{"a river, a bird and a river"}), 300, specials)
	if err != nil {
		t.Fatal(err)
	}
	small := recipe.Model{Hidden: 32, Layers: 1, Heads: 2, KVHeads: 2, HeadDim: 16, Intermediate: 64,
		VisionHidden: 16, VisionLayers: 1, VisionHeads: 2, PatchSize: 16}
	for said, want := range map[float64]float64{0: 0.02, 0.05: 0.05} {
		small.InitStd = said
		cfg, err := config(small, tok)
		if err != nil {
			t.Fatal(err)
		}
		m := qwenvl.Init(cfg, 1)
		if got := m.Config().InitStd; got != want {
			t.Errorf("init_std %g: the configuration says %g", said, got)
		}
		for _, p := range m.Params() {
			if len(p.Shape) == 1 || p.W.Len() < 1000 {
				continue
			}
			sum := 0.0
			for _, x := range p.W.Host() {
				sum += float64(x) * float64(x)
			}
			if std := math.Sqrt(sum / float64(p.W.Len())); math.Abs(std/want-1) > 0.1 {
				t.Errorf("init_std %g: %s has %g", said, p.Name, std)
			}
		}
	}
	for _, bad := range []float64{-0.1, math.NaN(), math.Inf(1)} {
		small.InitStd = bad
		if _, err := config(small, tok); err == nil {
			t.Errorf("init_std %g is taken", bad)
		}
	}
}
