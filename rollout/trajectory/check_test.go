package trajectory

import (
	"math"
	"testing"
)

func good() Row {
	return Row{
		TokenIDs: []int32{1, 9, 9, 2, 5, 6}, LossMask: []bool{false, false, false, false, true, true}, Logprobs: []float32{0, 0, 0, 0, -1, -0.5},
		LogprobMode: LogprobProcessed, Images: []Image{{ID: "a", GridT: 1, GridH: 2, GridW: 4, Offset: 1}},
	}
}

func TestCheck(t *testing.T) {
	row := good()
	if err := row.Check(); err != nil {
		t.Fatal(err)
	}
	none := Row{LogprobMode: LogprobNone}
	if err := none.Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Row){
		"short mask":           func(r *Row) { r.LossMask = r.LossMask[1:] },
		"short log-probs":      func(r *Row) { r.Logprobs = r.Logprobs[1:] },
		"no tokens":            func(r *Row) { r.TokenIDs, r.LossMask, r.Logprobs, r.Images = nil, nil, nil, nil },
		"NaN":                  func(r *Row) { r.Logprobs[4] = float32(math.NaN()) },
		"infinity":             func(r *Row) { r.Logprobs[4] = float32(math.Inf(-1)) },
		"positive":             func(r *Row) { r.Logprobs[4] = 0.1 },
		"log-prob of a prompt": func(r *Row) { r.Logprobs[0] = -1 },
		"image off the end":    func(r *Row) { r.Images[0].Offset = 5 },
		"image before":         func(r *Row) { r.Images[0].Offset = -1 },
		"image of no area":     func(r *Row) { r.Images[0].GridH = 0 },
		"sampled image":        func(r *Row) { r.Images[0].Offset = 3 },
		"images that overlap":  func(r *Row) { r.Images = append(r.Images, r.Images[0]) },
	} {
		row := good()
		if spoil(&row); row.Check() == nil {
			t.Errorf("%s passes", name)
		}
	}
}

// A row says where its tokens are from, and cannot say so without any, nor claim
// log-probs of tokens that were not sampled.
func TestTokenSource(t *testing.T) {
	row := func(source, mode string, n int) *Row {
		return &Row{TokenIDs: make([]int32, n), LossMask: make([]bool, n), Logprobs: make([]float32, n), TokenSource: source, LogprobMode: mode}
	}
	for _, good := range []*Row{row("", LogprobNone, 0), row("", LogprobRaw, 2), row(Sampled, LogprobNone, 2), row(Sampled, LogprobProcessed, 2), row(Retokenised, LogprobNone, 2)} {
		if err := good.Check(); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []*Row{row(Sampled, LogprobNone, 0), row("guessed", LogprobNone, 2), row(Retokenised, LogprobRaw, 2)} {
		if bad.Check() == nil {
			t.Errorf("%q with %d tokens and mode %s passes", bad.TokenSource, len(bad.TokenIDs), bad.LogprobMode)
		}
	}
}
