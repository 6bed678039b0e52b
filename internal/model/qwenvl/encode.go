package qwenvl

import (
	"fmt"
	"slices"

	"searchloop/internal/fail"
	"searchloop/internal/tensor"
)

// Sequence is one to encode: tokens, and an image or none, whose tokens are the run
// of image pads. Without an image a pad is a token like any other.
type Sequence struct {
	Tokens   []int32
	Grid     [3]int32  // of the image, in patches; zero without one
	Patches  []float32 // [t*h*w, PatchDim], in merge-block order
	From, To int       // the tokens [From, To) that the vector is the mean of
}

// LoadEncoder is LoadOn for Encode alone. Neither an output head nor tensors of the
// files for which spare says so are kept. change may change every tensor, which is
// as it is in the files, before it goes to the back end; an error of it ends the loading.
// The encoder's Config has a TemporalPatch of 1: patches are of one frame.
func LoadEncoder(be tensor.Encoding, dir string, spare func(name string) bool, change func(name string, shape []int, x []float32) error) (*Model, error) {
	return loading{encode: true, spare: spare}.load(be, dir, change)
}

// forEncoding leaves out the head, and refuses what Encode does not know.
func (c *Config) forEncoding() error {
	if !c.HasVision() || !c.Vision.windowed() || c.Experts > 0 {
		return fail.New(fail.BadInput, "", "", "only Qwen2.5-VL is known as an encoder")
	}
	c.Tied = true
	return nil
}

// widen brings widths that are not multiples of n to such; zeros fill them up. Patches
// have one frame from here on: a still's frames are all the same.
func (c *Config) widen(n int) {
	c.TemporalPatch = 1
	c.patchWidth = (c.PatchDim() + n - 1) / n * n
	c.Vision.Intermediate = (c.Vision.Intermediate + n - 1) / n * n
}

// oneFrame is the patch embedding [width, channels, frames, side, side] of frames that are
// the same: their sum, [width, channels*side*side].
func oneFrame(x []float32, shape []int) (_ []float32, to []int) {
	frames, area := shape[2], shape[3]*shape[4]
	to = []int{shape[0], shape[1] * area}
	out := make([]float32, product(to))
	for i := range shape[0] * shape[1] {
		for f := range frames {
			for j, v := range x[(i*frames+f)*area:][:area] {
				out[i*area+j] += v
			}
		}
	}
	return out, to
}

// widened is x with zeros after its rows and columns, from one shape to another.
func widened(x []float32, from, to []int) []float32 {
	if slices.Equal(from, to) {
		return x
	}
	out := make([]float32, product(to))
	wide, width := product(to[1:]), product(from[1:])
	for r := range from[0] {
		copy(out[r*wide:], x[r*width:(r+1)*width])
	}
	return out
}

// feedRows are the rows of the decoder's perceptron at once, which needs the most memory.
const feedRows = 4096

// Encode begins a pass over a pack of sequences and returns their vectors,
// [len(seqs), Hidden], which are there once wait has returned: the mean of the last
// layer's normed states over each sequence's tokens From to To, brought to length 1.
// Nothing is kept for a gradient. Products have at least rows rows, and the vision
// tower's those of as many tokens, so that where kernels are chosen by the number of
// rows a sequence's bits do not depend on what it is packed with. A sequence that
// contradicts itself is a fail.BadInput.
func (m *Model) Encode(seqs []Sequence, rows int) (vecs []float32, wait func(), err error) {
	in, err := m.lineUp(seqs)
	if err != nil {
		return nil, nil, err
	}
	ws := m.space()
	defer m.giveBack(ws)
	be, a, c := m.be.(tensor.Encoding), ws.arena, &m.cfg
	n, h, mid := len(in.ids), c.Hidden, c.Intermediate
	rows = max(rows, n)
	qd, kd := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	wide := qd + 2*kd

	x, norm, inv := a.Floats(rows*h), a.Floats(rows*h), a.Full(n)
	be.Gather(a.View(x, 0, n*h), m.embed.w, be.UploadInts(in.ids), h)
	cos, sin := a.Full(n*c.HeadDim/2), a.Full(n*c.HeadDim/2)
	be.RopeTable(cos, sin, be.UploadInts(in.places), n, m.freq, m.axis)
	if len(in.images) > 0 {
		mark := a.Mark()
		m.look(ws, x, &in, rows)
		a.Release(mark)
	}
	qkv, att := a.Floats(rows*wide), a.Floats(rows*qd)
	step := min(rows, feedRows)
	gateUp, act := a.Floats(step*2*mid), a.Floats(step*mid)
	cu, heads := be.UploadInts(in.cu), m.textHeads()
	q, k, v := parts(qkv, qd, kd)
	for i := range m.layers {
		l := &m.layers[i]
		be.RMSNorm(norm, inv, x, l.norm1.w, n, h, c.RMSEps)
		be.Linear(qkv, norm, l.qkv.w, l.qkvB.w, rows, h, wide, false)
		be.Rope(q, cos, sin, n, c.Heads+c.KVHeads, c.HeadDim, false) // queries, then keys
		be.Attention(att, nil, q, k, v, cu, nil, heads)
		be.Linear(x, att, l.o.w, nil, rows, qd, h, true)
		be.RMSNorm(norm, inv, x, l.norm2.w, n, h, c.RMSEps)
		for at := 0; at < rows; at += step {
			k := min(step, rows-at)
			be.Linear(gateUp, a.View(norm, at*h, k*h), l.gateUp.w, nil, k, h, 2*mid, false)
			be.SwiGLU(act, gateUp, max(0, min(k, n-at)), mid)
			be.Linear(a.View(x, at*h, k*h), act, l.down.w, nil, k, mid, h, true)
		}
	}
	asked := len(in.asked)
	last := a.View(norm, 0, asked*h)
	be.Gather(last, x, be.UploadInts(in.asked), h)
	be.RMSNorm(last, inv, last, m.norm.w, asked, h, c.RMSEps)
	out := a.Full(len(seqs) * h)
	be.Pool(out, last, be.UploadInts(in.askedCu), h, false, true)
	vecs = make([]float32, len(seqs)*h)
	return vecs, be.Later(vecs, out), nil
}

// Check says whether Encode takes the sequences.
func (m *Model) Check(seqs []Sequence) error {
	_, err := m.lineUp(seqs)
	return err
}

// lined are sequences joined to a pack.
type lined struct {
	ids            []int32 // of all tokens; -1 where an image stands
	places         []int32 // [3, tokens]
	cu             []int32
	images         []Image
	pads           []int32 // the images' tokens
	asked, askedCu []int32 // tokens whose mean is wanted, and how many up to each sequence
}

// lineUp checks sequences and joins them.
func (m *Model) lineUp(seqs []Sequence) (in lined, err error) {
	cfg := &m.cfg
	var places [3][]int32
	in.cu, in.askedCu = []int32{0}, []int32{0}
	for i := range seqs {
		s := &seqs[i]
		bad := func(format string, args ...any) (lined, error) {
			return lined{}, &fail.Error{Kind: fail.BadInput, Op: "encode", Row: int64(i + 1), Err: fmt.Errorf(format, args...)}
		}
		at := int32(len(in.ids))
		for j, t := range s.Tokens {
			if t < 0 || int(t) >= cfg.Vocab {
				return bad("token %d at %d is outside of the vocabulary of %d", t, j, cfg.Vocab)
			}
		}
		if s.From < 0 || s.From >= s.To || s.To > len(s.Tokens) {
			return bad("a mean over tokens %d to %d of %d", s.From, s.To, len(s.Tokens))
		}
		in.ids = append(in.ids, s.Tokens...)
		var pos [3][]int32
		if s.Grid == [3]int32{} {
			pos[0] = make([]int32, len(s.Tokens))
			for j := range pos[0] {
				pos[0][j] = int32(j)
			}
			pos[1], pos[2] = pos[0], pos[0]
		} else {
			if pos, _, err = Positions(s.Tokens, [][3]int32{s.Grid}, *cfg); err != nil {
				return bad("%w", err)
			}
			if len(s.Patches) != int(s.Grid[0]*s.Grid[1]*s.Grid[2])*cfg.PatchDim() {
				return bad("an image of grid %v with %d patch values; it needs %d of each of its patches", s.Grid, len(s.Patches), cfg.PatchDim())
			}
			in.images = append(in.images, Image{Grid: s.Grid, Patches: s.Patches})
			for j, t := range s.Tokens {
				if t == cfg.ImagePadID {
					in.ids[int(at)+j] = -1
					in.pads = append(in.pads, at+int32(j))
				}
			}
		}
		for axis := range places {
			places[axis] = append(places[axis], pos[axis]...)
		}
		for j := s.From; j < s.To; j++ {
			in.asked = append(in.asked, at+int32(j))
		}
		in.cu, in.askedCu = append(in.cu, int32(len(in.ids))), append(in.askedCu, int32(len(in.asked)))
	}
	in.places = slices.Concat(places[:]...)
	return in, nil
}

// look puts what the vision tower makes of the images in their tokens' rows of x.
// tokens are those that its products have room for.
func (m *Model) look(ws *workspace, x *tensor.Tensor, in *lined, tokens int) {
	be, a, v, t := m.be, ws.arena, &m.cfg.Vision, m.vision
	unit, d, mid := m.cfg.mergeUnit(), v.Hidden, v.Intermediate
	p := &visionPass{m: m, ws: ws}
	for i := range in.images {
		g := in.images[i].Grid
		p.rows += int(g[0] * g[1] * g[2])
	}
	n, rows := p.rows, tokens*unit
	wide := m.cfg.patchIn()
	patches := a.Floats(rows * wide)
	p.patches = a.View(patches, 0, n*wide)
	m.layWindows(p, in.images)
	y, norm, inv := a.Floats(rows*d), a.Floats(rows*d), a.Full(n)
	be.Linear(y, patches, t.patchW.w, nil, rows, wide, d, false)
	qkv, att := a.Floats(rows*3*d), a.Floats(rows*d)
	gateUp, act := a.Floats(rows*2*mid), a.Floats(rows*mid)
	heads := m.visionHeads()
	q, k, vals := p.split(qkv)
	for i := range t.blocks {
		b := &t.blocks[i]
		p.norm(norm, inv, y, b.norm1W, b.norm1B, n, d)
		be.Linear(qkv, norm, b.qkvW.w, b.qkvB.w, rows, d, 3*d, false)
		be.Rope(q, p.cos, p.sin, n, 2*v.Heads, heads.Dim, false) // queries, then keys
		be.Attention(att, nil, q, k, vals, p.bounds(i), nil, heads)
		be.Linear(y, att, b.projW.w, b.projB.w, rows, d, d, true)
		p.norm(norm, inv, y, b.norm2W, b.norm2B, n, d)
		be.Linear(gateUp, norm, b.fc1W.w, b.fc1B.w, rows, d, 2*mid, false)
		be.SwiGLU(act, gateUp, n, mid)
		be.Linear(y, act, b.fc2W.w, b.fc2B.w, rows, mid, d, true)
	}
	g := &t.merger
	wide = d * unit
	p.norm(norm, inv, y, g.normW, g.normB, n, d)
	fc1 := a.View(qkv, 0, tokens*wide)
	be.Linear(fc1, norm, g.fc1W.w, g.fc1B.w, tokens, wide, wide, false)
	be.GELU(att, fc1, n/unit, wide, false)
	merged := a.Floats(tokens * v.Out)
	be.Linear(merged, att, g.fc2W.w, g.fc2B.w, tokens, wide, v.Out, false)
	to := make([]int32, n/unit) // of the tokens in the order of their windows
	for i, o := range p.order.Host() {
		to[i] = in.pads[o]
	}
	be.Scatter(x, merged, be.UploadInts(to), v.Out)
}
