package qwenvl

import "searchloop/internal/tensor"

const layerNormEps = 1e-6

// visionPass is the tower's computation over all images of a pack, joined patch
// by patch, and what its gradient needs.
type visionPass struct {
	m        *Model
	ws       *workspace
	rows     int // patches
	patches  *tensor.Tensor
	taps     *tensor.Ints
	weights  *tensor.Tensor
	cos, sin *tensor.Tensor
	cu       *tensor.Ints
	windows  *tensor.Ints // Qwen2.5-VL: cumulative lengths of the windows
	order    *tensor.Ints // Qwen2.5-VL: where each merged token belongs
	blocks   []blockActs
	last     *tensor.Tensor // after the last block
	merged   mergeActs
	deeps    []mergeActs

	out  *tensor.Tensor   // [patches/merge unit, Hidden]
	deep []*tensor.Tensor // the same, one for each of the first decoder layers
}

type blockActs struct {
	x, stat1, qkv, att, lse, mid, stat2, fc1 *tensor.Tensor
}

type mergeActs struct {
	x, stat, fc1 *tensor.Tensor
}

// seeImages runs the tower. Frames attend within themselves only, so images do
// not influence each other.
func (m *Model) seeImages(ws *workspace, images []Image) *visionPass {
	be, a, v, t := m.be, ws.arena, &m.cfg.Vision, m.vision
	rows, frames := 0, 0
	for i := range images {
		g := images[i].Grid
		rows += int(g[0] * g[1] * g[2])
		frames += int(g[0])
	}
	p := &visionPass{m: m, ws: ws, rows: rows, blocks: make([]blockActs, v.Depth)}
	d, half := v.Hidden, v.Hidden/v.Heads/2
	p.patches = a.Floats(rows * m.cfg.PatchDim())
	if v.windowed() {
		m.seeWindows(p, images)
		return p
	}
	pos, taps, cu := ws.intSlice(2*rows), ws.intSlice(4*rows), ws.intSlice(frames + 1)[:1]
	weights := make([]float32, 4*rows)
	cu[0] = 0
	at := 0
	for i := range images {
		im := &images[i]
		n := int(im.Grid[0] * im.Grid[1] * im.Grid[2])
		be.Upload(a.View(p.patches, at*m.cfg.PatchDim(), n*m.cfg.PatchDim()), im.Patches)
		m.placePatches(im.Grid, pos[at:at+n], pos[rows+at:rows+at+n], taps[4*at:4*(at+n)], weights[4*at:4*(at+n)])
		for range im.Grid[0] {
			cu = append(cu, cu[len(cu)-1]+im.Grid[1]*im.Grid[2])
		}
		at += n
	}
	p.taps, p.cu = be.UploadInts(taps), be.UploadInts(cu)
	p.weights = a.Full(4 * rows)
	be.Upload(p.weights, weights)
	p.cos, p.sin = a.Full(rows*half), a.Full(rows*half)
	be.RopeTable(p.cos, p.sin, be.UploadInts(pos), rows, m.visionFreq, m.visionAxis)

	x := a.Floats(rows * d)
	be.Linear(x, p.patches, t.patchW.w, t.patchB.w, rows, m.cfg.PatchDim(), d, false)
	be.Mix(x, t.pos.w, p.taps, p.weights, rows, d)
	scratch := a.Floats(rows * max(d, v.Intermediate))
	for i := range p.blocks {
		x = p.block(i, x, scratch)
		for j, at := range v.Deepstack {
			if at == i {
				s := mergeActs{x: x}
				p.deep = append(p.deep, p.merge(&t.deepstack[j], &s))
				p.deeps = append(p.deeps, s)
			}
		}
	}
	p.last = x
	p.merged = mergeActs{x: x}
	p.out = p.merge(&t.merger, &p.merged)
	return p
}

// placePatches gives, for the patches of one image in merge-block order, row and
// column, and the four entries of the learned position table that the patch
// mixes, with their weights: the table is stretched over the image so that their
// corners meet.
func (m *Model) placePatches(grid [3]int32, row, col, taps []int32, weights []float32) {
	h, w, merge, side := int(grid[1]), int(grid[2]), m.cfg.MergeSize, m.cfg.Vision.PositionSide
	for i := range row {
		r, c := placeOf(i, h, w, merge)
		row[i], col[i] = int32(r), int32(c)
		r0, r1, wr := tap(r, h, side)
		c0, c1, wc := tap(c, w, side)
		t, u := taps[4*i:4*i+4], weights[4*i:4*i+4]
		t[0], t[1], t[2], t[3] = r0*int32(side)+c0, r0*int32(side)+c1, r1*int32(side)+c0, r1*int32(side)+c1
		u[0], u[1], u[2], u[3] = (1-wr)*(1-wc), (1-wr)*wc, wr*(1-wc), wr*wc
	}
}

// placeOf is row and column of patch i of an image in merge-block order.
func placeOf(i, h, w, merge int) (row, col int) {
	in := i % (h * w)
	c, r := in%merge, in/merge%merge
	block := in / (merge * merge)
	return r + block/(w/merge)*merge, c + block%(w/merge)*merge
}

// tap is where i of n falls on an axis of side entries: two neighbours and the
// weight of the second.
func tap(i, n, side int) (lo, hi int32, second float32) {
	src := float32(i*(side-1)) / float32(max(n-1, 1))
	lo = int32(src)
	return lo, min(lo+1, int32(side-1)), src - float32(lo)
}

func (p *visionPass) block(i int, x, scratch *tensor.Tensor) *tensor.Tensor {
	m, k, s, a := p.m, &p.m.vision.blocks[i], &p.blocks[i], p.ws.arena
	be, v, n := m.be, &m.cfg.Vision, p.rows
	d := v.Hidden
	*s = blockActs{
		x: x, stat1: a.Full(2 * n), qkv: a.Floats(3 * n * d), att: a.Floats(n * d), lse: a.Full(n * v.Heads),
		mid: a.Floats(n * d), stat2: a.Full(2 * n), fc1: a.Floats(n * p.fcWidth()),
	}
	norm := a.View(scratch, 0, n*d)
	p.norm(norm, s.stat1, x, k.norm1W, k.norm1B, n, d)
	be.Linear(s.qkv, norm, k.qkvW.w, k.qkvB.w, n, d, 3*d, false)
	q, kk, vv := p.split(s.qkv)
	heads := m.visionHeads()
	be.Rope(q, p.cos, p.sin, n, v.Heads, heads.Dim, false)
	be.Rope(kk, p.cos, p.sin, n, v.Heads, heads.Dim, false)
	be.Attention(s.att, s.lse, q, kk, vv, p.bounds(i), nil, heads)
	be.Copy(s.mid, x)
	be.Linear(s.mid, s.att, k.projW.w, k.projB.w, n, d, d, true)
	p.norm(norm, s.stat2, s.mid, k.norm2W, k.norm2B, n, d)
	be.Linear(s.fc1, norm, k.fc1W.w, k.fc1B.w, n, d, p.fcWidth(), false)
	act := a.View(scratch, 0, n*v.Intermediate)
	if v.windowed() {
		be.SwiGLU(act, s.fc1, n, v.Intermediate)
	} else {
		be.GELU(act, s.fc1, n, v.Intermediate, true)
	}
	out := a.Floats(n * d)
	be.Copy(out, s.mid)
	be.Linear(out, act, k.fc2W.w, k.fc2B.w, n, v.Intermediate, d, true)
	return out
}

func (p *visionPass) split(qkv *tensor.Tensor) (q, k, v tensor.Rows) {
	return parts(qkv, p.m.cfg.Vision.Hidden, p.m.cfg.Vision.Hidden)
}

// mergeShape is the number of rows and the width that a merger's norm works on.
func (p *visionPass) mergeShape(g *merger) (rows, dim, tokens, wide int) {
	d, unit := p.m.cfg.Vision.Hidden, p.m.cfg.mergeUnit()
	tokens, wide = p.rows/unit, d*unit
	if g.after {
		return tokens, wide, tokens, wide
	}
	return p.rows, d, tokens, wide
}

// merge joins every merge unit of patches into a token.
func (p *visionPass) merge(g *merger, s *mergeActs) *tensor.Tensor {
	be, a, out := p.m.be, p.ws.arena, p.m.cfg.Vision.Out
	rows, dim, tokens, wide := p.mergeShape(g)
	s.stat, s.fc1 = a.Full(2*rows), a.Floats(tokens*wide)
	y := a.Floats(tokens * out)
	mark := a.Mark()
	norm := a.Floats(rows * dim)
	p.norm(norm, s.stat, s.x, g.normW, g.normB, rows, dim)
	be.Linear(s.fc1, norm, g.fc1W.w, g.fc1B.w, tokens, wide, wide, false)
	be.GELU(norm, s.fc1, tokens, wide, false)
	be.Linear(y, norm, g.fc2W.w, g.fc2B.w, tokens, wide, out, false)
	a.Release(mark)
	return y
}
