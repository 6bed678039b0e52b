package serve

import "searchloop/internal/model/qwenvl"

// Model is what the server asks of a model. Results must not depend on how a
// sequence's tokens are cut into steps, nor on the other sequences of a call.
type Model interface {
	Spec() Spec
	// NewCache returns an empty cache for at most capacity tokens.
	NewCache(capacity int) Cache
	// Positions are the positions of a sequence's tokens and of the one after
	// them; see qwenvl.Positions.
	Positions(tokens []int32, grids [][3]int32) ([3][]int32, int32, error)
	// Extend appends each step's tokens to its cache and returns the logits after
	// its last one, in memory of the caller. After an error no cache has changed.
	Extend(steps []Step) ([][]float32, error)
}

// Cache holds the keys and values of one sequence. All its methods but Extend's
// use of it may be called at any time.
type Cache interface {
	Len() int
	Truncate(n int) // forget all tokens from n on
	Fork() Cache    // a second cache with the same tokens
	Release()       // give the memory back
}

// Step is the next tokens of one sequence.
type Step struct {
	Cache     Cache
	Tokens    []int32
	Positions [3][]int32
	Images    []StepImage // whole ones only
}

// StepImage is an image of a step; Offset counts from the step's first token.
type StepImage struct {
	Grid    [3]int32
	Patches []float32
	Offset  int32
}

// Spec is what the server has to know of a model.
type Spec struct {
	Vocab         int
	Context       int     // greatest number of tokens of a sequence; 0: not said
	Images        bool    // reads images
	Merge         int     // patches of an image token's side
	PatchDim      int     // values of a patch
	ImageMarks    []int32 // tokens that stand for images and must not be sampled
	BytesPerToken int     // of a cache
}

// qwen makes a qwenvl.Model a Model.
type qwen struct{ m *qwenvl.Model }

func (q qwen) Spec() Spec {
	c := q.m.Config()
	s := Spec{Vocab: c.Vocab, Context: c.MaxPositions, Images: c.HasVision(), BytesPerToken: 2 * 4 * c.Layers * c.KVHeads * c.HeadDim}
	if s.Images {
		s.Merge, s.PatchDim = c.MergeSize, c.PatchDim()
		s.ImageMarks = []int32{c.ImagePadID, c.VideoPadID, c.VisionStartID, c.VisionEndID}
	}
	return s
}

func (q qwen) NewCache(capacity int) Cache { return qwenCache{q.m.NewCache(capacity)} }

func (q qwen) Positions(tokens []int32, grids [][3]int32) ([3][]int32, int32, error) {
	return qwenvl.Positions(tokens, grids, q.m.Config())
}

func (q qwen) Extend(steps []Step) ([][]float32, error) {
	in := make([]qwenvl.Step, len(steps))
	for i, s := range steps {
		in[i] = qwenvl.Step{Cache: s.Cache.(qwenCache).Cache, Tokens: s.Tokens, Positions: s.Positions}
		for _, m := range s.Images {
			in[i].Images = append(in[i].Images, qwenvl.Image{Grid: m.Grid, Patches: m.Patches, Offset: m.Offset})
		}
	}
	return q.m.Extend(in)
}

type qwenCache struct{ *qwenvl.Cache }

func (c qwenCache) Fork() Cache { return qwenCache{c.Cache.Fork()} }
