package qwenvl

import "searchloop/internal/tensor"

// backward takes the gradients of out and of deep to the tower's parameters. The
// gradient enters at the last block and at every block whose output is merged
// for a decoder layer; it ends at the patches, which need none.
func (p *visionPass) backward(dout *tensor.Tensor, ddeep []*tensor.Tensor) {
	m, a, t, v := p.m, p.ws.arena, p.m.vision, &p.m.cfg.Vision
	be, n, d := m.be, p.rows, v.Hidden
	dx := a.Zeros(n * d)
	if p.order != nil {
		moved := a.Floats(dout.Len())
		be.Gather(moved, dout, p.order, v.Out)
		dout = moved
	}
	p.mergeBackward(&t.merger, &p.merged, dx, dout)
	wide := max(d, v.Intermediate)
	g := visionGrads{
		norm: a.Floats(n * wide), dnorm: a.Floats(n * d), dact: a.Floats(n * wide),
		datt: a.Floats(n * d), dqkv: a.Floats(3 * n * d),
	}
	if v.windowed() {
		g.dgateUp = a.Floats(n * 2 * v.Intermediate)
	}
	for i := len(p.blocks) - 1; i >= 0; i-- {
		for j, at := range v.Deepstack {
			if at == i {
				p.mergeBackward(&t.deepstack[j], &p.deeps[j], dx, ddeep[j])
			}
		}
		p.blockBackward(i, dx, &g)
	}
	if p.taps != nil {
		be.MixBackward(t.pos.g, dx, p.taps, p.weights, n, d)
	}
	be.LinearBackward(nil, t.patchW.g, t.patchB.g, dx, p.patches, nil, n, m.cfg.PatchDim(), d, false)
}

type visionGrads struct {
	norm, dnorm, dact, datt, dqkv, dgateUp *tensor.Tensor
}

func (p *visionPass) blockBackward(i int, dx *tensor.Tensor, g *visionGrads) {
	m, k, s, a := p.m, &p.m.vision.blocks[i], &p.blocks[i], p.ws.arena
	be, v, n := m.be, &m.cfg.Vision, p.rows
	d, mid := v.Hidden, v.Intermediate

	act, dact := a.View(g.norm, 0, n*mid), a.View(g.dact, 0, n*mid)
	dfc1 := dact
	if v.windowed() {
		dfc1 = g.dgateUp
		be.LinearBackward(dact, nil, nil, dx, nil, k.fc2W.w, n, mid, d, false)
		be.SwiGLUBackward(dfc1, act, dact, s.fc1, n, mid)
		be.LinearBackward(nil, k.fc2W.g, k.fc2B.g, dx, act, nil, n, mid, d, false)
	} else {
		be.GELU(act, s.fc1, n, mid, true)
		be.LinearBackward(dact, k.fc2W.g, k.fc2B.g, dx, act, k.fc2W.w, n, mid, d, false)
		be.GELUBackward(dact, dact, s.fc1, n, mid, true)
	}
	norm := a.View(g.norm, 0, n*d)
	p.normAgain(norm, s.stat2, s.mid, k.norm2W, k.norm2B, n, d)
	be.LinearBackward(g.dnorm, k.fc1W.g, k.fc1B.g, dfc1, norm, k.fc1W.w, n, d, p.fcWidth(), false)
	p.normBackward(dx, g.dnorm, s.mid, k.norm2W, k.norm2B, s.stat2, n, d)

	be.LinearBackward(g.datt, k.projW.g, k.projB.g, dx, s.att, k.projW.w, n, d, d, false)
	q, kk, vv := p.split(s.qkv)
	dq, dk, dv := p.split(g.dqkv)
	heads := m.visionHeads()
	be.AttentionBackward(dq, dk, dv, g.datt, s.att, s.lse, q, kk, vv, p.bounds(i), nil, heads)
	be.Rope(dq, p.cos, p.sin, n, v.Heads, heads.Dim, true)
	be.Rope(dk, p.cos, p.sin, n, v.Heads, heads.Dim, true)
	p.normAgain(norm, s.stat1, s.x, k.norm1W, k.norm1B, n, d)
	be.LinearBackward(g.dnorm, k.qkvW.g, k.qkvB.g, g.dqkv, norm, k.qkvW.w, n, d, 3*d, false)
	p.normBackward(dx, g.dnorm, s.x, k.norm1W, k.norm1B, s.stat1, n, d)
}

// mergeBackward adds the gradient of a merger's input to dx.
func (p *visionPass) mergeBackward(g *merger, s *mergeActs, dx, dy *tensor.Tensor) {
	be, a, out := p.m.be, p.ws.arena, p.m.cfg.Vision.Out
	rows, dim, tokens, wide := p.mergeShape(g)
	mark := a.Mark()
	act, dact := a.Floats(tokens*wide), a.Floats(tokens*wide)
	be.GELU(act, s.fc1, tokens, wide, false)
	be.LinearBackward(dact, g.fc2W.g, g.fc2B.g, dy, act, g.fc2W.w, tokens, wide, out, false)
	be.GELUBackward(dact, dact, s.fc1, tokens, wide, false)
	p.normAgain(act, s.stat, s.x, g.normW, g.normB, rows, dim)
	dnorm := a.Floats(tokens * wide)
	be.LinearBackward(dnorm, g.fc1W.g, g.fc1B.g, dact, act, g.fc1W.w, tokens, wide, wide, false)
	p.normBackward(dx, dnorm, s.x, g.normW, g.normB, s.stat, rows, dim)
	a.Release(mark)
}
