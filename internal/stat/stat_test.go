package stat

import (
	"encoding/json"
	"math"
	"os"
	"testing"
)

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s: %v, want %v within %v", what, got, want, within)
	}
}

// golden.py says how golden.json was made, by SciPy.
func TestAgainstSciPy(t *testing.T) {
	text, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		Wilson, Mcnemar, Percentile, Pass [][]float64
		Xs                                []float64
		Bootstrap                         []struct {
			A, B         []float64
			Low, High    float64
			DLow         float64 `json:"d_low"`
			DHigh        float64 `json:"d_high"`
			PermutationP float64 `json:"permutation_p"`
		}
	}
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	for _, c := range g.Wilson {
		w := Wilson(int(c[0]), int(c[1]))
		near(t, "wilson low", w.Low, c[2], 1e-12)
		near(t, "wilson high", w.High, c[3], 1e-12)
	}
	for _, c := range g.Mcnemar {
		near(t, "mcnemar", McNemar(int(c[0]), int(c[1])), c[2], 1e-11)
	}
	for _, c := range g.Percentile {
		near(t, "percentile", Percentile(g.Xs, c[0]), c[1], 1e-12)
	}
	for _, c := range g.Pass {
		near(t, "pass@k", PassAtK(int(c[0]), int(c[1]), int(c[2])), c[3], 1e-12)
	}
	if len(g.Wilson) < 20 || len(g.Pass) < 100 || len(g.Bootstrap) < 2 {
		t.Error("golden.json is not whole")
	}
	for _, c := range g.Bootstrap {
		one := 1.01 / float64(len(c.A)) // a resampled share moves by whole questions
		b := Bootstrap(c.A, 5000, 7)
		near(t, "bootstrap low", b.Low, c.Low, one)
		near(t, "bootstrap high", b.High, c.High, one)
		p := PairedBootstrap(c.A, c.B, 5000, 7)
		near(t, "difference low", p.Difference.Low, c.DLow, one)
		near(t, "difference high", p.Difference.High, c.DHigh, one)
		if (p.P < 0.05) != (c.PermutationP < 0.05) {
			t.Errorf("paired bootstrap p %v, permutation test %v", p.P, c.PermutationP)
		}
		if again := PairedBootstrap(c.A, c.B, 5000, 7); again != p {
			t.Error("same seed, other interval")
		}
		back := PairedBootstrap(c.B, c.A, 5000, 7)
		near(t, "the other way round", back.Difference.Mean, -p.Difference.Mean, 1e-12)
	}
}

func TestNothingToCount(t *testing.T) {
	if b := Bootstrap(nil, 100, 1); b != (Interval{}) {
		t.Errorf("%+v", b)
	}
	if b := Bootstrap([]float64{1, 0}, 0, 1); b.Low != 0.5 || b.High != 0.5 {
		t.Errorf("%+v", b)
	}
	if p := PairedBootstrap(nil, nil, 100, 1); p.P != 1 {
		t.Errorf("%+v", p)
	}
	if Wilson(0, 0) != (Interval{}) || !math.IsNaN(PassAtK(2, 1, 3)) || !math.IsNaN(PassAtK(2, 1, 0)) || !math.IsNaN(Percentile(nil, 0.5)) {
		t.Error("nothing to count")
	}
}
