package train

import (
	"searchloop/internal/model/qwenvl"
)

// Policy is a model as the trainers need it. It is used by one goroutine.
type Policy interface {
	// Params are the tensors to train, with their gradients, in a fixed order.
	Params() []Param
	ZeroGrad()
	// Forward runs a pack of sequences. What a sequence gets must not depend on
	// what it is packed with, to the bit: log-probs of different passes over
	// differently packed rows are compared.
	Forward(b *qwenvl.Batch) (Pass, error)
	// Save writes the weights and the model's configuration to dir as they were
	// loaded: the same names, shapes and dtypes.
	Save(dir string) error
	Traits() Traits
	// Positions are a sequence's M-RoPE positions.
	Positions(tokens []int32, grids [][3]int32) ([3][]int32, error)
}

// Pass is a forward pass that can be scored and differentiated; see qwenvl.Pass.
type Pass interface {
	Score(rows, targets []int32, temperature float32) (logp, entropy []float32)
	Backward(rows, targets []int32, temperature float32, dlogp, dentropy []float32)
	Release()
}

// Traits are what a row is checked against.
type Traits struct {
	Vocab     int
	ImagePad  int32   // -1: the model sees no images
	NeverSaid []int32 // tokens of images: a policy that sampled one makes no row to train on
	Merge     int32   // patches of a grid's side that become one token
	PatchDim  int     // values of a patch
}

// qwen makes a Policy of a Qwen3-VL.
type qwen struct{ *qwenvl.Model }

// LoadQwen loads a model folder as a policy. With freezeVision the vision tower
// is not among its parameters and gets no gradient.
func LoadQwen(dir string, freezeVision bool) (Policy, error) {
	m, err := qwenvl.Load(dir)
	if err != nil {
		return nil, err
	}
	m.FreezeVision(freezeVision)
	return qwen{m}, nil
}

func (q qwen) Params() []Param {
	var out []Param
	for _, p := range q.Model.Params() {
		if p.G != nil {
			out = append(out, Param{Name: p.Name, Shape: p.Shape, W: p.W.Host(), G: p.G.Host(), NoDecay: p.NoDecay, Vision: p.Vision})
		}
	}
	return out
}

func (q qwen) Forward(b *qwenvl.Batch) (Pass, error) {
	p, err := q.Model.Forward(b)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (q qwen) Positions(tokens []int32, grids [][3]int32) ([3][]int32, error) {
	pos, _, err := qwenvl.Positions(tokens, grids, q.Config())
	return pos, err
}

func (q qwen) Traits() Traits { return traitsOf(q.Config()) }

func traitsOf(c qwenvl.Config) Traits {
	t := Traits{Vocab: c.Vocab, ImagePad: -1}
	if c.HasVision() {
		// vision_pad has no name in config.json; in every Qwen vocabulary it stands
		// between vision_end and image_pad.
		t.NeverSaid = []int32{c.VisionStartID, c.VisionEndID, c.ImagePadID, c.VideoPadID}
		if c.ImagePadID == c.VisionEndID+2 {
			t.NeverSaid = append(t.NeverSaid, c.VisionEndID+1)
		}
		t.ImagePad, t.Merge, t.PatchDim = c.ImagePadID, int32(c.MergeSize), c.PatchDim()
	}
	return t
}
