package bert

import (
	"strconv"

	"searchloop/internal/fail"
	"searchloop/internal/gemm"
	"searchloop/internal/safetensors"
	"searchloop/internal/vec"
)

// norm and linear are a layer's parameters. A linear's w is [out, in], packed once:
// texts come in small chunks, for each of which packing would be done anew.
type norm struct{ w, b []float32 }
type linear struct {
	w *gemm.Packed
	b []float32
}

type layer struct {
	qkv, out      linear // query, key and value are one product
	attentionNorm norm
	up, down      linear
	outputNorm    norm
}

// wordEmbeddings is the tensor that every checkpoint has.
const wordEmbeddings = "embeddings.word_embeddings"

// naming is how a family of checkpoints calls its tensors.
type naming struct {
	embedNorm                                string
	layer                                    string   // before the number
	qkv                                      []string // in one matrix, or in three
	out, attentionNorm, up, down, outputNorm string
}

var namings = []naming{
	{"embeddings.LayerNorm", "encoder.layer.", []string{"attention.self.query", "attention.self.key", "attention.self.value"},
		"attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"},
	// Jina's.
	{"emb_ln", "encoder.layers.", []string{"mixer.Wqkv"}, "mixer.out_proj", "norm1", "mlp.fc1", "mlp.fc2", "norm2"},
}

// matrix is a linear's parameters as they are read, w [out, in].
type matrix struct{ w, b []float32 }

func (m matrix) packed() linear {
	if len(m.b) == 0 {
		return linear{} // what was not read
	}
	return linear{gemm.Pack(m.w, len(m.b), len(m.w)/len(m.b)), m.b}
}

// matrices are a layer's parameters as they are read.
type matrices struct {
	qkv, out      matrix
	attentionNorm norm
	up, down      matrix
	outputNorm    norm
}

// stem is what comes before the layers.
type stem struct {
	config    config
	pooling   pooling
	words     []float32 // [vocab, hidden]
	positions []float32 // [positions, hidden], type 0 added; nil: rotary
	types     []float32
	embedNorm norm
}

// Load reads an encoder from a model folder, with one of its adapters merged; ""
// means none. Of a jina_clip folder it is the text tower.
func Load(dir, adapter string) (*Encoder, error) {
	e := &Encoder{}
	var err error
	e.stem, err = read(dir, adapter, func(m matrices) error {
		e.layers = append(e.layers, layer{m.qkv.packed(), m.out.packed(), m.attentionNorm, m.up.packed(), m.down.packed(), m.outputNorm})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if e.config.rotary() {
		e.turns = e.config.turns()
	}
	return e, nil
}

// read reads a folder; keep gets one layer after the other.
func read(dir, adapter string, keep func(matrices) error) (stem, error) {
	c, err := readConfig(dir)
	if err != nil {
		return stem{}, err
	}
	p, err := readPooling(dir)
	if err != nil {
		return stem{}, err
	}
	m, err := safetensors.Open(dir)
	if err != nil {
		return stem{}, err
	}
	defer m.Close()
	e := stem{config: c, pooling: p}
	r := &reader{m: m, dir: dir}
	r.findPrefix()
	if err := r.chooseAdapter(&c, adapter); err != nil {
		return stem{}, err
	}
	n := r.naming()
	h := c.Hidden
	e.words = r.embedding(wordEmbeddings, c.Vocab, h)
	e.types = r.embedding("embeddings.token_type_embeddings", c.Types, h)
	if !c.rotary() {
		e.positions = r.read("embeddings.position_embeddings.weight", c.Positions, h)
	}
	e.embedNorm = r.norm(n.embedNorm, h)
	for i := range c.Layers {
		if r.err != nil {
			break // before a long list of layers is made for a file that has none
		}
		at := n.layer + strconv.Itoa(i) + "."
		var l matrices
		var names []string
		for _, name := range n.qkv {
			names = append(names, at+name)
		}
		l.qkv = r.linear(3*h, h, names...)
		l.out = r.linear(h, h, at+n.out)
		l.attentionNorm = r.norm(at+n.attentionNorm, h)
		l.up = r.linear(c.Intermediate, h, at+n.up)
		l.down = r.linear(h, c.Intermediate, at+n.down)
		l.outputNorm = r.norm(at+n.outputNorm, h)
		if r.err == nil {
			r.err = keep(l)
		}
	}
	if r.files != nil {
		if err := r.files.close(); r.err == nil {
			r.err = err
		}
	}
	if r.err != nil {
		return stem{}, r.err
	}
	// Every text is of type 0: one addition less for each token.
	for at := 0; at < len(e.positions); at += h {
		vec.Add(e.positions[at:at+h], e.positions[at:at+h], e.types[:h])
	}
	return e, nil
}

// reader reads tensors of known shapes; the first error stays.
type reader struct {
	m           *safetensors.Model
	dir, prefix string
	err         error

	adapter, adapters, rank int // adapter -1: none
	scale                   float32
	files                   *adapterFiles // the adapter, where it is in files of its own
}

// findPrefix sets what stands before the names of the checkpoint's tensors.
func (r *reader) findPrefix() {
	for _, prefix := range []string{"", "bert.", "roberta.", "0.auto_model.", "text_model.transformer.", "text_model.transformer.roberta."} {
		for _, name := range []string{".weight", adapted + "original"} {
			if _, _, ok := r.m.Info(prefix + wordEmbeddings + name); ok {
				r.prefix = prefix
				return
			}
		}
	}
}

// naming is the one that the first layer's norm is found by; BERT's if none is.
func (r *reader) naming() naming {
	for _, n := range namings {
		if _, _, ok := r.m.Info(r.prefix + n.layer + "0." + n.outputNorm + ".weight"); ok {
			return n
		}
	}
	return namings[0]
}

func (r *reader) read(name string, shape ...int) (x []float32) {
	if r.err == nil {
		x, r.err = r.m.Shaped(r.prefix+name, shape...)
		r.err = fail.Wrap(fail.BadInput, op, r.dir, r.err)
	}
	return x
}

// linear joins layers of equal size that read the same input.
func (r *reader) linear(out, in int, names ...string) matrix {
	var w, b []float32
	for _, n := range names {
		w = append(w, r.weight(n, out/len(names), in, "lora_B", "lora_A")...)
		b = append(b, r.read(n+".bias", out/len(names))...)
	}
	if r.err != nil {
		return matrix{}
	}
	return matrix{w, b}
}

func (r *reader) embedding(name string, rows, dim int) []float32 {
	return r.weight(name, rows, dim, "lora_A", "lora_B")
}

// norm also knows the names that checkpoints converted from TensorFlow carry.
func (r *reader) norm(name string, n int) norm {
	if _, _, ok := r.m.Info(r.prefix + name + ".gamma"); ok {
		return norm{r.read(name+".gamma", n), r.read(name+".beta", n)}
	}
	return norm{r.read(name+".weight", n), r.read(name+".bias", n)}
}
