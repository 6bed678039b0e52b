package train

import (
	"math"
	"slices"
	"strings"
	"testing"

	"searchloop/rollout/trajectory"
)

func goodRow() trajectory.Row {
	return trajectory.Row{
		ID: "q1#0", Group: "q1", Status: trajectory.OK,
		//                 start     image, 2 tokens        text  said  tool said
		TokenIDs:    []int32{4, 1, toyPad, toyPad, 2, 5, 6, 7, 5, 6},
		LossMask:    []bool{false, false, false, false, false, false, true, true, false, true},
		Logprobs:    []float32{0, 0, 0, 0, 0, 0, -1, -2, 0, -3},
		LogprobMode: trajectory.LogprobProcessed, Temperature: 1, TopP: 1,
		Images: []trajectory.Image{{ID: "x", GridT: 1, GridH: 2, GridW: 4, Offset: 2}},
	}
}

func toyChecker() Checker {
	return Checker{Traits: newToy(9, 2, 1).Traits(), Known: 8, Budget: 10}
}

func TestGoodRow(t *testing.T) {
	row := goodRow()
	// What stands where nothing was sampled is nobody's business.
	row.Logprobs[0], row.Logprobs[8] = float32(math.NaN()), float32(math.Inf(-1))
	c := toyChecker()
	s, refusal := c.Row(&row)
	if refusal != nil {
		t.Fatal(refusal)
	}
	if !slices.Equal(s.Spans, []Span{{6, 8}, {9, 10}}) || s.Trained != 3 || !slices.Equal(s.Sampled, []float32{-1, -2, -3}) {
		t.Errorf("%+v", s)
	}
	row.LogprobMode, row.Temperature = trajectory.LogprobRaw, .7
	c.Recompute = true
	if s, refusal = c.Row(&row); refusal != nil || s.Sampled != nil {
		t.Errorf("raw log-probs at another temperature: %v, %v", s.Sampled, refusal)
	}
}

// Tokens that were made of the text are not trained on, unless the recipe says so; then
// nothing is taken for sampled.
func TestRetokenisedRowsAreRefused(t *testing.T) {
	row := goodRow()
	row.TokenSource, row.LogprobMode = trajectory.Retokenised, trajectory.LogprobNone
	clear(row.Logprobs)
	c := toyChecker()
	if _, refusal := c.Row(&row); refusal == nil || refusal.Reason != NotSampled {
		t.Fatalf("%v", refusal)
	}
	c.Retokenised = true
	s, refusal := c.Row(&row)
	if refusal != nil || s.Sampled != nil || s.Trained != 3 {
		t.Errorf("%+v %v", s, refusal)
	}
	row.TokenIDs[3] = 2 // images are checked all the same
	if _, refusal := c.Row(&row); refusal == nil || refusal.Reason != BadImages {
		t.Errorf("%v", refusal)
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		reason string
		detail string // part of it
		change func(r *trajectory.Row)
	}{
		{"no tokens", NoTokens, "", func(r *trajectory.Row) { r.TokenIDs = nil }},
		{"short mask", LengthsDiffer, "10 token ids, 9 mask", func(r *trajectory.Row) { r.LossMask = r.LossMask[1:] }},
		{"long log-probs", LengthsDiffer, "11 log-probs", func(r *trajectory.Row) { r.Logprobs = append(r.Logprobs, 0) }},
		{"negative id", BadToken, "id -1 at 5", func(r *trajectory.Row) { r.TokenIDs[5] = -1 }},
		{"large id", BadToken, "id 9 at 0", func(r *trajectory.Row) { r.TokenIDs[0] = 9 }},
		{"padding row", PaddingTrained, "id 8 at 7", func(r *trajectory.Row) { r.TokenIDs[7] = 8 }},
		{"nothing said", NothingTrained, "", func(r *trajectory.Row) { clear(r.LossMask) }},
		{"first said", FirstTrained, "", func(r *trajectory.Row) { r.LossMask[0] = true; r.Images = nil }},
		{"image said", VisionTrained, "id 2 at 4", func(r *trajectory.Row) { r.LossMask[4] = true }},
		{"no mode", NoMode, "", func(r *trajectory.Row) { r.LogprobMode = "" }},
		{"odd mode", BadMode, "top", func(r *trajectory.Row) { r.LogprobMode = "top" }},
		{"mode none", NoLogprobs, "", func(r *trajectory.Row) { r.LogprobMode = trajectory.LogprobNone }},
		{"raw at .7", RawMode, "0.7", func(r *trajectory.Row) { r.LogprobMode, r.Temperature = trajectory.LogprobRaw, .7 }},
		{"NaN", BadLogprob, "token 1", func(r *trajectory.Row) { r.Logprobs[7] = float32(math.NaN()) }},
		{"-Inf", BadLogprob, "", func(r *trajectory.Row) { r.Logprobs[6] = float32(math.Inf(-1)) }},
		{"positive", BadLogprob, "", func(r *trajectory.Row) { r.Logprobs[6] = .01 }},
		{"greedy", BadSampling, "", func(r *trajectory.Row) { r.Temperature = 0 }},
		{"NaN temperature", BadSampling, "", func(r *trajectory.Row) { r.Temperature = float32(math.NaN()) }},
		{"top_p", Truncation, "top_p 0.9", func(r *trajectory.Row) { r.TopP = .9 }},
		{"top_k", Truncation, "top_k 20", func(r *trajectory.Row) { r.TopK = 20 }},
		{"too long", TooLong, "11 tokens", func(r *trajectory.Row) {
			r.TokenIDs, r.LossMask, r.Logprobs = append(r.TokenIDs, 5), append(r.LossMask, false), append(r.Logprobs, 0)
		}},
		{"cut inside an image", BadImages, "", func(r *trajectory.Row) { r.TokenIDs[3] = 2 }},
		{"one pad more", BadImages, "more", func(r *trajectory.Row) { r.TokenIDs[4] = toyPad }},
		{"pads without image", BadImages, "belongs to no image", func(r *trajectory.Row) { r.Images = nil }},
		{"image without pads", BadImages, "", func(r *trajectory.Row) {
			r.Images = append(r.Images, trajectory.Image{GridT: 1, GridH: 2, GridW: 2, Offset: 5})
		}},
		{"image behind the end", BadImages, "does not fit", func(r *trajectory.Row) { r.Images[0].Offset = 1 << 30 }},
		{"negative offset", BadImages, "does not fit", func(r *trajectory.Row) { r.Images[0].Offset = -3 }},
		{"odd grid", BadImages, "multiples of 2", func(r *trajectory.Row) { r.Images[0].GridW = 3 }},
		{"no grid", BadImages, "", func(r *trajectory.Row) { r.Images[0].GridT = 0 }},
		{"huge grid", BadImages, "", func(r *trajectory.Row) { r.Images[0].GridH = 1 << 30 }},
		{"offset shifted", BadImages, "belongs to no image", func(r *trajectory.Row) { r.Images[0].Offset = 3 }},
	} {
		row := goodRow()
		c.change(&row)
		checker := toyChecker()
		s, refusal := checker.Row(&row)
		if refusal == nil || s != nil || refusal.Reason != c.reason || !strings.Contains(refusal.Detail, c.detail) {
			t.Errorf("%s: %v, want %s", c.name, refusal, c.reason)
		}
	}
	blind := toyChecker()
	blind.ImagePad = -1
	row := goodRow()
	if _, refusal := blind.Row(&row); refusal == nil || refusal.Reason != BadImages {
		t.Errorf("images for a model without eyes: %v", refusal)
	}
}
