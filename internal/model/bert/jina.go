package bert

import (
	"encoding/json"
	"math"
	"slices"

	"searchloop/internal/fail"
	"searchloop/internal/gemm"
	"searchloop/internal/par"
	"searchloop/internal/vec"
)

// backbones are the configurations, as published, that a jina_clip folder refers
// to by name: its own config.json says of the text tower only what differs.
var backbones = map[string]string{
	"jinaai/jina-embeddings-v3": `{"model_type": "xlm-roberta", "vocab_size": 250002, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
		"intermediate_size": 4096, "hidden_act": "gelu", "max_position_embeddings": 8194, "position_embedding_type": "rotary", "rotary_emb_base": 20000,
		"type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1, "lora_rank": 4, "lora_alpha": 1,
		"lora_adaptations": ["retrieval.query", "retrieval.passage", "separation", "classification", "text-matching"]}`,
}

// readClip makes c the configuration of a jina_clip folder's text tower.
func (c *config) readClip(path string) error {
	var f struct {
		Projections bool `json:"add_projections"`
		Text        struct {
			Name   string          `json:"hf_model_name_or_path"`
			Change json.RawMessage `json:"hf_model_config_kwargs"`
			Pooler string          `json:"pooler_type"`
			Proj   *string         `json:"proj_type"`
			Dim    int             `json:"embed_dim"`
		} `json:"text_config"`
	}
	if _, err := readJSON(path, &f); err != nil {
		return err
	}
	published, ok := backbones[f.Text.Name]
	if !ok {
		return fail.New(fail.BadInput, op, path, "the text tower is a %q; jinaai/jina-embeddings-v3 is known", f.Text.Name)
	}
	err := json.Unmarshal([]byte(published), c)
	if err == nil && f.Text.Change != nil {
		err = json.Unmarshal(f.Text.Change, c)
	}
	switch {
	case err != nil:
		return fail.Wrap(fail.BadInput, op, path, err)
	case f.Projections || f.Text.Proj != nil || f.Text.Dim != c.Hidden:
		return fail.New(fail.BadInput, op, path, "a text tower that is projected (from %d to %d) is not known", c.Hidden, f.Text.Dim)
	case f.Text.Pooler != "" && f.Text.Pooler != "mean_pooler":
		return fail.New(fail.BadInput, op, path, "pooler_type %q is not known; mean_pooler is", f.Text.Pooler)
	}
	return nil
}

// chooseAdapter sets which of the adapters the reader merges.
func (r *reader) chooseAdapter(c *config, name string) error {
	if r.adapter = -1; name == "" {
		return nil
	}
	if r.adapter = slices.Index(c.Adapters, name); r.adapter < 0 && HasAdapterFolder(r.dir, name) {
		var err error
		r.files, err = openAdapter(AdapterFolder(r.dir, name))
		return err
	}
	if r.adapter < 0 {
		return fail.New(fail.BadInput, op, r.dir, "no adapter %q; config.json lists %q", name, c.Adapters)
	}
	if _, _, ok := r.m.Info(r.prefix + wordEmbeddings + adapted + "original"); !ok {
		return fail.WithHint(fail.New(fail.BadInput, op, r.dir, "config.json lists the adapter %q, the weights hold none", name),
			"take the checkpoint that has its adapters in model.safetensors, or each in a folder of its own")
	}
	if c.Rank < 1 {
		return fail.New(fail.BadInput, op, r.dir, "lora_rank is %d", c.Rank)
	}
	r.rank, r.adapters, r.scale = c.Rank, len(c.Adapters), c.Alpha/float32(c.Rank)
	return nil
}

// adapted is how torch's parametrizations call a weight that adapters change.
const adapted = ".parametrizations.weight."

// weight reads a matrix [rows, cols] and adds the chosen adapter's product to it,
// which stands in the file as [rows, rank]·[rank, cols]: B·A for a linear layer,
// A·B for an embedding.
func (r *reader) weight(name string, rows, cols int, left, right string) []float32 {
	if _, _, ok := r.m.Info(r.prefix + name + adapted + "original"); !ok {
		w := r.read(name+".weight", rows, cols)
		if r.files != nil && r.err == nil {
			r.err = r.files.addTo(w, name, rows, cols, left == "lora_A")
		}
		return w
	}
	w := r.read(name+adapted+"original", rows, cols)
	if r.adapter < 0 {
		return w
	}
	a := r.read(name+adapted+"0."+left, r.adapters, rows, r.rank)
	b := r.read(name+adapted+"0."+right, r.adapters, r.rank, cols)
	if r.err != nil {
		return nil
	}
	b = b[r.adapter*r.rank*cols:][:r.rank*cols]
	vec.Scale(b, b, r.scale)
	gemm.NN(w, a[r.adapter*rows*r.rank:], b, rows, cols, r.rank, true)
	return w
}

// turns are the cosines and sines of rotary positions, half a head's width for
// each place.
type turns struct{ cos, sin []float32 }

func (c *config) turns() turns {
	half, places := c.Hidden/c.Heads/2, c.Positions
	t := turns{make([]float32, places*half), make([]float32, places*half)}
	for p := range places {
		for i := range half {
			// Frequency and angle are rounded to float32 on the way, as the
			// reference does.
			f := float32(1 / math.Pow(c.RotaryBase, float64(2*i)/float64(2*half)))
			s, x := math.Sincos(float64(float32(p) * f))
			t.cos[p*half+i], t.sin[p*half+i] = float32(x), float32(s)
		}
	}
	return t
}

// turn turns the queries and keys of every head by their places.
func (t *turns) turn(s *space, c *config) {
	dim := c.Hidden / c.Heads
	half := dim / 2
	par.For(s.tokens, 1+1<<12/c.Hidden, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			p := int(s.places[r]) * half
			cos, sin := t.cos[p:p+half], t.sin[p:p+half]
			row := s.qkv[r*3*c.Hidden:][:2*c.Hidden] // queries, then keys
			for at := 0; at < len(row); at += dim {
				vec.Rope(row[at:at+dim], cos, sin, false)
			}
		}
	})
}
