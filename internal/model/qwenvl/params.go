package qwenvl

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"searchloop/internal/tensor"
)

// Param is one tensor of the model, by its name in the checkpoint. W is the
// model's own weight: writing to it changes the model. G is its gradient, nil
// for what is frozen.
type Param struct {
	Name    string
	Shape   []int
	W, G    *tensor.Tensor
	NoDecay bool // norms and biases: weight decay does not apply
	Vision  bool

	dtype string // in the file
	off   int    // in the model's block of weights
}

// weight is a matrix or vector of the model as the layers use it; neighbours in
// memory that the checkpoint keeps apart (q, k, v; gate, up) are one weight.
type weight struct {
	off, n int
	w, g   *tensor.Tensor // g is nil without gradients
}

type layer struct {
	norm1, norm2, qNorm, kNorm weight
	qkv, o, gateUp, down       weight
	q, kv                      weight  // the two parts of qkv
	sparse                     *sparse // instead of gateUp and down
	qkvB, qB, kvB              weight  // biases; none but in Qwen2's family
}

// block of the vision tower. In Qwen2.5-VL's the norms have no biases and fc1 is
// gate and up together.
type block struct {
	norm1W, norm1B, norm2W, norm2B weight
	qkvW, qkvB, projW, projB       weight
	fc1W, fc1B, fc2W, fc2B         weight
}

type merger struct {
	normW, normB, fc1W, fc1B, fc2W, fc2B weight
	after                                bool // the norm comes after the patches are joined
}

type tower struct {
	patchW, patchB, pos weight
	blocks              []block
	merger              merger
	deepstack           []merger
}

// Model is a model's weights and the working memory of its passes.
type Model struct {
	cfg    Config
	be     tensor.Backend
	params []*Param // sorted by name
	size   int      // values of all of them
	w, g   *tensor.Tensor

	embed, norm, head weight // head is embed when tied
	layers            []layer
	vision            *tower
	frozenVision      bool
	recompute         Recompute

	freq, visionFreq []float32
	axis, visionAxis []uint8

	source source

	spaces []*workspace // not in use by a pass
	gen    *generator
	mu     sync.Mutex // guards gen and the caches' pages
}

// source is how the model was stored, so that Save repeats it.
type source struct {
	config []byte
	index  []byte            // model.safetensors.index.json, if any
	files  map[string]string // parameter → shard, when there is an index
	meta   map[string]string
	extra  []string // a tied head that is stored all the same
}

// Config is the configuration the model was made with.
func (m *Model) Config() Config { return m.cfg }

// builder lays the weights out in one block, in the order of its calls.
type builder struct {
	m   *Model
	off int
}

func (b *builder) add(name string, shape ...int) weight {
	n := 1
	for _, d := range shape {
		n *= d
	}
	b.m.params = append(b.m.params, &Param{
		Name: name, Shape: shape, off: b.off, NoDecay: len(shape) == 1, Vision: strings.Contains(name, "visual."),
	})
	w := weight{off: b.off, n: n}
	b.off += n
	return w
}

// join is the run that neighbouring weights make.
func join(ws ...weight) weight {
	j := ws[0]
	for _, w := range ws[1:] {
		if w.off != j.off+j.n {
			panic("qwenvl: weights to join are not neighbours")
		}
		j.n += w.n
	}
	return j
}

// plan lays the model out without memory for its weights.
func plan(cfg Config) *Model {
	m := &Model{cfg: cfg}
	b := &builder{m: m}
	prefix, head := "model.", "lm_head.weight"
	if cfg.HasVision() && !cfg.ShortNames {
		prefix = "model.language_model."
	}
	h, d := cfg.Hidden, cfg.HeadDim
	m.embed = b.add(prefix+"embed_tokens.weight", cfg.Vocab, h)
	m.layers = make([]layer, cfg.Layers)
	for i := range m.layers {
		p, l := fmt.Sprintf("%slayers.%d.", prefix, i), &m.layers[i]
		l.norm1 = b.add(p+"input_layernorm.weight", h)
		l.q = b.add(p+"self_attn.q_proj.weight", cfg.Heads*d, h)
		l.kv = join(b.add(p+"self_attn.k_proj.weight", cfg.KVHeads*d, h), b.add(p+"self_attn.v_proj.weight", cfg.KVHeads*d, h))
		l.qkv = join(l.q, l.kv)
		switch cfg.Family {
		case Qwen3:
			l.qNorm = b.add(p+"self_attn.q_norm.weight", d)
			l.kNorm = b.add(p+"self_attn.k_norm.weight", d)
		case Qwen2:
			l.qB = b.add(p+"self_attn.q_proj.bias", cfg.Heads*d)
			l.kvB = join(b.add(p+"self_attn.k_proj.bias", cfg.KVHeads*d), b.add(p+"self_attn.v_proj.bias", cfg.KVHeads*d))
			l.qkvB = join(l.qB, l.kvB)
		}
		l.o = b.add(p+"self_attn.o_proj.weight", h, cfg.Heads*d)
		l.norm2 = b.add(p+"post_attention_layernorm.weight", h)
		if cfg.Sparse(i) {
			l.sparse = b.addExperts(p+"mlp.", &cfg)
			continue
		}
		l.gateUp = join(b.add(p+"mlp.gate_proj.weight", cfg.Intermediate, h),
			b.add(p+"mlp.up_proj.weight", cfg.Intermediate, h))
		l.down = b.add(p+"mlp.down_proj.weight", h, cfg.Intermediate)
	}
	m.norm = b.add(prefix+"norm.weight", h)
	m.head = m.embed
	if !cfg.Tied {
		m.head = b.add(head, cfg.Vocab, h)
	}
	if cfg.HasVision() {
		m.vision = buildTower(b, &cfg)
	}
	slices.SortFunc(m.params, func(x, y *Param) int { return strings.Compare(x.Name, y.Name) })
	m.size = b.off
	return m
}

// build makes a model of the right shapes with zero weights, on be.
func build(be tensor.Backend, cfg Config) *Model {
	m := plan(cfg)
	m.be = be
	m.w = m.be.Alloc(m.size)
	for _, p := range m.params {
		p.W = m.w.View(p.off, product(p.Shape))
		p.dtype = "F32"
	}
	m.eachWeight(func(w *weight) { w.w = m.w.View(w.off, w.n) })
	m.freq, m.axis = frequencies(cfg.RopeTheta, cfg.HeadDim), cfg.axes()
	if v := &cfg.Vision; v.Depth > 0 {
		f := frequencies(v.RopeTheta, v.Hidden/v.Heads/2)
		m.visionFreq = append(slices.Clone(f), f...)
		m.visionAxis = make([]uint8, 2*len(f))
		for i := range f {
			m.visionAxis[len(f)+i] = 1
		}
	}
	return m
}

func buildTower(b *builder, cfg *Config) *tower {
	v, t := &cfg.Vision, &tower{}
	p := "model.visual."
	if cfg.ShortNames {
		p = "visual."
	}
	d := v.Hidden
	linear := func(name string, out, in int) (weight, weight) {
		return b.add(name+".weight", out, in), b.add(name+".bias", out)
	}
	norm := func(name string, n int) (weight, weight) {
		return b.add(name+".weight", n), b.add(name+".bias", n)
	}
	merge := func(name string, after bool) merger {
		m, wide := merger{after: after}, d*cfg.mergeUnit()
		n := d
		if after {
			n = wide
		}
		m.normW, m.normB = norm(name+".norm", n)
		m.fc1W, m.fc1B = linear(name+".linear_fc1", wide, wide)
		m.fc2W, m.fc2B = linear(name+".linear_fc2", v.Out, wide)
		return m
	}
	if v.windowed() {
		return buildWindowed(b, cfg, p, linear)
	}
	t.patchW = b.add(p+"patch_embed.proj.weight", d, v.Channels, cfg.TemporalPatch, cfg.PatchSize, cfg.PatchSize)
	t.patchB = b.add(p+"patch_embed.proj.bias", d)
	t.pos = b.add(p+"pos_embed.weight", v.PositionSide*v.PositionSide, d)
	t.blocks = make([]block, v.Depth)
	for i := range t.blocks {
		q, k := fmt.Sprintf("%sblocks.%d.", p, i), &t.blocks[i]
		k.norm1W, k.norm1B = norm(q+"norm1", d)
		k.qkvW, k.qkvB = linear(q+"attn.qkv", 3*d, d)
		k.projW, k.projB = linear(q+"attn.proj", d, d)
		k.norm2W, k.norm2B = norm(q+"norm2", d)
		k.fc1W, k.fc1B = linear(q+"mlp.linear_fc1", v.Intermediate, d)
		k.fc2W, k.fc2B = linear(q+"mlp.linear_fc2", d, v.Intermediate)
	}
	t.merger = merge(p+"merger", false)
	for i := range v.Deepstack {
		t.deepstack = append(t.deepstack, merge(fmt.Sprintf("%sdeepstack_merger_list.%d", p, i), true))
	}
	return t
}

const patchName = "patch_embed.proj.weight"

// buildWindowed is Qwen2.5-VL's tower.
func buildWindowed(b *builder, cfg *Config, p string, linear func(name string, out, in int) (weight, weight)) *tower {
	v, t := &cfg.Vision, &tower{}
	d, mid, wide := v.Hidden, v.Intermediate, v.Hidden*cfg.mergeUnit()
	patch := []int{d, v.Channels, cfg.TemporalPatch, cfg.PatchSize, cfg.PatchSize}
	if cfg.patchWidth > 0 {
		patch = []int{d, cfg.patchWidth}
	}
	t.patchW = b.add(p+patchName, patch...)
	t.blocks = make([]block, v.Depth)
	for i := range t.blocks {
		q, k := fmt.Sprintf("%sblocks.%d.", p, i), &t.blocks[i]
		k.norm1W = b.add(q+"norm1.weight", d)
		k.qkvW, k.qkvB = linear(q+"attn.qkv", 3*d, d)
		k.projW, k.projB = linear(q+"attn.proj", d, d)
		k.norm2W = b.add(q+"norm2.weight", d)
		k.fc1W = join(b.add(q+"mlp.gate_proj.weight", mid, d), b.add(q+"mlp.up_proj.weight", mid, d))
		k.fc1B = join(b.add(q+"mlp.gate_proj.bias", mid), b.add(q+"mlp.up_proj.bias", mid))
		k.fc2W, k.fc2B = linear(q+"mlp.down_proj", d, mid)
	}
	t.merger.normW = b.add(p+"merger.ln_q.weight", d)
	t.merger.fc1W, t.merger.fc1B = linear(p+"merger.mlp.0", wide, wide)
	t.merger.fc2W, t.merger.fc2B = linear(p+"merger.mlp.2", v.Out, wide)
	return t
}

// eachWeight visits the weights the layers hold.
func (m *Model) eachWeight(each func(*weight)) {
	f := func(w *weight) {
		if w.n > 0 {
			each(w)
		}
	}
	f(&m.embed)
	f(&m.norm)
	f(&m.head)
	for i := range m.layers {
		l := &m.layers[i]
		for _, w := range []*weight{&l.norm1, &l.norm2, &l.qNorm, &l.kNorm, &l.qkv, &l.q, &l.kv, &l.qkvB, &l.qB, &l.kvB, &l.o, &l.gateUp, &l.down} {
			f(w)
		}
		if l.sparse != nil {
			l.sparse.each(f)
		}
	}
	m.eachVisionWeight(f)
}

func (m *Model) eachVisionWeight(f func(*weight)) {
	t := m.vision
	if t == nil {
		return
	}
	all := []*weight{&t.patchW, &t.patchB, &t.pos}
	for i := range t.blocks {
		k := &t.blocks[i]
		all = append(all, &k.norm1W, &k.norm1B, &k.norm2W, &k.norm2B, &k.qkvW, &k.qkvB, &k.projW, &k.projB,
			&k.fc1W, &k.fc1B, &k.fc2W, &k.fc2B)
	}
	mergers := []*merger{&t.merger}
	for i := range t.deepstack {
		mergers = append(mergers, &t.deepstack[i])
	}
	for _, g := range mergers {
		all = append(all, &g.normW, &g.normB, &g.fc1W, &g.fc1B, &g.fc2W, &g.fc2B)
	}
	for _, w := range all {
		if w.n > 0 {
			f(w)
		}
	}
}

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// Tensors are the parameters as Params gives them, without memory for gradients.
func (m *Model) Tensors() []*Param { return m.params }

// Params are the model's parameters, sorted by name, with their gradients. The
// first call, or the first Backward, allocates the gradients.
func (m *Model) Params() []*Param {
	m.wantGradients()
	return m.params
}

// Free gives the memory of weights, gradients and passes back to the back end. The
// model is of no use any more.
func (m *Model) Free() {
	for _, w := range m.spaces {
		w.arena.Free()
	}
	m.spaces = nil
	m.be.Free(m.w)
	if m.g != nil {
		m.be.Free(m.g)
	}
}

// FreezeVision excludes the vision tower from training (or includes it again):
// its gradients are neither computed nor there. Gradients that Params returned
// before are no longer the model's.
func (m *Model) FreezeVision(frozen bool) {
	m.frozenVision = frozen
	if m.g != nil {
		m.g = nil
		m.wantGradients()
	}
}

// ZeroGrad sets all gradients to zero.
func (m *Model) ZeroGrad() {
	m.wantGradients()
	m.be.Zero(m.g)
}

func (m *Model) wantGradients() {
	if m.g != nil {
		return
	}
	m.g = m.be.AllocFull(m.w.Len())
	m.eachWeight(func(w *weight) { w.g = m.g.View(w.off, w.n) })
	if m.frozenVision {
		m.eachVisionWeight(func(w *weight) { w.g = nil })
	}
	for _, p := range m.params {
		p.G = nil
		if !(p.Vision && m.frozenVision) {
			p.G = m.g.View(p.off, p.W.Len())
		}
	}
}
