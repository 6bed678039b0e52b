package bert

import (
	"slices"
	"strconv"

	"searchloop/internal/fail"
	"searchloop/internal/safetensors"
)

// norm and linear are a layer's parameters; a linear's w is [out, in].
type norm struct{ w, b []float32 }
type linear struct{ w, b []float32 }

type layer struct {
	qkv, out      linear // query, key and value are one product
	attentionNorm norm
	up, down      linear
	outputNorm    norm
}

// Load reads an encoder from a model folder.
func Load(dir string) (*Encoder, error) {
	c, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	p, err := readPooling(dir)
	if err != nil {
		return nil, err
	}
	m, err := safetensors.Open(dir)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	e := &Encoder{config: c, pooling: p}
	r := &reader{m: m, dir: dir}
	for _, prefix := range []string{"", "bert.", "roberta.", "0.auto_model."} {
		if _, _, ok := m.Info(prefix + "embeddings.word_embeddings.weight"); ok {
			r.prefix = prefix
		}
	}
	h := c.Hidden
	e.words = r.read("embeddings.word_embeddings.weight", c.Vocab, h)
	e.positions = r.read("embeddings.position_embeddings.weight", c.Positions, h)
	e.types = r.read("embeddings.token_type_embeddings.weight", c.Types, h)
	e.embedNorm = r.norm("embeddings.LayerNorm", h)
	for i := range c.Layers {
		if r.err != nil {
			break // before a long list of layers is made for a file that has none
		}
		at := "encoder.layer." + strconv.Itoa(i) + "."
		var l layer
		for _, name := range []string{"query", "key", "value"} {
			x := r.linear(at+"attention.self."+name, h, h)
			l.qkv.w, l.qkv.b = append(l.qkv.w, x.w...), append(l.qkv.b, x.b...)
		}
		l.out = r.linear(at+"attention.output.dense", h, h)
		l.attentionNorm = r.norm(at+"attention.output.LayerNorm", h)
		l.up = r.linear(at+"intermediate.dense", c.Intermediate, h)
		l.down = r.linear(at+"output.dense", h, c.Intermediate)
		l.outputNorm = r.norm(at+"output.LayerNorm", h)
		e.layers = append(e.layers, l)
	}
	if r.err != nil {
		return nil, r.err
	}
	// Every text is of type 0: one addition less for each token.
	for i := range c.Positions {
		for j := range h {
			e.positions[i*h+j] += e.types[j]
		}
	}
	return e, nil
}

// reader reads tensors of known shapes; the first error stays.
type reader struct {
	m           *safetensors.Model
	dir, prefix string
	err         error
}

func (r *reader) read(name string, shape ...int) []float32 {
	if r.err != nil {
		return nil
	}
	_, have, ok := r.m.Info(r.prefix + name)
	if !ok {
		r.err = fail.New(fail.BadInput, op, r.dir, "tensor %q is missing", r.prefix+name)
		return nil
	}
	if !slices.Equal(have, shape) {
		r.err = fail.New(fail.BadInput, op, r.dir, "tensor %q has shape %d where config.json asks for %d", r.prefix+name, have, shape)
		return nil
	}
	x, err := r.m.Float32(r.prefix + name)
	r.err = err
	return x
}

func (r *reader) linear(name string, out, in int) linear {
	return linear{r.read(name+".weight", out, in), r.read(name+".bias", out)}
}

// norm also knows the names that checkpoints converted from TensorFlow carry.
func (r *reader) norm(name string, n int) norm {
	if _, _, ok := r.m.Info(r.prefix + name + ".gamma"); ok {
		return norm{r.read(name+".gamma", n), r.read(name+".beta", n)}
	}
	return norm{r.read(name+".weight", n), r.read(name+".bias", n)}
}
