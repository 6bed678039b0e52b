package qwenvl

import (
	"math"

	"searchloop/internal/tensor"
)

// Pass is one forward computation over a Batch and what its gradient needs. Its
// memory is the model's and goes back with Release; a Pass must not be used
// after that.
//
// The last layer is computed by Score, and only for the rows it is asked for:
// what the other rows would become there, nobody sees. Its keys and values are
// computed for all rows.
type Pass struct {
	m      *Model
	ws     *workspace
	in     input
	cu     *tensor.Ints
	vision *visionPass // nil without images
	layers []acts      // all but the last
	last   lastActs
	asked  asked
	routes [][]int32 // to replay, or nil
	scored scored
}

// acts is what a layer keeps: its input, and the results its gradient cannot
// cheaply recompute.
type acts struct {
	inv1, qkv, invQ, invK, lse *tensor.Tensor
	q, k                       tensor.Rows // turned; inside qkv where there is no norm
	feed                       feedActs
	chosen                     []int32 // experts of a sparse layer that is computed again
}

// feedActs is what the second part of a layer keeps, from attention's result on.
type feedActs struct {
	x, att, mid, inv2, gateUp *tensor.Tensor
	routed                    *routed // of a sparse layer, instead of gateUp
}

// lastActs is what the last layer keeps of all rows.
type lastActs struct {
	x, inv1, kv, invK *tensor.Tensor
	k                 tensor.Rows
}

func invSqrt(n int) float32 { return float32(1 / math.Sqrt(float64(n))) }

// Forward runs the model over a pack and keeps what Score and Backward need. A
// sequence's values do not depend, to the bit, on what it is packed with. A
// batch that contradicts itself is a fail.BadInput.
func (m *Model) Forward(b *Batch) (*Pass, error) {
	ws := m.space()
	in, err := m.prepare(ws, b.Tokens, &b.Positions, b.CuSeqlens, b.Images)
	if err != nil {
		m.giveBack(ws)
		return nil, err
	}
	if err := m.checkRoutes(b.Routes, in.rows); err != nil {
		m.giveBack(ws)
		return nil, err
	}
	p := &Pass{m: m, ws: ws, in: in, cu: m.be.UploadInts(b.CuSeqlens), layers: make([]acts, len(m.layers)-1), routes: b.Routes}
	be, a, n, h := m.be, ws.arena, in.rows, m.cfg.Hidden
	x := a.Floats(n * h)
	m.embedTokens(x, &in)
	if in.images > 0 {
		p.vision = m.seeImages(ws, b.Images)
		be.Scatter(x, p.vision.out, in.pads, h)
	}
	norm, act := a.Floats(n*h), a.Floats(n*m.cfg.Intermediate)
	for i := range p.layers {
		x = p.layer(i, x, norm, act)
		if p.vision != nil && i < len(p.vision.deep) {
			be.ScatterAdd(x, p.vision.deep[i], in.pads, h)
		}
	}
	p.lastKeys(x, norm)
	return p, nil
}

// layer computes layer i, into memory of its own, and keeps what its gradient
// needs.
func (p *Pass) layer(i int, x, norm, act *tensor.Tensor) *tensor.Tensor {
	a, s := p.ws.arena, &p.layers[i]
	out := a.Floats(x.Len())
	mark := a.Mark()
	p.run(i, x, norm, act, out, p.forced(i, nil))
	if p.m.recompute == RecomputeFull {
		a.Release(mark)
		routed := s.feed.routed
		*s = acts{feed: feedActs{x: x}}
		if routed != nil { // so that the tokens go the same way again
			s.chosen = routed.chosen
		}
	}
	return out
}

// run is layer i from x to out.
func (p *Pass) run(i int, x, norm, act, out *tensor.Tensor, forced []int32) {
	m, l, s, a := p.m, &p.m.layers[i], &p.layers[i], p.ws.arena
	be, c, n := m.be, &m.cfg, p.in.rows
	h, qd, kd := c.Hidden, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	wide := qd + 2*kd
	*s = acts{
		inv1: a.Full(n), qkv: a.Floats(n * wide), lse: a.Full(n * c.Heads),
		feed: feedActs{x: x, att: a.Floats(n * qd)}, chosen: s.chosen,
	}
	be.RMSNorm(norm, s.inv1, x, l.norm1.w, n, h, c.RMSEps)
	be.Linear(s.qkv, norm, l.qkv.w, l.qkvB.w, n, h, wide, false)
	q, k, v := parts(s.qkv, qd, kd)
	mark := a.Mark()
	s.q, s.invQ = m.turned(a, q, l.qNorm, p.in.cos, p.in.sin, n, c.Heads)
	s.k, s.invK = m.turned(a, k, l.kNorm, p.in.cos, p.in.sin, n, c.KVHeads)
	be.Attention(s.feed.att, s.lse, s.q, s.k, v, p.cu, nil, m.textHeads())
	if m.recompute == RecomputeSelective {
		a.Release(mark)
	}
	p.feed(l, &s.feed, n, norm, act, out, forced)
}

// feed is the second part of a layer, over n rows: the projection of attention's
// result and the MLP, each added to what came in. forced are the experts to take
// in a sparse layer, or nil.
func (p *Pass) feed(l *layer, s *feedActs, n int, norm, act, out *tensor.Tensor, forced []int32) {
	be, c, a := p.m.be, &p.m.cfg, p.ws.arena
	h, mid := c.Hidden, c.Intermediate
	s.mid, s.inv2 = a.Floats(n*h), a.Full(n)
	be.Copy(s.mid, s.x)
	be.Linear(s.mid, s.att, l.o.w, nil, n, c.Heads*c.HeadDim, h, true)
	be.RMSNorm(norm, s.inv2, s.mid, l.norm2.w, n, h, c.RMSEps)
	be.Copy(out, s.mid)
	if l.sparse != nil {
		s.routed = p.m.route(a, l.sparse, norm, n, forced)
		p.m.takeExperts(a, l.sparse, s.routed, out, norm)
		return
	}
	s.gateUp = a.Floats(n * 2 * mid)
	be.Linear(s.gateUp, norm, l.gateUp.w, nil, n, h, 2*mid, false)
	be.SwiGLU(act, s.gateUp, n, mid)
	be.Linear(out, act, l.down.w, nil, n, mid, h, true)
}

// lastKeys computes the last layer's keys and values.
func (p *Pass) lastKeys(x, norm *tensor.Tensor) {
	m, a := p.m, p.ws.arena
	be, c, n, l := m.be, &m.cfg, p.in.rows, &m.layers[len(m.layers)-1]
	kd := c.KVHeads * c.HeadDim
	s := &p.last
	*s = lastActs{x: x, inv1: a.Full(n), kv: a.Floats(n * 2 * kd)}
	be.RMSNorm(norm, s.inv1, x, l.norm1.w, n, c.Hidden, c.RMSEps)
	be.Linear(s.kv, norm, l.kv.w, l.kvB.w, n, c.Hidden, 2*kd, false)
	_, k, _ := parts(s.kv, 0, kd)
	s.k, s.invK = m.turned(a, k, l.kNorm, p.in.cos, p.in.sin, n, c.KVHeads)
}

// turned normalises the heads of x, in a family that does, and turns them by the
// rows' angles: into memory of a then, otherwise in place. inv is what the norm
// keeps for its gradient.
func (m *Model) turned(a *tensor.Arena, x tensor.Rows, norm weight, cos, sin *tensor.Tensor, n, heads int) (y tensor.Rows, inv *tensor.Tensor) {
	d := m.cfg.HeadDim
	if norm.n == 0 {
		m.be.Rope(x, cos, sin, n, heads, d, false)
		return x, nil
	}
	t := a.Floats(n * heads * d)
	inv = a.Full(n * heads)
	m.be.NormRope(t, inv, x, norm.w, cos, sin, n, heads, d, m.cfg.RMSEps)
	return packed(t, heads*d), inv
}

// slope is where the gradient of turned heads goes: to memory of its own before
// turnedBackward, or straight to dx where there is no norm.
func slope(norm weight, t *tensor.Tensor, width int, dx tensor.Rows) tensor.Rows {
	if norm.n == 0 {
		return dx
	}
	return packed(t, width)
}

// turnedBackward sets dx's rows from the gradient of turned heads, which is in t,
// or in dx already.
func (m *Model) turnedBackward(dx tensor.Rows, norm weight, t *tensor.Tensor, x tensor.Rows, inv, cos, sin *tensor.Tensor, n, heads int) {
	d := m.cfg.HeadDim
	if norm.n == 0 {
		m.be.Rope(dx, cos, sin, n, heads, d, true)
		return
	}
	m.be.NormRopeBackward(dx, norm.g, t, x, norm.w, inv, cos, sin, n, heads, d)
}

// packed are rows without anything between them.
func packed(t *tensor.Tensor, width int) tensor.Rows { return tensor.Rows{T: t, Stride: width} }

// parts are queries, keys and values inside rows [q | k | v].
func parts(qkv *tensor.Tensor, qd, kd int) (q, k, v tensor.Rows) {
	at := func(off int) tensor.Rows { return tensor.Rows{T: qkv, Off: off, Stride: qd + 2*kd} }
	return at(0), at(qd), at(qd + kd)
}

// Release gives the pass's memory back to the model for the next one.
func (p *Pass) Release() {
	if p.ws != nil {
		p.m.giveBack(p.ws)
		*p = Pass{}
	}
}
