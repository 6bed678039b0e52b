package eva

import (
	"math"
	"slices"
	"strconv"

	"searchloop/internal/cuda"
	"searchloop/internal/fail"
	"searchloop/internal/model/packs"
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

// Load reads the vision tower of a jina_clip folder into the memory of the processor.
func Load(dir string) (*Tower, error) {
	return loadInto(dir, &tensor.Shared{Encoding: tensor.CPU.(tensor.Encoding)})
}

// packImages are computed at once on a device.
const packImages = 12

// LoadOn reads it into the memory of a device, where the images of all calls are joined
// to packs; Close gives the memory back.
func LoadOn(on *tensor.Shared, dir string) (t *Tower, err error) {
	on.Lock()
	defer on.Unlock()
	defer cuda.Guard(&err)
	if t, err = loadInto(dir, on); err != nil {
		return nil, err
	}
	t.pack = packImages
	if c := &t.cfg; on.Widths() > 1 && (c.Width%8 != 0 || c.HeadWidth%8 != 0 || c.HeadWidth > 128 || t.hidden > 8*1024) {
		err := fail.WithHint(fail.New(fail.Usage, op, dir, "width %d in heads of %d: on a GPU they must be multiples of 8, a head at most 128 and the perceptron's width 8192", c.Width, c.HeadWidth), "use --device cpu")
		return nil, err
	}
	t.line = packs.Start(packs.Work[[]float32]{Dim: t.cfg.Dim, Room: packImages, Most: packImages, Size: func([]float32) int { return 1 }, Begin: t.begin})
	return t, nil
}

// padded is n brought to a multiple of what the back end wants.
func padded(be tensor.Encoding, n int) int { return (n + be.Widths() - 1) / be.Widths() * be.Widths() }

// widened is x, rows of the given width, with zeros after each up to another.
func widened(x []float32, width, to int) []float32 {
	if width == to || len(x) == 0 {
		return x
	}
	out := make([]float32, len(x)/width*to)
	for r := range len(x) / width {
		copy(out[r*to:], x[r*width:(r+1)*width])
	}
	return out
}

func loadInto(dir string, be *tensor.Shared) (*Tower, error) {
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
	t := &Tower{be: be, cfg: c, arena: tensor.NewArena(be), hidden: padded(be, c.hidden()), seen: padded(be, 3*c.Patch*c.Patch)}
	d, hidden := c.Width, c.hidden()
	t.patch = linear{r.tensor(widened(r.read("patch_embed.proj.weight", d, 3, c.Patch, c.Patch), 3*c.Patch*c.Patch, t.seen)), r.tensor(r.read("patch_embed.proj.bias", d))}
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
			norm2: r.norm(at+"norm2", d), ffn: r.wideNorm(at+"mlp.ffn_ln", hidden, t.hidden),
			gateUp: r.gateUp(hidden, d, t.hidden, at+"mlp.w1", at+"mlp.w2"), down: r.narrowing(d, hidden, t.hidden, at+"mlp.w3"),
		})
	}
	if r.err != nil {
		return nil, r.err
	}
	t.held = r.held
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

	held []*tensor.Tensor
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
	r.held = append(r.held, t)
	return t
}

func (r *reader) norm(name string, n int) norm {
	return norm{r.tensor(r.read(name+".weight", n)), r.tensor(r.read(name+".bias", n))}
}

// wideNorm is a norm of n numbers with zeros up to width.
func (r *reader) wideNorm(name string, n, width int) norm {
	return norm{r.tensor(widened(r.read(name+".weight", n), n, width)), r.tensor(widened(r.read(name+".bias", n), n, width))}
}

func (r *reader) linear(out, in int, name string) linear {
	return linear{r.tensor(r.read(name+".weight", out, in)), r.tensor(r.read(name+".bias", out))}
}

// gateUp joins two layers that read the same input, each with zeros from out up to width.
func (r *reader) gateUp(out, in, width int, names ...string) linear {
	var w, b []float32
	for _, n := range names {
		w = append(w, widened(r.read(n+".weight", out, in), out*in, width*in)...)
		b = append(b, widened(r.read(n+".bias", out), out, width)...)
	}
	return linear{r.tensor(w), r.tensor(b)}
}

// narrowing is linear whose input has zeros from in up to width.
func (r *reader) narrowing(out, in, width int, name string) linear {
	return linear{r.tensor(widened(r.read(name+".weight", out, in), in, width)), r.tensor(r.read(name+".bias", out))}
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
