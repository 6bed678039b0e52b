package train

import (
	"math"

	"searchloop/internal/fail"
	"searchloop/internal/recipe"
	"searchloop/internal/tensor"
)

// Param is one weight tensor of a policy and its gradient: float32 in host memory
// or, on a device, whatever its back end holds.
type Param struct {
	Name    string
	Shape   []int
	W, G    []float32 // nil on a device
	NoDecay bool      // norms, biases: no weight decay
	Vision  bool      // part of the vision tower

	on   tensor.Trainer // the device; nil: host memory
	w, g *tensor.Tensor
}

// place is where the parameter lives.
func (p *Param) place() (be tensor.Trainer, w, g *tensor.Tensor) {
	if p.on == nil {
		return tensor.CPU, tensor.FromHost(p.W), tensor.FromHost(p.G)
	}
	return p.on, p.w, p.g
}

// values are the weights as the policy has them, of a device in *room, which only
// grows.
func (p *Param) values(room *[]float32) []float32 {
	if p.W != nil {
		return p.W
	}
	be, w, _ := p.place()
	*room = sized(*room, w.Len())
	be.Download(*room, w)
	return *room
}

// size is the number of weights.
func (p *Param) size() int {
	if p.on == nil {
		return len(p.W)
	}
	return p.w.Len()
}

// Ways to hold the master weights, as recipes write them. A device holds weights
// in bfloat16 and always splits, which gives what MasterFloat32 does.
const (
	MasterWeights = ""        // the policy's own float32 weights are the master
	MasterFloat32 = "float32" // the policy sees them rounded to bfloat16, as a sampler does; the master stands beside
	MasterSplit   = "split"   // the same, and beside stand only the 16 bits that rounding took
)

// AdamW is Adam with decoupled weight decay (arXiv 1711.05101) and clipping by
// the global norm of the whole accumulated gradient. Where the weights are, it
// works. It is not safe for concurrent use; it uses all cores.
type AdamW struct {
	Updates int64 // updates applied, t of the bias correction
	Skipped int64 // steps whose gradient was not finite

	o       recipe.Optimizer
	params  []Param
	on      tensor.Trainer
	grads   []*tensor.Tensor
	moments []tensor.Moments
	alive   []bool // tensors with a gradient in this step
}

// checkOptimizer refuses settings.
func checkOptimizer(o recipe.Optimizer) error {
	bad := func(key, format string, args ...any) error {
		return fail.New(fail.Usage, "optimizer."+key, "", format, args...)
	}
	switch {
	case !(o.Beta1 >= 0 && o.Beta1 < 1):
		return bad("beta1", "%g: want at least 0 and below 1", o.Beta1)
	case !(o.Beta2 >= 0 && o.Beta2 < 1):
		return bad("beta2", "%g: want at least 0 and below 1", o.Beta2)
	case !(o.Eps > 0):
		return bad("eps", "%g: want more than 0", o.Eps)
	case !(o.WeightDecay >= 0):
		return bad("weight_decay", "%g: want 0 or more", o.WeightDecay)
	case o.Master != MasterWeights && o.Master != MasterFloat32 && o.Master != MasterSplit:
		return bad("master", "%q: want nothing, %s or %s", o.Master, MasterFloat32, MasterSplit)
	case !(o.ClipNorm >= 0):
		return bad("clip_norm", "%g: want 0 (off) or more", o.ClipNorm)
	}
	return nil
}

// NewAdamW starts with zero moments. All params are on one device.
func NewAdamW(o recipe.Optimizer, params []Param) (*AdamW, error) {
	if err := checkOptimizer(o); err != nil {
		return nil, err
	}
	a := &AdamW{o: o, params: params, alive: make([]bool, len(params)), on: tensor.CPU}
	for i := range params {
		be, w, g := params[i].place()
		k := tensor.Keeping{Offload: o.Offload}
		switch {
		case o.Master == MasterSplit || w.Kind() != tensor.Float32:
			k.Master = tensor.MasterSplit
		case o.Master == MasterFloat32:
			k.Master = tensor.MasterWhole
		}
		a.on = be
		a.grads = append(a.grads, g)
		a.moments = append(a.moments, be.NewMoments(w, g, k))
	}
	return a, nil
}

// Norm is the global L2 norm of the gradients. The order of the sum is fixed by
// the shapes, whatever the number of cores.
func (a *AdamW) Norm() float64 {
	total := 0.0
	for i, s := range a.on.SquaredSums(a.grads) {
		a.alive[i] = s != 0
		total += s
	}
	return math.Sqrt(total)
}

// Step applies one update and returns the norm before clipping. When the norm is
// not finite nothing changes, the step is counted as skipped and ok is false. A
// tensor whose gradient is zero everywhere was reached by no token of the batch
// (a vision tower among texts): it neither moves nor decays.
func (a *AdamW) Step(lr float64) (norm float64, ok bool) {
	norm = a.Norm()
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		a.Skipped++
		return norm, false
	}
	a.Updates++
	u := tensor.Update{T: a.Updates, LR: lr, Beta1: a.o.Beta1, Beta2: a.o.Beta2, Eps: a.o.Eps, Scale: 1}
	if a.o.ClipNorm > 0 {
		u.Scale = min(1, a.o.ClipNorm/(norm+1e-6))
	}
	for i, p := range a.params {
		if !a.alive[i] {
			continue
		}
		u.Decay = a.o.WeightDecay
		if p.NoDecay {
			u.Decay = 0
		}
		a.moments[i].Step(u)
	}
	return norm, true
}

// read copies the master weights and moments of tensor i; what is nil is left out.
func (a *AdamW) read(i int, w, m, v []float32) { a.moments[i].Read(w, m, v) }

// write is read's inverse.
func (a *AdamW) write(i int, w, m, v []float32) { a.moments[i].Write(w, m, v) }

// weights are the master weights of tensor i: the policy's own, or a copy in
// *room, which only grows.
func (a *AdamW) weights(i int, room *[]float32) []float32 {
	p := &a.params[i]
	if p.on == nil && a.o.Master == MasterWeights {
		return p.W
	}
	*room = sized(*room, p.size())
	a.read(i, *room, nil, nil)
	return *room
}
