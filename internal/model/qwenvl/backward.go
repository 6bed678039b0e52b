package qwenvl

import "searchloop/internal/tensor"

// grads is the scratch of the backward pass, shared by all layers.
type grads struct {
	norm, dnorm, act, dact, dgateUp *tensor.Tensor
	dqkv, dq, dk, datt              *tensor.Tensor
}

// backward takes the gradient of the asked rows' last hidden states, which it
// uses up, to the parameters.
func (p *Pass) backward(dout *tensor.Tensor) {
	m, c, n, a := p.m, &p.m.cfg, p.in.rows, p.ws.arena
	h, d := c.Hidden, c.HeadDim
	g := grads{
		norm: a.Floats(n * h), dnorm: a.Floats(n * h), act: a.Floats(n * c.Intermediate), dact: a.Floats(n * c.Intermediate),
		dgateUp: a.Floats(n * 2 * c.Intermediate), dqkv: a.Floats(n * (c.Heads + 2*c.KVHeads) * d),
		dq: a.Floats(n * c.Heads * d), dk: a.Floats(n * c.KVHeads * d), datt: a.Floats(n * c.Heads * d),
	}
	see := p.vision != nil && !m.frozenVision
	ddeep := make([]*tensor.Tensor, len(m.layers))
	if see {
		for i := range p.vision.deep {
			ddeep[i] = a.Floats(p.in.pads.Len() * h)
		}
	}
	dx := a.Floats(n * h)
	p.askedBackward(dx, dout, ddeep[len(p.layers)], &g)
	for i := len(p.layers) - 1; i >= 0; i-- {
		if ddeep[i] != nil {
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
	h, qd, kd := c.Hidden, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	a := p.ws.arena
	mark := a.Mark()
	switch m.recompute {
	case RecomputeFull:
		p.run(i, s.feed.x, g.norm, g.act, a.Floats(n*h), s.chosen)
	case RecomputeSelective:
		q, k, _ := parts(s.qkv, qd, kd)
		if l.qNorm.n > 0 { // otherwise they were turned in place
			s.q, s.invQ = m.turned(a, q, l.qNorm, p.in.cos, p.in.sin, n, c.Heads)
			s.k, s.invK = m.turned(a, k, l.kNorm, p.in.cos, p.in.sin, n, c.KVHeads)
		}
	}
	defer a.Release(mark)
	p.feedBackward(l, &s.feed, n, dx, g)
	_, _, v := parts(s.qkv, qd, kd)
	q0, k0, _ := parts(s.qkv, qd, kd)
	dq0, dk0, dv := parts(g.dqkv, qd, kd)
	be.AttentionBackward(slope(l.qNorm, g.dq, qd, dq0), slope(l.kNorm, g.dk, kd, dk0), dv, g.datt, s.feed.att, s.lse,
		s.q, s.k, v, p.cu, nil, m.textHeads())
	m.turnedBackward(dq0, l.qNorm, g.dq, q0, s.invQ, p.in.cos, p.in.sin, n, c.Heads)
	m.turnedBackward(dk0, l.kNorm, g.dk, k0, s.invK, p.in.cos, p.in.sin, n, c.KVHeads)
	be.RMSNormAgain(g.norm, s.inv1, s.feed.x, l.norm1.w, n, h)
	be.LinearBackward(g.dnorm, l.qkv.g, l.qkvB.g, g.dqkv, g.norm, l.qkv.w, n, h, qd+2*kd, false)
	be.RMSNormBackward(dx, l.norm1.g, g.dnorm, s.feed.x, l.norm1.w, s.inv1, n, h)
}

// feedBackward turns dx, of n rows, from the gradient of feed's result into that
// of what came in, and leaves the gradient of attention's result in g.datt.
func (p *Pass) feedBackward(l *layer, s *feedActs, n int, dx *tensor.Tensor, g *grads) {
	be, c, a := p.m.be, &p.m.cfg, p.ws.arena
	h, qd, mid := c.Hidden, c.Heads*c.HeadDim, c.Intermediate
	norm, dnorm, datt := a.View(g.norm, 0, n*h), a.View(g.dnorm, 0, n*h), a.View(g.datt, 0, n*qd)
	if l.sparse != nil {
		be.RMSNormAgain(norm, s.inv2, s.mid, l.norm2.w, n, h)
		p.m.expertsBackward(a, l.sparse, s.routed, dnorm, dx, norm)
		be.RMSNormBackward(dx, l.norm2.g, dnorm, s.mid, l.norm2.w, s.inv2, n, h)
		be.LinearBackward(datt, l.o.g, nil, dx, s.att, l.o.w, n, qd, h, false)
		return
	}
	act, dact, dgateUp := a.View(g.act, 0, n*mid), a.View(g.dact, 0, n*mid), a.View(g.dgateUp, 0, n*2*mid)
	be.LinearBackward(dact, nil, nil, dx, nil, l.down.w, n, mid, h, false)
	be.SwiGLUBackward(dgateUp, act, dact, s.gateUp, n, mid)
	be.LinearBackward(nil, l.down.g, nil, dx, act, nil, n, mid, h, false)
	be.RMSNormAgain(norm, s.inv2, s.mid, l.norm2.w, n, h)
	be.LinearBackward(dnorm, l.gateUp.g, nil, dgateUp, norm, l.gateUp.w, n, h, 2*mid, false)
	be.RMSNormBackward(dx, l.norm2.g, dnorm, s.mid, l.norm2.w, s.inv2, n, h)
	be.LinearBackward(datt, l.o.g, nil, dx, s.att, l.o.w, n, qd, h, false)
}
