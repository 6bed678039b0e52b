package qwenvl

import "searchloop/internal/tensor"

// Recompute is what a pass does not keep for its gradient but computes again.
// Norms and activations always are. The gradients are the same bits.
type Recompute int

const (
	RecomputeNone      Recompute = iota
	RecomputeSelective           // and the queries and keys after norm and rotation
	RecomputeFull                // and everything else of the decoder's layers but their input
)

// SetRecompute decides for passes begun from now on.
func (m *Model) SetRecompute(r Recompute) { m.recompute = r }

// Recompute is what SetRecompute decided.
func (m *Model) Recompute() Recompute { return m.recompute }

// Memory is what training takes on a back end, in bytes.
type Memory struct {
	Weights     int64 // in the back end's working kind
	Gradients   int64 // float32
	Activations int64 // of a pass and its gradient, the head included
	Head        int64 // of these, logits and their gradient
}

// Plan tells what a model of cfg will take to train on packs like b, of whose
// tokens the given rows are scored. Nothing is computed and nothing allocated.
func Plan(be tensor.Backend, cfg Config, r Recompute, b *Batch, rows, targets []int32) (Memory, error) {
	p := NewPlanner(be, cfg, r)
	err := p.Add(b, rows, targets)
	return p.Memory(), err
}

// Planner is Plan for packs of several sizes.
type Planner struct {
	m    *Model
	size int64
	head int64
	peak int
}

// NewPlanner begins with no pack.
func NewPlanner(be tensor.Backend, cfg Config, r Recompute) *Planner {
	m := build(tensor.Dry(be), cfg)
	m.recompute = r
	return &Planner{m: m, size: int64(m.size)}
}

// Freeze leaves the gradients of the vision tower out, as FreezeVision does.
func (p *Planner) Freeze(vision bool) { p.m.FreezeVision(vision) }

// Add runs a pack and its gradient over a back end without memory.
func (p *Planner) Add(b *Batch, rows, targets []int32) error {
	pass, err := p.m.Forward(b)
	if err != nil {
		return err
	}
	defer pass.Release()
	pass.Score(rows, targets, 1)
	pass.Backward(rows, targets, 1, make([]float32, len(rows)), nil)
	if t := pass.scored.logits; t != nil {
		p.head = max(p.head, 4*int64(t.Len()))
	}
	p.peak = max(p.peak, pass.ws.arena.Peak())
	return nil
}

// Memory is what the largest of the packs needs.
func (p *Planner) Memory() Memory {
	return Memory{Weights: p.size * int64(p.m.be.Working().Bytes()), Gradients: 4 * p.size, Activations: 4 * int64(p.peak), Head: p.head}
}

// Reserve takes the memory for passes of a planned size at once, so that none is
// taken while they run.
func (m *Model) Reserve(mem Memory) {
	w := m.space()
	w.arena.Reserve(int(mem.Activations / 4))
	m.giveBack(w)
}

// Borrow takes over the memory for passes of another model on the same back end.
func (m *Model) Borrow(from *Model) {
	m.spaces, from.spaces = append(m.spaces, from.spaces...), nil
}

// Held is the memory for passes that no pass is using, in bytes.
func (m *Model) Held() int64 {
	n := int64(0)
	for _, w := range m.spaces {
		n += 4 * int64(w.arena.Size())
	}
	return n
}
