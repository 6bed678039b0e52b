package qwenvl

import (
	"slices"

	"searchloop/internal/tensor"
)

// asked is the last layer over the rows that a Score asked for.
type asked struct {
	rows           []int32 // ascending, each once
	at             *tensor.Ints
	norm, q0       *tensor.Tensor
	q              tensor.Rows
	invQ, lse      *tensor.Tensor
	cos, sin       *tensor.Tensor
	feed           feedActs
	out            *tensor.Tensor
	deepAt, deepOf *tensor.Ints // rows here, and their places among the image tokens, where features are added
}

// ask computes the last layer for rows, unless the last call was for the same.
func (p *Pass) ask(rows []int32) {
	if p.asked.out != nil && slices.Equal(p.asked.rows, rows) {
		return
	}
	m, a, in := p.m, p.ws.arena, &p.in
	be, c, n, l := m.be, &m.cfg, len(rows), &m.layers[len(m.layers)-1]
	h, d, qd, kd := c.Hidden, c.HeadDim, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	s := &p.asked
	*s = asked{
		rows: append(p.ws.intSlice(n)[:0], rows...), norm: a.Floats(n * h), q0: a.Floats(n * qd),
		lse: a.Full(n * c.Heads), cos: a.Full(n * d / 2), sin: a.Full(n * d / 2),
		feed: feedActs{x: a.Floats(n * h), att: a.Floats(n * qd)},
	}
	s.at = be.UploadInts(s.rows)
	be.Gather(s.feed.x, p.last.x, s.at, h)
	be.Gather(s.cos, in.cos, s.at, d/2)
	be.Gather(s.sin, in.sin, s.at, d/2)
	inv := a.Full(n)
	be.RMSNorm(s.norm, inv, s.feed.x, l.norm1.w, n, h, c.RMSEps)
	be.Linear(s.q0, s.norm, l.q.w, l.qB.w, n, h, qd, false)
	s.q, s.invQ = m.turned(a, packed(s.q0, qd), l.qNorm, s.cos, s.sin, n, c.Heads)
	_, _, v := parts(p.last.kv, 0, kd)
	be.Attention(s.feed.att, s.lse, s.q, p.last.k, v, p.cu, s.at, m.textHeads())
	norm, act := a.Floats(n*h), a.Floats(n*c.Intermediate)
	s.out = a.Floats(n * h)
	p.feed(l, &s.feed, n, norm, act, s.out, p.forced(len(m.layers)-1, s.rows))
	if i := len(m.layers) - 1; p.vision != nil && i < len(p.vision.deep) {
		var at, of []int32
		for j, pad := range in.pads.Host() {
			if r, ok := slices.BinarySearch(s.rows, pad); ok {
				at, of = append(at, int32(r)), append(of, int32(j))
			}
		}
		s.deepAt, s.deepOf = be.UploadInts(at), be.UploadInts(of)
		deep := a.Floats(len(at) * h)
		be.Gather(deep, p.vision.deep[i], s.deepOf, h)
		be.ScatterAdd(s.out, deep, s.deepAt, h)
	}
}

// askedBackward takes the gradient of the asked rows' results, which it uses up,
// through the last layer. It sets dx, of all rows; ddeep is the gradient of the
// features added after this layer, or nil.
func (p *Pass) askedBackward(dx, dout, ddeep *tensor.Tensor, g *grads) {
	m, a, s := p.m, p.ws.arena, &p.asked
	be, c, l := m.be, &m.cfg, &m.layers[len(m.layers)-1]
	n, all := len(s.rows), p.in.rows
	h, qd, kd := c.Hidden, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	if ddeep != nil {
		be.Zero(ddeep)
		part := a.Floats(s.deepAt.Len() * h)
		be.Gather(part, dout, s.deepAt, h)
		be.ScatterAdd(ddeep, part, s.deepOf, h)
	}
	part := func(t *tensor.Tensor, n int) *tensor.Tensor { return a.View(t, 0, n) }
	dq, dkv, dqRows := part(g.dq, n*qd), part(g.dqkv, all*2*kd), a.Floats(n*qd)
	p.feedBackward(l, &s.feed, n, dout, g)
	_, dk0, dv := parts(dkv, 0, kd)
	_, k0, v := parts(p.last.kv, 0, kd)
	dq0 := packed(dqRows, qd)
	be.AttentionBackward(slope(l.qNorm, dq, qd, dq0), slope(l.kNorm, g.dk, kd, dk0), dv, part(g.datt, n*qd), s.feed.att, s.lse,
		s.q, p.last.k, v, p.cu, s.at, m.textHeads())
	m.turnedBackward(dq0, l.qNorm, dq, packed(s.q0, qd), s.invQ, s.cos, s.sin, n, c.Heads)
	m.turnedBackward(dk0, l.kNorm, g.dk, k0, p.last.invK, p.in.cos, p.in.sin, all, c.KVHeads)
	be.RMSNormAgain(g.norm, p.last.inv1, p.last.x, l.norm1.w, all, h)
	be.LinearBackward(g.dnorm, l.kv.g, l.kvB.g, dkv, g.norm, l.kv.w, all, h, 2*kd, false)
	dnorm := part(g.norm, n*h)
	be.LinearBackward(dnorm, l.q.g, l.qB.g, dqRows, s.norm, l.q.w, n, h, qd, false)
	be.ScatterAdd(g.dnorm, dnorm, s.at, h)
	be.Zero(dx)
	be.ScatterAdd(dx, dout, s.at, h)
	be.RMSNormBackward(dx, l.norm1.g, g.dnorm, p.last.x, l.norm1.w, p.last.inv1, all, h)
}
