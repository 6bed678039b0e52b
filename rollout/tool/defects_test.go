package tool

import (
	"context"
	"image/color"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/corpus"
	"searchloop/internal/recipe"
	"searchloop/rollout/protocol"
)

// Tests named after defects of the published systems (G7 is defect 7).

// scored answers every query with hits of these scores.
type scored []float32

func (s scored) Search(_ context.Context, queries []string, _ int) ([][]Hit, error) {
	out := make([][]Hit, len(queries))
	for i := range out {
		for _, score := range s {
			out[i] = append(out[i], Hit{Contents: "Emblem of Vorna", Score: score})
		}
	}
	return out, nil
}

// The threshold of image search is the recipe's: below it a hit is none, and the policy
// is told that there is no result; without one all are shown.
func TestG7ThresholdIsTheRecipes(t *testing.T) {
	for _, c := range []struct {
		threshold float32
		scores    scored
		want      string
	}{
		{0.7, scored{0.69, 0.1}, NoResult},
		{0.7, scored{0.71, 0.69}, "Emblem of Vorna"},
		{0.5, scored{0.71, 0.69}, "Emblem of Vorna; Emblem of Vorna"},
		{0, scored{0.01}, "Emblem of Vorna"},
	} {
		box, err := New([]recipe.Tool{{Name: ImageByText, Threshold: c.threshold}}, Sources{Image: c.scores})
		if err != nil {
			t.Fatal(err)
		}
		r, err := box.Run(t.Context(), &corpus.Question{ID: "q"}, protocol.Call{Name: ImageByText, Queries: []string{"emblem"}})
		if err != nil || r.Text != c.want || r.Problem != "" {
			t.Errorf("%g over %v: %q %q %v", c.threshold, c.scores, r.Text, r.Problem, err)
		}
	}
}

// A lens entry one of whose images is gone is told all the same: its titles stay, the
// other images too, and what is missing is named for those who read the row.
func TestG13OneMissingImageOfALensEntry(t *testing.T) {
	store, err := corpus.OpenStore(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	good, err := store.Put(draw(t, 20, 20, color.Black))
	if err != nil {
		t.Fatal(err)
	}
	gone := strings.Repeat("ab", 32)
	box, err := New([]recipe.Tool{{Name: ImageByLens, Images: 2, TopK: 3}}, Sources{Store: store, Lens: Entries{"q": {Hits: []corpus.LensHit{
		{Title: "Lost", ImageID: gone}, {Title: "Found", ImageID: good}, {Title: "Bare"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := box.Run(t.Context(), &corpus.Question{ID: "q", ImageIDs: []string{good}}, protocol.Call{Name: ImageByLens})
	if err != nil || r.Text != "Lost; Found; Bare" || len(r.Images) != 1 || r.Images[0].ID != good || !strings.Contains(r.Problem, gone[:12]) {
		t.Errorf("%q, %d images, %q, %v", r.Text, len(r.Images), r.Problem, err)
	}
}
