package qwenvl

import "searchloop/internal/tensor"

// grads is the scratch of the backward pass, shared by all layers.
type grads struct {
	norm, dnorm, act, dact, dgateUp *tensor.Tensor
	dqkv, dq, dk, datt              *tensor.Tensor
}

// backward takes the gradient of the last hidden states, which it uses up, to
// the parameters.
func (p *Pass) backward(dx *tensor.Tensor) {
	m, c, n, a := p.m, &p.m.cfg, p.in.rows, p.ws.arena
	h, d := c.Hidden, c.HeadDim
	g := grads{
		norm: a.Floats(n * h), dnorm: a.Floats(n * h), act: a.Floats(n * c.Intermediate), dact: a.Floats(n * c.Intermediate),
		dgateUp: a.Floats(n * 2 * c.Intermediate), dqkv: a.Floats(n * (c.Heads + 2*c.KVHeads) * d),
		dq: a.Floats(n * c.Heads * d), dk: a.Floats(n * c.KVHeads * d), datt: a.Floats(n * c.Heads * d),
	}
	see := p.vision != nil && !m.frozenVision
	var ddeep []*tensor.Tensor
	if see {
		for range p.vision.deep {
			ddeep = append(ddeep, a.Floats(p.in.pads.Len()*h))
		}
	}
	for i := len(m.layers) - 1; i >= 0; i-- {
		if i < len(ddeep) {
			m.be.Gather(ddeep[i], dx, p.in.pads, h)
		}
		p.layerBackward(i, dx, &g)
	}
	m.be.ScatterAdd(m.embed.g, dx, p.in.ids, h)
	if see {
		out := a.Floats(p.in.pads.Len() * h)
		m.be.Gather(out, dx, p.in.pads, h)
		p.vision.backward(out, ddeep)
	}
}

// layerBackward turns dx from the gradient of the layer's result into that of
// its input.
func (p *Pass) layerBackward(i int, dx *tensor.Tensor, g *grads) {
	m, l, s := p.m, &p.m.layers[i], &p.layers[i]
	be, c, n := m.be, &m.cfg, p.in.rows
	h, qd, mid := c.Hidden, c.Heads*c.HeadDim, c.Intermediate
	wide := (c.Heads + 2*c.KVHeads) * c.HeadDim
	heads := m.textHeads()

	be.LinearBackward(g.dact, nil, nil, dx, nil, l.down.w, n, mid, h, false)
	be.SwiGLUBackward(g.dgateUp, g.act, g.dact, s.gateUp, n, mid)
	be.LinearBackward(nil, l.down.g, nil, dx, g.act, nil, n, mid, h, false)
	be.RMSNormAgain(g.norm, s.inv2, s.mid, l.norm2.w, n, h)
	be.LinearBackward(g.dnorm, l.gateUp.g, nil, g.dgateUp, g.norm, l.gateUp.w, n, h, 2*mid, false)
	be.RMSNormBackward(dx, l.norm2.g, g.dnorm, s.mid, l.norm2.w, s.inv2, n, h)

	be.LinearBackward(g.datt, l.o.g, nil, dx, s.att, l.o.w, n, qd, h, false)
	be.AttentionBackward(p.queries(g.dq), p.keys(g.dk), valueRows(c, g.dqkv), g.datt, s.att, s.lse,
		p.queries(s.q), p.keys(s.k), valueRows(c, s.qkv), p.cu, heads)
	be.NormRopeBackward(tensor.Rows{T: g.dqkv, Stride: wide}, l.qNorm.g, l.kNorm.g, g.dq, g.dk,
		tensor.Rows{T: s.qkv, Stride: wide}, l.qNorm.w, l.kNorm.w, s.invQK, p.in.cos, p.in.sin, n, heads)
	be.RMSNormAgain(g.norm, s.inv1, s.x, l.norm1.w, n, h)
	be.LinearBackward(g.dnorm, l.qkv.g, nil, g.dqkv, g.norm, l.qkv.w, n, h, wide, false)
	be.RMSNormBackward(dx, l.norm1.g, g.dnorm, s.x, l.norm1.w, s.inv1, n, h)
}
