package qwenvl

import (
	"slices"

	"searchloop/internal/fail"
	"searchloop/internal/tensor"
)

// Step is a sequence's next tokens: all of a prompt, a piece of one, or the one
// token just sampled. Positions continue the sequence's; an image lies within
// one step, its Offset counting from the step's first token.
type Step struct {
	Cache     *Cache
	Tokens    []int32
	Positions [3][]int32
	Images    []Image
}

// Extend appends every step's tokens to its cache and returns the logits after
// each step's last token, in memory of the caller. A sequence's logits are the
// same bits alone or in company, and however its tokens are cut into steps; they
// are those of Forward. Steps must have tokens and caches of their own.
//
// After an error no cache has changed. A cache that is full is a fail.BadInput.
// Extend may be called from several goroutines, one waits for the other, but not
// while weights change.
func (m *Model) Extend(steps []Step) ([][]float32, error) {
	const op = "generate"
	if len(steps) == 0 {
		return nil, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.generator()
	ws := &g.ws
	defer func() {
		ws.arena.Reset()
		ws.ints = ws.ints[:0]
	}()
	total := 0
	for i := range steps {
		s := &steps[i]
		n := len(s.Tokens)
		switch {
		case n == 0 || s.Cache == nil || s.Cache.m != m:
			return nil, fail.New(fail.Bug, op, "", "step %d has no tokens or no cache of this model", i)
		case s.Cache.n+n > s.Cache.capacity:
			return nil, fail.New(fail.BadInput, op, "", "sequence %d has %d tokens, the cache holds %d", i, s.Cache.n+n, s.Cache.capacity)
		}
		for a := range s.Positions {
			if len(s.Positions[a]) != n {
				return nil, fail.New(fail.BadInput, op, "", "step %d has %d positions for %d tokens", i, len(s.Positions[a]), n)
			}
		}
		total += n
	}
	// The pack: tokens, positions and images of all steps.
	tokens, bounds, last := ws.intSlice(total), ws.intSlice(len(steps)+1), ws.intSlice(len(steps))
	var pos [3][]int32
	for a := range pos {
		pos[a] = ws.intSlice(total)
	}
	var images []Image
	at := 0
	bounds[0] = 0
	for i := range steps {
		s := &steps[i]
		copy(tokens[at:], s.Tokens)
		for a := range pos {
			copy(pos[a][at:], s.Positions[a])
		}
		for _, im := range s.Images {
			im.Offset += int32(at)
			images = append(images, im)
		}
		at += len(s.Tokens)
		bounds[i+1], last[i] = int32(at), int32(at-1)
	}
	in, err := m.prepare(ws, tokens, &pos, bounds, images)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, op, "", err)
	}
	g.plan(m, steps, bounds)
	x := m.decode(ws, &in, images, g.runs, last)
	for i := range steps {
		steps[i].Cache.n += len(steps[i].Tokens)
	}
	return m.logitsOf(ws, x, len(last)), nil
}

// plan makes room in the caches and lists the runs.
func (g *generator) plan(m *Model, steps []Step, bounds []int32) {
	g.runs, g.pages = g.runs[:0], g.pages[:0]
	for i := range steps {
		c, n := steps[i].Cache, len(steps[i].Tokens)
		m.makeRoom(c, n)
		from := len(g.pages)
		for _, p := range c.pages {
			g.pages = append(g.pages, p.t)
		}
		g.runs = append(g.runs, tensor.Run{
			Pages: g.pages[from:len(g.pages):len(g.pages)], Start: c.n, Row: int(bounds[i]), N: n,
			AskRow: int(bounds[i]), Ask: n,
		})
	}
}

// decode runs the layers over new tokens, nothing kept but keys and values, and
// returns the last hidden states of the rows in last, one of each run. The
// operations and their order are those of a training pass.
func (m *Model) decode(ws *workspace, in *input, images []Image, runs []tensor.Run, last []int32) *tensor.Tensor {
	be, a, c, n := m.be, ws.arena, &m.cfg, in.rows
	h, qd, kd, mid := c.Hidden, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim, c.Intermediate
	x := a.Floats(n * h)
	m.embedTokens(x, in)
	var deep []*tensor.Tensor
	if len(images) > 0 {
		seen := m.seeImages(ws, images)
		be.Scatter(x, seen.out, in.pads, h)
		deep = seen.deep
	}
	s := step{
		norm: a.Floats(n * h), inv: a.Full(n * max(c.Heads, c.KVHeads)), qkv: a.Floats(n * (qd + 2*kd)),
		q: a.Floats(n * qd), k: a.Floats(n * kd), att: a.Floats(n * qd), gateUp: a.Floats(n * 2 * mid), act: a.Floats(n * mid),
	}
	for i := range m.layers[:len(m.layers)-1] {
		m.decodeLayer(ws, i, &s, x, in, runs)
		if i < len(deep) {
			be.ScatterAdd(x, deep[i], in.pads, h)
		}
	}
	return m.decodeLast(ws, &s, x, in, runs, last, deep)
}

// step is the scratch of decode.
type step struct {
	norm, inv, qkv, q, k, att, gateUp, act *tensor.Tensor
}

func (m *Model) decodeLayer(ws *workspace, i int, s *step, x *tensor.Tensor, in *input, runs []tensor.Run) {
	be, c, l, n := m.be, &m.cfg, &m.layers[i], in.rows
	h, qd, kd := c.Hidden, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	be.RMSNorm(s.norm, s.inv, x, l.norm1.w, n, h, c.RMSEps)
	be.Linear(s.qkv, s.norm, l.qkv.w, l.qkvB.w, n, h, qd+2*kd, false)
	q, k, v := parts(s.qkv, qd, kd)
	q = m.turnedInto(s.q, s.inv, q, l.qNorm, in.cos, in.sin, n, c.Heads)
	k = m.turnedInto(s.k, s.inv, k, l.kNorm, in.cos, in.sin, n, c.KVHeads)
	be.CachedAttention(s.att, q, k, v, runs, i, m.textHeads())
	m.decodeFeed(ws.arena, l, s, x, n)
}

// turnedInto is turned with the memory of a step.
func (m *Model) turnedInto(y, inv *tensor.Tensor, x tensor.Rows, norm weight, cos, sin *tensor.Tensor, n, heads int) tensor.Rows {
	d := m.cfg.HeadDim
	if norm.n == 0 {
		m.be.Rope(x, cos, sin, n, heads, d, false)
		return x
	}
	m.be.NormRope(y, inv, x, norm.w, cos, sin, n, heads, d, m.cfg.RMSEps)
	return packed(y, heads*d)
}

func (m *Model) decodeFeed(a *tensor.Arena, l *layer, s *step, x *tensor.Tensor, n int) {
	be, c := m.be, &m.cfg
	h, mid := c.Hidden, c.Intermediate
	be.Linear(x, s.att, l.o.w, nil, n, c.Heads*c.HeadDim, h, true)
	be.RMSNorm(s.norm, s.inv, x, l.norm2.w, n, h, c.RMSEps)
	if l.sparse != nil {
		mark := a.Mark()
		m.takeExperts(a, l.sparse, m.route(a, l.sparse, s.norm, n, nil), x, s.norm)
		a.Release(mark)
		return
	}
	be.Linear(s.gateUp, s.norm, l.gateUp.w, nil, n, h, 2*mid, false)
	be.SwiGLU(s.act, s.gateUp, n, mid)
	be.Linear(x, s.act, l.down.w, nil, n, mid, h, true)
}

// decodeLast is the last layer: keys and values of all rows, the rest for the
// runs' last rows only.
func (m *Model) decodeLast(ws *workspace, s *step, x *tensor.Tensor, in *input, runs []tensor.Run, last []int32, deep []*tensor.Tensor) *tensor.Tensor {
	be, a, c, i, all, n := m.be, ws.arena, &m.cfg, len(m.layers)-1, in.rows, len(last)
	h, d, qd, kd, l := c.Hidden, c.HeadDim, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim, &m.layers[len(m.layers)-1]
	be.RMSNorm(s.norm, s.inv, x, l.norm1.w, all, h, c.RMSEps)
	be.Linear(s.qkv, s.norm, l.kv.w, l.kvB.w, all, h, 2*kd, false)
	_, k, v := parts(s.qkv, 0, kd)
	k = m.turnedInto(s.k, s.inv, k, l.kNorm, in.cos, in.sin, all, c.KVHeads)
	rows := be.UploadInts(last)
	end, norm, cos, sin, q0 := a.Floats(n*h), a.Floats(n*h), a.Full(n*d/2), a.Full(n*d/2), a.Floats(n*qd)
	be.Gather(end, x, rows, h)
	be.Gather(norm, s.norm, rows, h)
	be.Gather(cos, in.cos, rows, d/2)
	be.Gather(sin, in.sin, rows, d/2)
	be.Linear(q0, norm, l.q.w, l.qB.w, n, h, qd, false)
	q := m.turnedInto(s.q, s.inv, packed(q0, qd), l.qNorm, cos, sin, n, c.Heads)
	for r := range runs {
		runs[r].AskRow, runs[r].Ask = r, 1
	}
	be.CachedAttention(s.att, q, k, v, runs, i, m.textHeads())
	m.decodeFeed(a, l, s, end, n)
	if i < len(deep) { // a run may end inside an image
		for j, pad := range in.pads.Host() {
			if r, ok := slices.BinarySearch(last, pad); ok {
				be.Add(a.View(end, r*h, h), a.View(deep[i], j*h, h))
			}
		}
	}
	return end
}

// logitsOf are the logits of n rows of last hidden states.
func (m *Model) logitsOf(ws *workspace, x *tensor.Tensor, n int) [][]float32 {
	be, a, h, v := m.be, ws.arena, m.cfg.Hidden, m.cfg.Vocab
	norm, inv, z := a.Floats(n*h), a.Full(n), a.Full(n*v)
	be.RMSNorm(norm, inv, x, m.norm.w, n, h, m.cfg.RMSEps)
	be.Linear(z, norm, m.head.w, nil, n, h, v, false)
	all := make([]float32, n*v)
	be.Download(all, z)
	logits := make([][]float32, n)
	for i := range logits {
		logits[i] = all[i*v : (i+1)*v : (i+1)*v]
	}
	return logits
}
