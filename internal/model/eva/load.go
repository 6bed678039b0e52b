package eva

import (
	"math"
	"slices"
	"strconv"

	"searchloop/internal/fail"
	"searchloop/internal/safetensors"
	"searchloop/internal/tensor"
)

// norm and linear are parameters; a linear's w is [out, in].
type norm struct{ w, b *tensor.Tensor }
type linear struct{ w, b *tensor.Tensor }

type block struct {
	norm1, inner norm   // before the attention, and before its last product
	qkv, proj    linear // query, key and value are one product
	norm2, ffn   norm
	gateUp, down linear // gate and value are one product
}

// Load reads the vision tower of a jina_clip folder into the memory of be.
func Load(dir string, be tensor.Backend) (*Tower, error) {
	c, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	m, err := safetensors.Open(dir)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	r := &reader{m: m, dir: dir, be: be}
	t := &Tower{be: be, cfg: c, arena: tensor.NewArena(be)}
	d, hidden := c.Width, c.hidden()
	t.patch = linear{r.tensor(r.read("patch_embed.proj.weight", d, 3, c.Patch, c.Patch)), r.tensor(r.read("patch_embed.proj.bias", d))}
	table := r.read("pos_embed", 1, c.tokens(), d)
	for i, v := range r.read("cls_token", 1, 1, d) {
		table[i] += v // row 0 is [CLS]'s
	}
	t.table = r.tensor(table)
	t.norm = r.norm("norm", d)
	for i := range c.Layers {
		if r.err != nil {
			break // before a long list of blocks is made for a file that has none
		}
		at := "blocks." + strconv.Itoa(i) + "."
		t.blocks = append(t.blocks, block{
			norm1: r.norm(at+"norm1", d), inner: r.norm(at+"attn.inner_attn_ln", d),
			qkv: r.qkv(at+"attn.", d, c.HeadWidth), proj: r.linear(d, d, at+"attn.proj"),
			norm2: r.norm(at+"norm2", d), ffn: r.norm(at+"mlp.ffn_ln", hidden),
			gateUp: r.linear(hidden, d, at+"mlp.w1", at+"mlp.w2"), down: r.linear(d, hidden, at+"mlp.w3"),
		})
	}
	if r.err != nil {
		return nil, r.err
	}
	t.freq, t.axis = frequencies(&c)
	return t, nil
}

// frequencies are those of a head's angles: the first half turns by a patch's row,
// the second by its column, both as if the grid had RopeSide patches an edge.
func frequencies(c *config) (freq []float32, axis []uint8) {
	quarter := c.HeadWidth / 4
	stretch := float64(c.RopeSide) / float64(c.side())
	for a := range uint8(2) {
		for i := range quarter {
			freq = append(freq, float32(stretch/math.Pow(10000, float64(i)/float64(quarter))))
			axis = append(axis, a)
		}
	}
	return freq, axis
}

// reader reads tensors of known shapes; the first error stays.
type reader struct {
	m   *safetensors.Model
	dir string
	be  tensor.Backend
	err error
}

func (r *reader) read(name string, shape ...int) (x []float32) {
	if r.err == nil {
		x, r.err = r.m.Shaped("vision_model."+name, shape...)
		r.err = fail.Wrap(fail.BadInput, op, r.dir, r.err)
	}
	return x
}

func (r *reader) tensor(x []float32) *tensor.Tensor {
	if r.err != nil {
		return nil
	}
	t := r.be.Alloc(len(x))
	r.be.Upload(t, x)
	return t
}

func (r *reader) norm(name string, n int) norm {
	return norm{r.tensor(r.read(name+".weight", n)), r.tensor(r.read(name+".bias", n))}
}

// linear joins layers that read the same input.
func (r *reader) linear(out, in int, names ...string) linear {
	var w, b []float32
	for _, n := range names {
		w, b = append(w, r.read(n+".weight", out, in)...), append(b, r.read(n+".bias", out)...)
	}
	return linear{r.tensor(w), r.tensor(b)}
}

// qkv joins the three projections. The model turns neighbouring numbers (2i, 2i+1)
// of a query or key, the engine numbers half a head apart: they are put there. A
// key has no bias.
func (r *reader) qkv(at string, d, head int) linear {
	q, k, v := r.read(at+"q_proj.weight", d, d), r.read(at+"k_proj.weight", d, d), r.read(at+"v_proj.weight", d, d)
	qb, vb := r.read(at+"q_bias", d), r.read(at+"v_bias", d)
	if r.err != nil {
		return linear{}
	}
	w := slices.Concat(halves(q, d, head), halves(k, d, head), v)
	b := slices.Concat(halves(qb, 1, head), make([]float32, d), vb)
	return linear{r.tensor(w), r.tensor(b)}
}

// halves moves the rows of x, width numbers each, from interleaved to half-split
// order, head by head.
func halves(x []float32, width, head int) []float32 {
	out := make([]float32, len(x))
	for row := range len(x) / width {
		in := row % head
		to := row - in + in/2 + in%2*head/2
		copy(out[to*width:(to+1)*width], x[row*width:])
	}
	return out
}
