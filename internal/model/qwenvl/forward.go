package qwenvl

import (
	"math"

	"searchloop/internal/tensor"
)

// Pass is one forward computation over a Batch and what its gradient needs. Its
// memory is the model's and goes back with Release; a Pass must not be used
// after that.
type Pass struct {
	m      *Model
	ws     *workspace
	in     input
	cu     *tensor.Ints
	layers []acts
	x      *tensor.Tensor // hidden states after the last layer, before the last norm
	vision *visionPass    // nil without images
	scored scored
}

// acts is what a decoder layer keeps: its input, and the results its gradient
// cannot cheaply recompute.
type acts struct {
	x, inv1, qkv, q, k, invQK, att, lse, mid, inv2, gateUp *tensor.Tensor
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
	p := &Pass{m: m, ws: ws, in: in, cu: m.be.UploadInts(b.CuSeqlens), layers: make([]acts, len(m.layers))}
	be, a, n, h := m.be, ws.arena, in.rows, m.cfg.Hidden
	x := a.Floats(n * h)
	m.embedTokens(x, &in)
	if in.images > 0 {
		p.vision = m.seeImages(ws, b.Images)
		be.Scatter(x, p.vision.out, in.pads, h)
	}
	norm, act := a.Floats(n*h), a.Floats(n*m.cfg.Intermediate)
	for i := range m.layers {
		x = p.layer(i, x, norm, act)
		if p.vision != nil && i < len(p.vision.deep) {
			be.ScatterAdd(x, p.vision.deep[i], in.pads, h)
		}
	}
	p.x = x
	return p, nil
}

func (p *Pass) layer(i int, x, norm, act *tensor.Tensor) *tensor.Tensor {
	m, l, s, a := p.m, &p.m.layers[i], &p.layers[i], p.ws.arena
	be, c, n := m.be, &m.cfg, p.in.rows
	h, d, qd := c.Hidden, c.HeadDim, c.Heads*c.HeadDim
	wide := (c.Heads + 2*c.KVHeads) * d
	*s = acts{
		x: x, inv1: a.Floats(n), qkv: a.Floats(n * wide), q: a.Floats(n * qd), k: a.Floats(n * c.KVHeads * d),
		invQK: a.Floats(n * (c.Heads + c.KVHeads)), att: a.Floats(n * qd), lse: a.Floats(n * c.Heads),
		mid: a.Floats(n * h), inv2: a.Floats(n), gateUp: a.Floats(n * 2 * c.Intermediate),
	}
	heads := m.textHeads()
	be.RMSNorm(norm, s.inv1, x, l.norm1.w, n, h, c.RMSEps)
	be.Linear(s.qkv, norm, l.qkv.w, nil, n, h, wide, false)
	qkv := tensor.Rows{T: s.qkv, Stride: wide}
	be.NormRope(s.q, s.k, s.invQK, qkv, l.qNorm.w, l.kNorm.w, p.in.cos, p.in.sin, n, heads, c.RMSEps)
	be.Attention(s.att, s.lse, p.queries(s.q), p.keys(s.k), valueRows(c, s.qkv), p.cu, heads)
	be.Copy(s.mid, x)
	be.Linear(s.mid, s.att, l.o.w, nil, n, qd, h, true)
	be.RMSNorm(norm, s.inv2, s.mid, l.norm2.w, n, h, c.RMSEps)
	be.Linear(s.gateUp, norm, l.gateUp.w, nil, n, h, 2*c.Intermediate, false)
	be.SwiGLU(act, s.gateUp, n, c.Intermediate)
	out := a.Floats(n * h)
	be.Copy(out, s.mid)
	be.Linear(out, act, l.down.w, nil, n, c.Intermediate, h, true)
	return out
}

func (p *Pass) queries(t *tensor.Tensor) tensor.Rows {
	return tensor.Rows{T: t, Stride: p.m.cfg.Heads * p.m.cfg.HeadDim}
}

func (p *Pass) keys(t *tensor.Tensor) tensor.Rows {
	return tensor.Rows{T: t, Stride: p.m.cfg.KVHeads * p.m.cfg.HeadDim}
}

// valueRows are the values inside the joint projection [q | k | v].
func valueRows(c *Config, qkv *tensor.Tensor) tensor.Rows {
	d := c.HeadDim
	return tensor.Rows{T: qkv, Off: (c.Heads + c.KVHeads) * d, Stride: (c.Heads + 2*c.KVHeads) * d}
}

// Release gives the pass's memory back to the model for the next one.
func (p *Pass) Release() {
	if p.ws != nil {
		p.m.giveBack(p.ws)
		*p = Pass{}
	}
}
