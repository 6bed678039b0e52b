package qwenvl

import (
	"searchloop/internal/fail"
	"searchloop/internal/tensor"
)

// Batch is a pack of sequences for training: Tokens one sequence after the
// other, sequence i being [CuSeqlens[i], CuSeqlens[i+1]); Positions restart in
// every sequence. Images are in the order of their tokens.
type Batch struct {
	Tokens    []int32
	CuSeqlens []int32
	Positions [3][]int32
	Images    []Image

	// Routes are experts to take instead of those the routers would choose, by
	// layer: TopExperts numbers a token, best first. A layer that is nil, and a
	// token whose first number is negative, is routed anew. A Pass's Routes are of
	// this form.
	Routes [][]int32
}

// Image is one image: its grid in patches, its patches in merge-block order,
// [t*h*w, PatchDim], and the index in the tokens of its first image pad.
type Image struct {
	Grid    [3]int32
	Patches []float32
	Offset  int32
}

// workspace is what one pass needs and the next one uses again.
type workspace struct {
	arena *tensor.Arena
	ints  []int32
}

// space takes a workspace for a pass.
func (m *Model) space() *workspace {
	if n := len(m.spaces); n > 0 {
		w := m.spaces[n-1]
		m.spaces = m.spaces[:n-1]
		return w
	}
	return &workspace{arena: tensor.NewArena(m.be)}
}

func (m *Model) giveBack(w *workspace) {
	w.arena.Reset()
	w.ints = w.ints[:0]
	m.spaces = append(m.spaces, w)
}

// intSlice is room for n numbers that lives as long as the pass.
func (w *workspace) intSlice(n int) []int32 {
	if len(w.ints)+n > cap(w.ints) {
		w.ints = make([]int32, 0, max(2*cap(w.ints), n, 4096))
	}
	from := len(w.ints)
	w.ints = w.ints[:from+n]
	return w.ints[from : from+n : from+n]
}

// input is a checked pack as the layers read it.
type input struct {
	rows     int
	ids      *tensor.Ints // rows of the embedding table; -1 where an image stands
	pads     *tensor.Ints // tokens that are images' rows, in the order of the images
	cos, sin *tensor.Tensor
	images   int // number of them
}

// prepare checks tokens, positions and images and makes the tables of the pack.
// bounds are the cumulative lengths: no image may cross one.
func (m *Model) prepare(ws *workspace, tokens []int32, pos *[3][]int32, bounds []int32, images []Image) (input, error) {
	bad := func(format string, args ...any) (input, error) {
		return input{}, fail.New(fail.BadInput, "model input", "", format, args...)
	}
	cfg, n := &m.cfg, len(tokens)
	if len(bounds) < 1 || bounds[0] != 0 || int(bounds[len(bounds)-1]) != n {
		return bad("cumulative lengths %v do not cover %d tokens", bounds, n)
	}
	for i := 1; i < len(bounds); i++ {
		if bounds[i] < bounds[i-1] {
			return bad("cumulative lengths fall at %d", i)
		}
	}
	for a := range pos {
		if len(pos[a]) != n {
			return bad("%d positions for %d tokens", len(pos[a]), n)
		}
	}
	if len(images) > 0 && m.vision == nil {
		return bad("images for a model without a vision tower")
	}
	ids, pads := ws.intSlice(n), 0
	for i, t := range tokens {
		if t < 0 || int(t) >= cfg.Vocab {
			return bad("token %d at %d is outside of the vocabulary of %d", t, i, cfg.Vocab)
		}
		ids[i] = t
		if cfg.HasVision() && t == cfg.ImagePadID {
			ids[i] = -1
			pads++
		}
	}
	padRows, seq, next := ws.intSlice(pads)[:0], 0, int32(0)
	for i := range images {
		im := &images[i]
		t, h, w, err := cfg.tokenGrid(im.Grid)
		if err != nil {
			return input{}, err
		}
		count := t * h * w
		if len(im.Patches) != count*cfg.mergeUnit()*cfg.PatchDim() {
			return bad("image %d has %d patch values, its grid %v needs %d", i, len(im.Patches), im.Grid, count*cfg.mergeUnit()*cfg.PatchDim())
		}
		from, to := im.Offset, im.Offset+int32(count)
		if from < next || count > n || int(from) > n-count {
			return bad("image %d at token %d does not fit the %d tokens, or overlaps or precedes the image before it", i, from, n)
		}
		for bounds[seq+1] <= from {
			seq++
		}
		if to > bounds[seq+1] {
			return bad("image %d crosses the end of its sequence at token %d", i, bounds[seq+1])
		}
		for j := from; j < to; j++ {
			if ids[j] != -1 {
				return bad("image %d covers token %d, which is not an image token", i, j)
			}
			padRows = append(padRows, j)
		}
		next = to
	}
	if len(padRows) != pads {
		return bad("%d image tokens, but the images have %d", pads, len(padRows))
	}
	all := ws.intSlice(3 * n)
	for a := range pos {
		copy(all[a*n:], pos[a])
	}
	half := cfg.HeadDim / 2
	in := input{
		rows: n, ids: m.be.UploadInts(ids), pads: m.be.UploadInts(padRows), images: len(images),
		cos: ws.arena.Full(n * half), sin: ws.arena.Full(n * half),
	}
	m.be.RopeTable(in.cos, in.sin, m.be.UploadInts(all), n, m.freq, m.axis)
	return in, nil
}

// embedTokens sets x[rows,Hidden]; rows of images are zero.
func (m *Model) embedTokens(x *tensor.Tensor, in *input) {
	m.be.Gather(x, m.embed.w, in.ids, m.cfg.Hidden)
}

func (m *Model) textHeads() tensor.Heads {
	c := &m.cfg
	return tensor.Heads{Heads: c.Heads, KVHeads: c.KVHeads, Dim: c.HeadDim, Scale: invSqrt(c.HeadDim), Causal: true}
}

func (m *Model) visionHeads() tensor.Heads {
	v := &m.cfg.Vision
	d := v.Hidden / v.Heads
	return tensor.Heads{Heads: v.Heads, KVHeads: v.Heads, Dim: d, Scale: invSqrt(d)}
}
