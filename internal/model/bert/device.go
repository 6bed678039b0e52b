package bert

import (
	"cmp"
	"math"

	"searchloop/internal/cuda"
	"searchloop/internal/fail"
	"searchloop/internal/model/packs"
	"searchloop/internal/tensor"
)

// Device is an Encoder whose passes a back end computes. Sequences of all callers are
// joined, in the order in which they come and without padding, to packs of a fixed
// number of rows. Every product has the pack's rows, whether it is full or not: so a
// sequence's vector is bit-identical alone or in any pack.
type Device struct {
	stem
	be     *tensor.Shared
	rows   int // of a pack
	act    tensor.Act
	freq   []float32 // of rotary positions
	weight struct {
		words, places *tensor.Tensor
		norm          normOn
		layers        []layerOn
	}
	held  []*tensor.Tensor
	held8 []*tensor.Eighth
	room
	line *packs.Line[[]int32]
}

type normOn struct{ w, b *tensor.Tensor }
type linearOn struct{ w, b *tensor.Tensor }

type layerOn struct {
	qkv, out      linearOn
	attentionNorm normOn
	up, down      linearOn
	outputNorm    normOn

	qkv8, up8, down8 *tensor.Eighth // in their place
}

// room is what a pass writes.
type room struct {
	x, mixed *tensor.Tensor // [rows, hidden]
	qkv      *tensor.Tensor // [rows, 3·hidden]
	up       *tensor.Tensor // [rows, intermediate]
	cos, sin *tensor.Tensor // [rows, half a head], of rotary models
	out      *tensor.Tensor // float32 [sequences, hidden]
	x8, up8  *tensor.Eighth // as x and up, or nil
}

// Options change how a Device computes.
type Options struct {
	Rows int // tokens of a pack; 0: PackRows
	// Products says how those of the perceptron and of queries, keys and values are
	// taken: in 8 bits they are faster and less exact.
	Products tensor.Products
}

// Values in e4m3 are at most 448 divided by their scale. What comes out of a LayerNorm
// or of GELU is some tens at most; weights have a scale of their own each.
const (
	normScale = 8
	actScale  = 4
)

// PackRows is the number of rows of a pack, if nothing else is said: 128 for each of the
// 132 multiprocessors of an H100 or H200.
const PackRows = 16896

// LoadOn is Load into the memory of be. Close gives the memory back.
func LoadOn(be *tensor.Shared, dir, adapter string, o Options) (d *Device, err error) {
	d = &Device{be: be}
	be.Lock()
	defer be.Unlock()
	defer func() {
		if err != nil {
			d.free()
			d = nil
		}
	}()
	defer cuda.Guard(&err)
	on := func(m matrix) linearOn { return linearOn{d.keep(m.w), d.keep(m.b)} }
	norm := func(n norm) normOn { return normOn{d.keep(n.w), d.keep(n.b)} }
	c, err := readConfig(dir)
	if err == nil {
		err = fits(be, &c, dir, o)
	}
	if err != nil {
		return d, err
	}
	d.stem, err = read(dir, adapter, func(m matrices) error {
		l := layerOn{out: on(m.out), attentionNorm: norm(m.attentionNorm), outputNorm: norm(m.outputNorm)}
		if o.Products != tensor.OwnProducts {
			l.qkv8, l.up8, l.down8 = d.eighth(m.qkv, o.Products), d.eighth(m.up, o.Products), d.eighth(m.down, o.Products)
			l.qkv.b, l.up.b, l.down.b = d.keep(m.qkv.b), d.keep(m.up.b), d.keep(m.down.b)
		} else {
			l.qkv, l.up, l.down = on(m.qkv), on(m.up), on(m.down)
		}
		d.weight.layers = append(d.weight.layers, l)
		return nil
	})
	if err != nil {
		return d, err
	}
	d.weight.words, d.weight.norm = d.keep(d.words), norm(d.embedNorm)
	if places := d.positions; places != nil {
		d.weight.places = d.keep(places)
	} else {
		d.weight.places = d.keep(d.types[:d.config.Hidden])
	}
	d.words, d.positions = nil, nil // of the host
	if d.rows = cmp.Or(o.Rows, PackRows); d.rows < d.MaxTokens() {
		return d, fail.New(fail.Usage, op, dir, "packs of %d tokens are too small for texts of %d", d.rows, d.MaxTokens())
	}
	d.act = map[string]tensor.Act{"gelu": tensor.GELU, "relu": tensor.ReLU}[d.config.Act]
	if d.config.Act != "gelu" && d.config.Act != "relu" {
		d.act = tensor.TanhGELU
	}
	d.makeRoom(o.Products)
	d.line = packs.Start(packs.Work[[]int32]{Dim: d.Dim(), Room: d.rows, Most: d.mostSequences(), Size: func(seq []int32) int { return len(seq) }, Begin: d.forward})
	return d, nil
}

// fits refuses a model that be's kernels do not serve.
func fits(be tensor.Encoding, c *config, dir string, o Options) error {
	head := c.Hidden / c.Heads
	if o.Products == tensor.ByteProducts && (!be.HasBytes() || c.Hidden%16 != 0 || c.Intermediate%tensor.ByteBlock != 0) {
		return fail.WithHint(fail.New(fail.Usage, op, dir, "products in integers need a GPU of compute capability 9.0, a width that is a multiple of 16 and one inside the perceptron that is a multiple of %d (%d, %d)",
			tensor.ByteBlock, c.Hidden, c.Intermediate), "use --products bf16")
	}
	if o.Products == tensor.E4M3Products && (!be.HasEighths() || c.Hidden%16 != 0 || c.Intermediate%16 != 0) {
		return fail.WithHint(fail.New(fail.Usage, op, dir, "products in 8 bits need a GPU of compute capability 8.9 or later, and widths that are multiples of 16 (%d, %d)",
			c.Hidden, c.Intermediate), "use --products bf16")
	}
	if be.Widths() == 1 || c.Hidden%8 == 0 && c.Hidden <= 2048 && c.Intermediate%8 == 0 && head%8 == 0 && head <= 128 {
		return nil
	}
	return fail.WithHint(fail.New(fail.Usage, op, dir, "width %d in heads of %d and %d inside the perceptron: on a GPU they must be multiples of 8, the width at most 2048 and a head 128",
		c.Hidden, head, c.Intermediate), "use --device cpu")
}

func (d *Device) take(t *tensor.Tensor) *tensor.Tensor {
	d.held = append(d.held, t)
	return t
}

func (d *Device) keep(x []float32) *tensor.Tensor {
	t := d.take(d.be.Alloc(len(x)))
	d.be.Upload(t, x)
	return t
}

func (d *Device) takeEighth(t *tensor.Eighth) *tensor.Eighth {
	d.held8 = append(d.held8, t)
	return t
}

// eighth keeps a weight in 8 bits: as e4m3, its largest number being the largest there
// is, or in integers with a scale for every row.
func (d *Device) eighth(m matrix, p tensor.Products) *tensor.Eighth {
	var t *tensor.Eighth
	if p == tensor.ByteProducts {
		t = d.takeEighth(d.be.AllocBytes(len(m.w), len(m.w)/len(m.b)))
	} else {
		var most float32
		for _, x := range m.w {
			most = max(most, x, -x)
		}
		t = d.takeEighth(d.be.AllocEighth(len(m.w), 448/max(most, 1e-30)))
	}
	d.be.UploadEighth(t, m.w)
	return t
}

func (d *Device) makeRoom(p tensor.Products) {
	c, be := &d.config, d.be
	d.x, d.mixed = d.take(be.Alloc(d.rows*c.Hidden)), d.take(be.Alloc(d.rows*c.Hidden))
	d.qkv = d.take(be.Alloc(d.rows * 3 * c.Hidden))
	switch p {
	case tensor.ByteProducts:
		d.x8, d.up8 = d.takeEighth(be.AllocBytes(d.rows*c.Hidden, c.Hidden)), d.takeEighth(be.AllocBytes(d.rows*c.Intermediate, tensor.ByteBlock))
	case tensor.E4M3Products:
		d.x8, d.up8 = d.takeEighth(be.AllocEighth(d.rows*c.Hidden, normScale)), d.takeEighth(be.AllocEighth(d.rows*c.Intermediate, actScale))
	default:
		d.up = d.take(be.Alloc(d.rows * c.Intermediate))
	}
	d.out = d.take(be.AllocFull(d.mostSequences() * c.Hidden))
	if c.rotary() {
		half := c.Hidden / c.Heads / 2
		for i := range half {
			d.freq = append(d.freq, float32(1/math.Pow(c.RotaryBase, float64(2*i)/float64(2*half))))
		}
		d.cos, d.sin = d.take(be.AllocFull(d.rows*half)), d.take(be.AllocFull(d.rows*half))
	}
}

// mostSequences bounds those of a pack, and with them the memory of their vectors.
func (d *Device) mostSequences() int { return max(1, d.rows/8) }

func (d *Device) free() {
	for _, t := range d.held {
		d.be.Free(t)
	}
	for _, t := range d.held8 {
		d.be.FreeEighth(t)
	}
	d.held, d.held8 = nil, nil
}

// Close ends the work and gives the memory back. Nothing may be encoded any more.
func (d *Device) Close() (err error) {
	defer cuda.Guard(&err)
	d.line.Close()
	d.be.Lock()
	defer d.be.Unlock()
	d.free()
	return nil
}

// Encode is Encoder.Encode: vectors of seqs, [len(seqs), Dim]. Calls from many
// goroutines are what fills packs.
func (d *Device) Encode(seqs [][]int32) ([]float32, error) {
	if err := d.check(seqs); err != nil {
		return nil, err
	}
	return d.line.Do(seqs)
}

// forward begins a pack.
func (d *Device) forward(seqs [][]int32) (vecs []float32, wait func()) {
	d.be.Lock()
	defer d.be.Unlock()
	var list, at []int32
	ends := []int32{0}
	for _, q := range seqs {
		list, at = d.config.place(list, at, q)
		ends = append(ends, int32(len(list)))
	}
	be, c := d.be, &d.config
	h, used, rows := c.Hidden, len(list), d.rows
	head := h / c.Heads
	ids, places, cu := be.UploadInts(list), be.UploadInts(at), be.UploadInts(ends)
	spots := places
	if c.rotary() {
		be.RopeTable(d.cos, d.sin, places, used, d.freq, make([]uint8, len(d.freq)))
		spots = be.UploadInts(make([]int32, used))
	}
	be.EmbedNorm(d.x, d.x8, d.weight.words, d.weight.places, ids, spots, d.weight.norm.w, d.weight.norm.b, h, c.Eps)
	part := func(i int) tensor.Rows { return tensor.Rows{T: d.qkv, Off: i * h, Stride: 3 * h} }
	heads := tensor.Heads{Heads: c.Heads, KVHeads: c.Heads, Dim: head, Scale: float32(1 / math.Sqrt(float64(head))), Longest: d.MaxTokens()}
	for i := range d.weight.layers {
		l := &d.weight.layers[i]
		if d.x8 != nil {
			be.LinearEighth(d.qkv, d.x8, l.qkv8, l.qkv.b, rows, h, 3*h, false)
		} else {
			be.Linear(d.qkv, d.x, l.qkv.w, l.qkv.b, rows, h, 3*h, false)
		}
		if c.rotary() {
			be.Rope(part(0), d.cos, d.sin, used, 2*c.Heads, head, false) // queries, then keys
		}
		be.Attention(d.mixed, nil, part(0), part(1), part(2), cu, nil, heads)
		be.Linear(d.x, d.mixed, l.out.w, l.out.b, rows, h, h, true)
		be.LayerNormIn(d.x, d.x8, l.attentionNorm.w, l.attentionNorm.b, used, h, c.Eps)
		if d.x8 != nil {
			be.LinearActEighth(d.up8, d.x8, l.up8, l.up.b, rows, h, c.Intermediate, d.act)
			be.LinearEighth(d.x, d.up8, l.down8, l.down.b, rows, c.Intermediate, h, true)
		} else {
			be.LinearAct(d.up, d.x, l.up.w, l.up.b, rows, h, c.Intermediate, d.act)
			be.Linear(d.x, d.up, l.down.w, l.down.b, rows, c.Intermediate, h, true)
		}
		be.LayerNormIn(d.x, d.x8, l.outputNorm.w, l.outputNorm.b, used, h, c.Eps)
	}
	vecs = make([]float32, len(seqs)*h)
	out := d.out.View(0, len(vecs))
	be.Pool(out, d.x, cu, h, d.pooling.cls, d.pooling.normalise)
	return vecs, be.Later(vecs, out)
}
