package qwenvl

import (
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
	x := m.decode(ws, &in, images, g.runs)
	for i := range steps {
		steps[i].Cache.n += len(steps[i].Tokens)
	}
	return m.logitsOf(ws, x, last), nil
}

// plan makes room in the caches and lists the runs.
func (g *generator) plan(m *Model, steps []Step, bounds []int32) {
	g.runs, g.pages = g.runs[:0], g.pages[:0]
	for i := range steps {
		c := steps[i].Cache
		m.makeRoom(c, len(steps[i].Tokens))
		from := len(g.pages)
		for _, p := range c.pages {
			g.pages = append(g.pages, p.t)
		}
		g.runs = append(g.runs, tensor.Run{
			Pages: g.pages[from:len(g.pages):len(g.pages)], Start: c.n, Row: int(bounds[i]), N: len(steps[i].Tokens),
		})
	}
}

// decode runs the layers over new tokens, nothing kept but keys and values. The
// operations and their order are those of a training pass.
func (m *Model) decode(ws *workspace, in *input, images []Image, runs []tensor.Run) *tensor.Tensor {
	be, a, c, n := m.be, ws.arena, &m.cfg, in.rows
	h, d, qd, mid := c.Hidden, c.HeadDim, c.Heads*c.HeadDim, c.Intermediate
	wide, heads := (c.Heads+2*c.KVHeads)*d, m.textHeads()
	x := a.Floats(n * h)
	m.embedTokens(x, in)
	var deep []*tensor.Tensor
	if len(images) > 0 {
		seen := m.seeImages(ws, images)
		be.Scatter(x, seen.out, in.pads, h)
		deep = seen.deep
	}
	norm, inv, qkv := a.Floats(n*h), a.Floats(n*(c.Heads+c.KVHeads)), a.Floats(n*wide)
	q, k, att := a.Floats(n*qd), a.Floats(n*c.KVHeads*d), a.Floats(n*qd)
	gateUp, act := a.Floats(n*2*mid), a.Floats(n*mid)
	invRow := a.View(inv, 0, n)
	rows := func(t *tensor.Tensor, stride int) tensor.Rows { return tensor.Rows{T: t, Stride: stride} }
	for i := range m.layers {
		l := &m.layers[i]
		be.RMSNorm(norm, invRow, x, l.norm1.w, n, h, c.RMSEps)
		be.Linear(qkv, norm, l.qkv.w, nil, n, h, wide, false)
		be.NormRope(q, k, inv, rows(qkv, wide), l.qNorm.w, l.kNorm.w, in.cos, in.sin, n, heads, c.RMSEps)
		be.CachedAttention(att, rows(q, qd), rows(k, c.KVHeads*d), valueRows(c, qkv), runs, i, heads)
		be.Linear(x, att, l.o.w, nil, n, qd, h, true)
		be.RMSNorm(norm, invRow, x, l.norm2.w, n, h, c.RMSEps)
		be.Linear(gateUp, norm, l.gateUp.w, nil, n, h, 2*mid, false)
		be.SwiGLU(act, gateUp, n, mid)
		be.Linear(x, act, l.down.w, nil, n, mid, h, true)
		if i < len(deep) {
			be.ScatterAdd(x, deep[i], in.pads, h)
		}
	}
	return x
}

// logitsOf are the logits of some rows of the last hidden states.
func (m *Model) logitsOf(ws *workspace, x *tensor.Tensor, rows []int32) [][]float32 {
	be, a, h, v, n := m.be, ws.arena, m.cfg.Hidden, m.cfg.Vocab, len(rows)
	last, norm, inv, z := a.Floats(n*h), a.Floats(n*h), a.Floats(n), a.Floats(n*v)
	be.Gather(last, x, be.UploadInts(rows), h)
	be.RMSNorm(norm, inv, last, m.norm.w, n, h, m.cfg.RMSEps)
	be.Linear(z, norm, m.head.w, nil, n, h, v, false)
	all := make([]float32, n*v)
	be.Download(all, z)
	logits := make([][]float32, n)
	for i := range logits {
		logits[i] = all[i*v : (i+1)*v : (i+1)*v]
	}
	return logits
}
