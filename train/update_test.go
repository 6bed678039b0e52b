package train

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"searchloop/internal/recipe"
)

// A whole update through the model: loss and the norm of the gradient over all
// weights are those of transformers and torch; testdata/update.py says how they
// were made. Whatever the rows are packed with.
func TestParityOfUpdates(t *testing.T) {
	raw, err := os.ReadFile("testdata/update.json")
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Rows []struct {
			Tokens    []int32
			Mask      []bool
			Old, Ref  []float32
			Advantage float64
			Grid      *[3]int32
		}
		Cases []struct {
			Settings struct {
				Loss, Aggregation string
				ClipLow           float64 `json:"clip_low"`
				ClipHigh          float64 `json:"clip_high"`
				DualClip          float64 `json:"dual_clip"`
				KL, Entropy       float64
				KLEstimator       string  `json:"kl_estimator"`
				OldKL             float64 `json:"old_kl"`
			}
			Loss, Norm, KL float64
		}
	}
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	policy, err := LoadQwen("../internal/model/qwenvl/testdata/vl", false)
	if err != nil {
		t.Fatal(err)
	}
	images := OpenPictures(func(_ []byte, grid [3]int32) ([3]int32, []float32, error) {
		patches := make([]float32, int(grid[0]*grid[1]*grid[2])*policy.Traits().PatchDim)
		for i := range patches {
			patches[i] = float32((float64(i*7919%1000) - 500) / 250)
		}
		return grid, patches, nil
	})
	picture, err := images.Add("data:;base64,AAAA", "")
	if err != nil {
		t.Fatal(err)
	}
	var rows []*Sequence
	for _, r := range want.Rows {
		s := &Sequence{Tokens: r.Tokens, Temperature: 1, Old: r.Old, Ref: r.Ref, Advantage: r.Advantage}
		s.Spans, s.Trained = spansOf(r.Mask)
		if r.Grid != nil {
			s.Images = []ImageRef{{ID: picture, Grid: *r.Grid, Offset: 1}}
		}
		rows = append(rows, s)
	}
	opt, err := NewAdamW(recipe.Optimizer{Beta1: .9, Beta2: .99, Eps: 1e-8}, policy.Params())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range want.Cases {
		s := &c.Settings
		g := recipe.GRPO{Loss: s.Loss, ClipLow: s.ClipLow, ClipHigh: s.ClipHigh, DualClip: s.DualClip, KL: s.KL, KLEstimator: s.KLEstimator,
			Entropy: s.Entropy, OldKL: s.OldKL, Aggregation: s.Aggregation}
		d := &drill{policy: policy, rows: rows, images: images}
		for _, packs := range [][][]int{{{0, 1, 2, 3}}, {{2}, {3, 0}, {1}}} {
			loss, _ := d.gradient(t, d.goal(t, g), packs...)
			norm := opt.Norm()
			near(t, s.Loss+" loss", loss, c.Loss, 1e-5*math.Max(1, math.Abs(c.Loss)))
			near(t, s.Loss+" norm", norm, c.Norm, 1e-5*c.Norm)
		}
	}
}
