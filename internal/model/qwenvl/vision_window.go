package qwenvl

import (
	"slices"

	"searchloop/internal/tensor"
)

// seeWindows fills the pass for Qwen2.5-VL's tower, of which the merged tokens are put
// back in their own order at the end.
func (m *Model) seeWindows(p *visionPass, images []Image) {
	m.layWindows(p, images)
	be, a, v, t, rows := m.be, p.ws.arena, &m.cfg.Vision, m.vision, p.rows
	d := v.Hidden
	x := a.Floats(rows * d)
	be.Linear(x, p.patches, t.patchW.w, nil, rows, m.cfg.PatchDim(), d, false)
	scratch := a.Floats(rows * max(d, v.Intermediate))
	for i := range p.blocks {
		x = p.block(i, x, scratch)
	}
	p.last, p.merged = x, mergeActs{x: x}
	merged := p.merge(&t.merger, &p.merged)
	p.out = a.Floats(rows / m.cfg.mergeUnit() * v.Out)
	be.Scatter(p.out, merged, p.order, v.Out)
}

// layWindows puts the tokens (merge units of patches) in the order of their windows:
// patches, their angles, and the lengths of windows and frames.
func (m *Model) layWindows(p *visionPass, images []Image) {
	be, a, v := m.be, p.ws.arena, &m.cfg.Vision
	unit, dim, rows, d := m.cfg.mergeUnit(), m.cfg.PatchDim(), p.rows, v.Hidden
	order, windows := m.windowOrder(images)
	wide := m.cfg.patchIn()
	pos, patches := p.ws.intSlice(2*rows), make([]float32, rows*wide)
	cu := []int32{0}
	base, to := 0, 0 // tokens before this image; next patch
	for i := range images {
		im := &images[i]
		h, w := int(im.Grid[1]), int(im.Grid[2])
		tokens := int(im.Grid[0]) * h * w / unit
		for _, o := range order[base : base+tokens] {
			for k := range unit {
				from := (int(o)-base)*unit + k
				copy(patches[to*wide:][:dim], im.Patches[from*dim:])
				row, col := placeOf(from, h, w, m.cfg.MergeSize)
				pos[to], pos[rows+to] = int32(row), int32(col)
				to++
			}
		}
		for range im.Grid[0] {
			cu = append(cu, cu[len(cu)-1]+im.Grid[1]*im.Grid[2])
		}
		base += tokens
	}
	p.cu, p.windows, p.order = be.UploadInts(cu), be.UploadInts(windows), be.UploadInts(order)
	be.Upload(p.patches, patches)
	half := d / v.Heads / 2
	p.cos, p.sin = a.Full(rows*half), a.Full(rows*half)
	be.RopeTable(p.cos, p.sin, be.UploadInts(pos), rows, m.visionFreq, m.visionAxis)
}

// windowOrder lists the tokens of all images window by window, frame by frame,
// and the cumulative numbers of patches in the windows. Windows at the right and
// lower edge hold what is left.
func (m *Model) windowOrder(images []Image) (order, cu []int32) {
	side, merge, unit := m.cfg.Vision.Window, m.cfg.MergeSize, int32(m.cfg.mergeUnit())
	cu = []int32{0}
	base := 0
	for i := range images {
		g := images[i].Grid
		h, w := int(g[1])/merge, int(g[2])/merge
		for range g[0] {
			for top := 0; top < h; top += side {
				for left := 0; left < w; left += side {
					for r := top; r < min(top+side, h); r++ {
						for c := left; c < min(left+side, w); c++ {
							order = append(order, int32(base+r*w+c))
						}
					}
					cu = append(cu, int32(len(order))*unit)
				}
			}
			base += h * w
		}
	}
	return order, cu
}

// bounds are the cumulative lengths within which block i attends.
func (p *visionPass) bounds(i int) *tensor.Ints {
	if p.windows == nil || slices.Contains(p.m.cfg.Vision.Full, i) {
		return p.cu
	}
	return p.windows
}

// fcWidth is the width of a block's first linear layer: gate and up stand side
// by side in Qwen2.5-VL.
func (p *visionPass) fcWidth() int {
	if v := &p.m.cfg.Vision; v.windowed() {
		return 2 * v.Intermediate
	}
	return p.m.cfg.Vision.Intermediate
}

// The tower's norms: LayerNorm, or RMSNorm where there is no bias.

func (p *visionPass) norm(y, stat, x *tensor.Tensor, w, b weight, rows, dim int) {
	if b.n == 0 {
		p.m.be.RMSNorm(y, stat, x, w.w, rows, dim, layerNormEps)
		return
	}
	p.m.be.LayerNorm(y, stat, x, w.w, b.w, rows, dim, layerNormEps)
}

func (p *visionPass) normAgain(y, stat, x *tensor.Tensor, w, b weight, rows, dim int) {
	if b.n == 0 {
		p.m.be.RMSNormAgain(y, stat, x, w.w, rows, dim)
		return
	}
	p.m.be.LayerNormAgain(y, stat, x, w.w, b.w, rows, dim)
}

func (p *visionPass) normBackward(dx, dy, x *tensor.Tensor, w, b weight, stat *tensor.Tensor, rows, dim int) {
	if b.n == 0 {
		p.m.be.RMSNormBackward(dx, w.g, dy, x, w.w, stat, rows, dim)
		return
	}
	p.m.be.LayerNormBackward(dx, w.g, b.g, dy, x, w.w, stat, rows, dim)
}
