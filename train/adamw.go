package train

import (
	"math"

	"searchloop/internal/fail"
	"searchloop/internal/ranks"
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

	o      recipe.Optimizer
	params []Param
	on     tensor.Trainer
	group  ranks.Group
	shares [][]share // of each tensor
	alive  []bool    // tensors with a gradient in this step

	grads, weights []ranks.Part     // of all shares
	own            []*tensor.Tensor // gradients of this rank's shares
}

// share is the values of a tensor whose moments and masters one rank keeps, as ZeRO's
// first stage has it (arXiv 1910.02054): each rank updates its shares from the sum of
// all ranks' gradients, and gives the weights to the others.
type share struct {
	from, n, owner int
	moments        tensor.Moments // nil where another rank owns it
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
	return newAdamW(o, params, ranks.Local(1)[0])
}

// newAdamW is the optimizer of one of the ranks of a group. What is said of its
// methods as collective all ranks do at the same time.
func newAdamW(o recipe.Optimizer, params []Param, group ranks.Group) (*AdamW, error) {
	if err := checkOptimizer(o); err != nil {
		return nil, err
	}
	a := &AdamW{o: o, params: params, alive: make([]bool, len(params)), on: tensor.CPU, group: group}
	at, total := 0, 0
	for i := range params {
		total += params[i].size()
	}
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
		cuts := ranks.Share(at, w.Len(), total, group.Size())
		at += w.Len()
		var all []share
		for r := range group.Size() {
			s := share{from: cuts[r], n: cuts[r+1] - cuts[r], owner: r}
			if s.n == 0 {
				continue
			}
			wr, gr := w.View(s.from, s.n), g.View(s.from, s.n)
			a.weights, a.grads = append(a.weights, ranks.Part{T: wr, Owner: r}), append(a.grads, ranks.Part{T: gr, Owner: r})
			if r == group.Rank() {
				a.own = append(a.own, gr)
				s.moments = be.NewMoments(wr, gr, k)
			}
			all = append(all, s)
		}
		a.shares = append(a.shares, all)
	}
	return a, nil
}

// Norm is the global L2 norm of the gradients. The order of the sum is fixed by
// the shapes, whatever the number of cores. Collective.
func (a *AdamW) Norm() float64 {
	squares := make([]float64, len(a.params))
	sums := a.on.SquaredSums(a.own)
	for i, all := range a.shares {
		for _, s := range all {
			if s.moments != nil {
				squares[i] += sums[0]
				sums = sums[1:]
			}
		}
	}
	ranks.Sum(a.group, squares)
	total := 0.0
	for i, s := range squares {
		a.alive[i] = s != 0
		total += s
	}
	return math.Sqrt(total)
}

// Step applies one update, from the sum of all ranks' gradients, and returns the norm
// before clipping. When the norm is not finite nothing changes, the step is counted
// as skipped and ok is false. A tensor whose gradient is zero everywhere was reached
// by no token of the batch (a vision tower among texts): it neither moves nor decays.
// Collective.
func (a *AdamW) Step(lr float64) (norm float64, ok bool) {
	a.group.Reduce(a.on, a.grads)
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
		for _, s := range a.shares[i] {
			if s.moments != nil {
				s.moments.Step(u)
			}
		}
	}
	a.spread()
	return norm, true
}

// spread gives the weights of this rank's shares to the others. Collective.
func (a *AdamW) spread() { a.group.Broadcast(a.on, a.weights) }

// part is a share's part of x, nil of nil.
func (s *share) part(x []float32) []float32 {
	if x == nil {
		return nil
	}
	return x[s.from : s.from+s.n]
}

// read copies the master weights and moments of tensor i; what is nil is left out.
// Collective.
func (a *AdamW) read(i int, w, m, v []float32) {
	for _, s := range a.shares[i] {
		if s.moments != nil {
			s.moments.Read(s.part(w), s.part(m), s.part(v))
		}
	}
	if a.group.Size() == 1 {
		return
	}
	for _, x := range [][]float32{w, m, v} {
		if x == nil {
			continue
		}
		var mine []byte
		for _, s := range a.shares[i] {
			if s.moments != nil {
				mine = append(mine, encodeFloats(s.part(x))...)
			}
		}
		theirs := a.group.Gather(mine)
		for _, s := range a.shares[i] {
			copy(s.part(x), decodeFloats(theirs[s.owner]))
		}
	}
}

// write is read's inverse, for this rank's shares: spread does the rest.
func (a *AdamW) write(i int, w, m, v []float32) {
	for _, s := range a.shares[i] {
		if s.moments != nil {
			s.moments.Write(s.part(w), s.part(m), s.part(v))
		}
	}
}

// masters are the master weights of tensor i: the policy's own, or a copy in
// *room, which only grows. Collective.
func (a *AdamW) masters(i int, room *[]float32) []float32 {
	p := &a.params[i]
	if p.on == nil && a.o.Master == MasterWeights {
		return p.W
	}
	*room = sized(*room, p.size())
	a.read(i, *room, nil, nil)
	return *room
}
