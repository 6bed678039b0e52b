// Package eva is the vision tower of Jina-CLIP-v2: EVA02-L/14, a pre-norm
// transformer over an image's patches with rotary positions in two dimensions, a
// gated perceptron and norms inside attention and perceptron
// (https://arxiv.org/abs/2303.11331; https://huggingface.co/jinaai/jina-clip-v2).
// A model folder goes in, then the patches of images (picture.Square cuts them);
// one vector an image comes out, the last state of [CLS], not normalised.
//
// It decodes no image and has no gradient. An image's vector is bit-identical
// alone or among others. The reference is timm's Eva; testdata holds its values.
package eva

import (
	"math"

	"searchloop/internal/cuda"
	"searchloop/internal/fail"
	"searchloop/internal/model/packs"
	"searchloop/internal/tensor"
)

// Tower is a loaded vision tower, safe for concurrent use: calls take turns, and on a
// device they are joined.
type Tower struct {
	be     *tensor.Shared
	cfg    config
	patch  linear
	table  *tensor.Tensor // [tokens, width]: positions, [CLS] in the first
	blocks []block
	norm   norm
	freq   []float32
	axis   []uint8

	pack         int // images of a pack, of a device
	hidden, seen int // widths inside the perceptron and of a patch, with what fills them up
	arena        *tensor.Arena
	held         []*tensor.Tensor
	line         *packs.Line[[]float32] // of a device
}

const normEps = 1e-6

// Dim is the length of a vector.
func (t *Tower) Dim() int { return t.cfg.Dim }

// Image and Patch are the edges of images and their patches in pixels.
func (t *Tower) Image() int { return t.cfg.Image }
func (t *Tower) Patch() int { return t.cfg.Patch }

// numbers is how many the patches of an image have.
func (t *Tower) numbers() int { return t.cfg.side() * t.cfg.side() * 3 * t.cfg.Patch * t.cfg.Patch }

// Encode returns the vectors of images, [n, Dim], from their patches: for each
// image (Image/Patch)² rows, in reading order, of 3·Patch² numbers by channel,
// row and column.
func (t *Tower) Encode(patches []float32) ([]float32, error) {
	each := t.numbers()
	if len(patches)%each != 0 {
		return nil, fail.New(fail.BadInput, "encode image", "", "%d numbers are not a multiple of the %d of an image", len(patches), each)
	}
	var images [][]float32
	for at := 0; at < len(patches); at += each {
		images = append(images, patches[at:at+each])
	}
	if t.line != nil {
		return t.line.Do(images)
	}
	t.be.Lock()
	defer t.be.Unlock()
	out := make([]float32, len(images)*t.cfg.Dim)
	if len(images) > 0 {
		t.pass(images, out)()
	}
	return out, nil
}

// Close gives a device's memory back. Nothing may be encoded any more.
func (t *Tower) Close() (err error) {
	defer cuda.Guard(&err)
	if t.line == nil {
		return nil
	}
	t.line.Close()
	t.be.Lock()
	defer t.be.Unlock()
	for _, x := range t.held {
		t.be.Free(x)
	}
	t.held = nil
	t.arena.Free()
	return nil
}

// begin begins a pack of a device.
func (t *Tower) begin(images [][]float32) (vecs []float32, wait func()) {
	t.be.Lock()
	defer t.be.Unlock()
	vecs = make([]float32, len(images)*t.cfg.Dim)
	return vecs, t.pass(images, vecs)
}

// pass computes the vectors of images. On a device it is always over a whole pack, of
// which the rest is blank: so an image's bits do not depend on the others.
func (t *Tower) pass(images [][]float32, vecs []float32) (wait func()) {
	c, n := &t.cfg, max(len(images), t.pack)
	t.arena.Reset()
	width := 3 * c.Patch * c.Patch
	patches := make([]float32, n*c.side()*c.side()*t.seen)
	for i, im := range images {
		copy(patches[i*len(patches)/n:], widened(im, width, t.seen))
	}
	p := t.start(patches, n)
	for i := range t.blocks {
		p.block(&t.blocks[i])
	}
	cls := make([]int32, n)
	for i := range cls {
		cls[i] = int32(i * c.tokens())
	}
	last := p.y.View(0, n*c.Width)
	t.be.Gather(last, p.x, t.be.UploadInts(cls), c.Width)
	t.be.LayerNormIn(last, nil, t.norm.w, t.norm.b, n, c.Width, normEps)
	out := t.arena.Full(n * c.Width)
	t.be.Copy(out, last)
	return t.be.Later(vecs, out.View(0, len(vecs)))
}

// pass is the computation over the images of a call, joined row by row.
type pass struct {
	*Tower
	rows            int
	x, y            *tensor.Tensor // [rows, width]
	qkv             *tensor.Tensor // [rows, 3·width]
	gateUp, inner   *tensor.Tensor // [rows, 2·hidden], [rows, hidden]
	stat, cos, sin  *tensor.Tensor
	cu              *tensor.Ints
	queries, values tensor.Rows
	keys            tensor.Rows
}

// start makes x of the patches, [CLS] and the positions.
func (t *Tower) start(patches []float32, n int) *pass {
	be, a, c := t.be, t.arena, &t.cfg
	d, side, tokens := c.Width, c.side(), c.tokens()
	p := &pass{Tower: t, rows: n * tokens}
	grid := n * side * side
	table, spot := make([]int32, p.rows), make([]int32, grid)
	place, cu := make([]int32, 2*p.rows), make([]int32, n+1)
	for i := range n {
		cu[i+1] = int32((i + 1) * tokens)
		for j := range tokens {
			r := i*tokens + j
			if table[r] = int32(j); j == 0 {
				continue // [CLS] is turned by no angle
			}
			spot[i*side*side+j-1] = int32(r)
			place[r], place[p.rows+r] = int32((j-1)/side), int32((j-1)%side)
		}
	}
	p.cu = be.UploadInts(cu)
	half := len(t.freq)
	p.cos, p.sin = a.Full(p.rows*half), a.Full(p.rows*half)
	be.RopeTable(p.cos, p.sin, be.UploadInts(place), p.rows, t.freq, t.axis)

	p.x, p.y, p.stat = a.Floats(p.rows*d), a.Floats(p.rows*d), a.Full(2*p.rows)
	p.qkv = a.Floats(p.rows * 3 * d)
	p.gateUp, p.inner = a.Floats(p.rows*2*t.hidden), a.Floats(p.rows*t.hidden)
	rows := func(part int) tensor.Rows { return tensor.Rows{T: p.qkv, Off: part * d, Stride: 3 * d} }
	p.queries, p.keys, p.values = rows(0), rows(1), rows(2)

	in := a.Floats(len(patches))
	be.Upload(in, patches)
	be.Gather(p.x, t.table, be.UploadInts(table), d)
	seen := p.y.View(0, grid*d)
	be.Linear(seen, in, t.patch.w, t.patch.b, grid, t.seen, d, false)
	be.ScatterAdd(p.x, seen, be.UploadInts(spot), d)
	return p
}

// block takes x through one block.
func (p *pass) block(b *block) {
	be, c := p.be, &p.cfg
	d, heads := c.Width, c.Width/c.HeadWidth
	p.normalise(p.y, p.x, b.norm1, d)
	be.Linear(p.qkv, p.y, b.qkv.w, b.qkv.b, p.rows, d, 3*d, false)
	be.Rope(p.queries, p.cos, p.sin, p.rows, heads, c.HeadWidth, false)
	be.Rope(p.keys, p.cos, p.sin, p.rows, heads, c.HeadWidth, false)
	be.Attention(p.y, nil, p.queries, p.keys, p.values, p.cu, nil,
		tensor.Heads{Heads: heads, KVHeads: heads, Dim: c.HeadWidth, Scale: float32(1 / math.Sqrt(float64(c.HeadWidth)))})
	p.normalise(p.y, p.y, b.inner, d)
	be.Linear(p.x, p.y, b.proj.w, b.proj.b, p.rows, d, d, true)

	p.normalise(p.y, p.x, b.norm2, d)
	be.Linear(p.gateUp, p.y, b.gateUp.w, b.gateUp.b, p.rows, d, 2*p.hidden, false)
	be.SwiGLUNorm(p.inner, p.gateUp, b.ffn.w, b.ffn.b, p.rows, c.hidden(), p.hidden, normEps)
	be.Linear(p.x, p.inner, b.down.w, b.down.b, p.rows, p.hidden, d, true)
}

func (p *pass) normalise(y, x *tensor.Tensor, n norm, dim int) {
	p.be.LayerNorm(y, p.stat, x, n.w, n.b, p.rows, dim, normEps)
}
