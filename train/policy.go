package train

import (
	"fmt"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/model/qwenvl"
	"searchloop/internal/recipe"
	"searchloop/internal/safetensors"
	"searchloop/internal/tensor"
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
	Cost      qwenvl.Cost
}

// qwen makes a Policy of a Qwen3-VL.
type qwen struct {
	*qwenvl.Model
	on     tensor.Trainer // the device that holds the weights; nil: host memory
	dir    string         // that they were loaded from
	frozen bool           // the vision tower
}

// LoadQwen loads a model folder as a policy. With freezeVision the vision tower
// is not among its parameters and gets no gradient. Weights that are no numbers are
// refused: every loss would be none.
func LoadQwen(dir string, freezeVision bool) (Policy, error) { return loadQwen(nil, dir, freezeVision) }

// loadQwen is LoadQwen into the memory of a device, or the host's.
func loadQwen(on tensor.Trainer, dir string, freezeVision bool) (Policy, error) {
	be := on
	if on == nil {
		be = tensor.CPU
	} else if err := fits(dir); err != nil {
		return nil, err
	}
	m, err := qwenvl.LoadChecked(be, dir, func(name string, x []float32) error {
		if i, ok := numbers(x); !ok {
			return fail.New(fail.BadInput, "load policy", dir, "%s holds %g at %d", name, x[i], i)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	m.FreezeVision(freezeVision)
	return qwen{m, on, dir, freezeVision}, nil
}

// fits refuses a folder's model if the kernels of a device do not serve it.
func fits(dir string) error {
	c, err := qwenvl.LoadConfig(dir)
	if err != nil {
		return err
	}
	if why := unserved(c); why != "" {
		return fail.WithHint(fail.New(fail.Usage, "load policy", dir, "%s", why), "train it with --device cpu")
	}
	return nil
}

// unserved says what of a model's shapes the GPU's kernels do not serve, or "".
func unserved(c qwenvl.Config) string {
	type width struct {
		name string
		n    int
	}
	widths := []width{{"vocabulary", c.Vocab}, {"hidden size", c.Hidden}, {"intermediate size", c.Intermediate}}
	heads := []width{{"head dimension", c.HeadDim}}
	if c.Experts > 0 {
		widths = append(widths, width{"number of experts", c.Experts}, width{"expert's intermediate size", c.ExpertWidth})
	}
	if v := &c.Vision; c.HasVision() {
		heads = append(heads, width{"vision head dimension", v.Hidden / v.Heads})
		widths = append(widths, width{"vision hidden size", v.Hidden}, width{"vision intermediate size", v.Intermediate}, width{"patch", c.PatchDim()})
	}
	for _, w := range append(widths, heads...) {
		if w.n%8 != 0 {
			return fmt.Sprintf("its %s, %d, is no multiple of 8, which the GPU's kernels need", w.name, w.n)
		}
	}
	for _, w := range heads {
		if w.n > 128 {
			return fmt.Sprintf("its %s is %d: the GPU's kernels serve at most 128", w.name, w.n)
		}
	}
	return ""
}

func (q qwen) Params() []Param {
	var out []Param
	for _, p := range q.Model.Params() {
		if p.G != nil {
			out = append(out, Param{Name: p.Name, Shape: p.Shape, W: p.W.Host(), G: p.G.Host(), NoDecay: p.NoDecay, Vision: p.Vision, on: q.on, w: p.W, g: p.G})
		}
	}
	return out
}

// exact hands the weights over as their files have them where the device rounded
// them.
func (q qwen) exact(params []Param, set func(i int, x []float32)) error {
	if q.on == nil || q.on.Working() == tensor.Float32 {
		return nil
	}
	f, err := safetensors.Open(q.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	for i, p := range params {
		if dtype, _, ok := f.Info(p.Name); !ok || dtype == "BF16" {
			continue
		}
		x, err := f.Float32(p.Name)
		if err != nil {
			return err
		}
		set(i, x)
	}
	return nil
}

// plan runs the packs dry.
func (q qwen) plan(r qwenvl.Recompute, packs [][]*Sequence) (qwenvl.Memory, error) {
	var be tensor.Backend = tensor.CPU
	if q.on != nil {
		be = q.on
	}
	pl := qwenvl.NewPlanner(be, q.Config(), r)
	pl.Freeze(q.frozen)
	var p packed
	for _, seqs := range packs {
		if err := p.assemble(q, nil, seqs); err != nil {
			return qwenvl.Memory{}, err
		}
		if err := pl.Add(&p.batch, p.rows, p.targets); err != nil {
			return qwenvl.Memory{}, err
		}
	}
	return pl.Memory(), nil
}

// reserve takes the memory of the passes, if there is a plan of it.
func (q qwen) reserve(r qwenvl.Recompute, m *qwenvl.Memory) {
	q.SetRecompute(r)
	if m != nil {
		q.Model.Reserve(*m)
	}
}

// trainable counts the weights that are trained, those that LoRA adapts, and those
// of the largest of these.
func (q qwen) trainable(l recipe.LoRA) (trained, targets, largest int64) {
	for _, p := range q.Tensors() {
		if p.Vision && q.frozen {
			continue
		}
		n := int64(p.W.Len())
		trained += n
		if module, ok := strings.CutSuffix(p.Name, ".weight"); ok && len(p.Shape) == 2 && targeted(module, p.Vision, l.Targets) {
			targets, largest = targets+n, max(largest, n)
		}
	}
	return trained, targets, largest
}

// borrow takes over the memory and the settings for passes of another policy that
// is not in use.
func (q qwen) borrow(from Policy) {
	if f, ok := from.(qwen); ok {
		q.Borrow(f.Model)
		q.SetRecompute(f.Recompute())
	}
}

func (q qwen) free() { q.Free() }

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
	t := Traits{Vocab: c.Vocab, ImagePad: -1, Cost: c.Cost()}
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
