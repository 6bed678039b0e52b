package bert

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"searchloop/internal/fail"
)

const op = "load encoder"

// config is the part of config.json that the forward pass depends on.
type config struct {
	ModelType    string  `json:"model_type"`
	Vocab        int     `json:"vocab_size"`
	Hidden       int     `json:"hidden_size"`
	Layers       int     `json:"num_hidden_layers"`
	Heads        int     `json:"num_attention_heads"`
	Intermediate int     `json:"intermediate_size"`
	Act          string  `json:"hidden_act"`
	Positions    int     `json:"max_position_embeddings"`
	PositionType string  `json:"position_embedding_type"`
	Types        int     `json:"type_vocab_size"`
	Eps          float32 `json:"layer_norm_eps"`
	Pad          int     `json:"pad_token_id"`

	// Jina's models only.
	RotaryBase float64  `json:"rotary_emb_base,omitempty"`
	Rope       rope     `json:"rope_parameters,omitzero"` // transformers' way to say the same
	Adapters   []string `json:"lora_adaptations,omitempty"`
	Alpha      float32  `json:"lora_alpha,omitempty"`
	Rank       int      `json:"lora_rank,omitempty"`
}

type rope struct {
	Theta float64 `json:"rope_theta"`
}

// xlm says whether the model is of RoBERTa's kind. Its positions count from the
// padding token's id + 1, and a padding token in the text has the position of its
// id and is not counted.
func (c *config) xlm() bool { return c.ModelType != "bert" }

// rotary says whether the places of tokens turn queries and keys (Jina) instead of
// being looked up in a table. Such a model is blind to padding tokens.
func (c *config) rotary() bool { return c.PositionType == "rotary" }

func readConfig(dir string) (config, error) {
	path := filepath.Join(dir, "config.json")
	c := config{Act: "gelu", PositionType: "absolute", Types: 2, Eps: 1e-12, Pad: 1}
	found, err := readJSON(path, &c)
	if err == nil && c.ModelType == "jina_clip" {
		err = c.readClip(path)
	}
	switch {
	case err != nil:
		return c, err
	case !found:
		return c, fail.New(fail.BadInput, op, path, "is missing")
	}
	bad := func(format string, args ...any) (config, error) {
		return c, fail.New(fail.BadInput, op, path, format, args...)
	}
	switch c.ModelType {
	case "bert", "roberta", "xlm-roberta":
	case "jina_embeddings_v3":
		c.PositionType = "rotary"
	default:
		return bad("model_type is %q; bert, roberta, xlm-roberta, jina_embeddings_v3 and jina_clip are known", c.ModelType)
	}
	c.RotaryBase = cmp.Or(c.RotaryBase, c.Rope.Theta)
	const most = 1 << 24
	for _, f := range []struct {
		name  string
		value int
	}{
		{"vocab_size", c.Vocab}, {"hidden_size", c.Hidden}, {"num_hidden_layers", c.Layers}, {"num_attention_heads", c.Heads},
		{"intermediate_size", c.Intermediate}, {"max_position_embeddings", c.Positions}, {"type_vocab_size", c.Types},
	} {
		if f.value < 1 || f.value > most {
			return bad("%s is %d", f.name, f.value)
		}
	}
	switch {
	case c.xlm() && (c.Pad < 0 || c.Pad+1 >= c.Positions):
		return bad("pad_token_id %d leaves no positions of %d", c.Pad, c.Positions)
	case c.Hidden%c.Heads != 0:
		return bad("hidden_size %d is not a multiple of num_attention_heads %d", c.Hidden, c.Heads)
	case c.PositionType != "absolute" && !(c.rotary() && c.xlm()):
		return bad("position_embedding_type is %q; absolute is known, and rotary for XLM-R's kind", c.PositionType)
	case c.rotary() && c.Positions > 1<<17: // no table in the file bounds them
		return bad("max_position_embeddings is %d", c.Positions)
	case c.rotary() && (!(c.RotaryBase > 1) || c.Hidden/c.Heads%2 != 0):
		return bad("rotary positions of base %g in heads of %d", c.RotaryBase, c.Hidden/c.Heads)
	case c.Rank < 0 || c.Rank > 1<<10 || len(c.Adapters) > 1<<10:
		return bad("%d adapters of rank %d", len(c.Adapters), c.Rank)
	case !(c.Eps >= 0):
		return bad("layer_norm_eps is %g", c.Eps)
	case activations[c.Act] == nil:
		return bad("hidden_act is %q; gelu, gelu_new, gelu_pytorch_tanh and relu are known", c.Act)
	}
	return c, nil
}

// pooling says how the last hidden states become one vector.
type pooling struct {
	cls       bool // the first token's, otherwise the mean of all
	normalise bool // to length 1
	max       int  // most tokens, [CLS] and [SEP] counted; 0: not said
}

// readPooling takes the sentence-transformers files where they are (modules.json,
// 1_Pooling/config.json, sentence_bert_config.json), lets searchloop.json
// ("pooling": "mean" or "cls", "normalize", "max_tokens") override them, and
// takes E5's way, mean and length 1, when nothing is said.
func readPooling(dir string) (pooling, error) {
	p := pooling{normalise: true}
	folder := "1_Pooling"
	var modules []struct{ Path, Type string }
	found, err := readJSON(filepath.Join(dir, "modules.json"), &modules)
	if err != nil {
		return p, err
	}
	if found {
		p.normalise = false
		for _, m := range modules {
			switch kind := filepath.Ext(m.Type); {
			case kind == ".Normalize":
				p.normalise = true
			case kind == ".Pooling" && filepath.IsLocal(m.Path):
				folder = m.Path
			case kind != ".Transformer":
				return p, fail.New(fail.BadInput, op, filepath.Join(dir, "modules.json"), "module %q is not known", m.Type)
			}
		}
	}
	if err := p.readSentencePooling(filepath.Join(dir, folder, "config.json")); err != nil {
		return p, err
	}
	var limit struct {
		Max int `json:"max_seq_length"`
	}
	if _, err := readJSON(filepath.Join(dir, "sentence_bert_config.json"), &limit); err != nil {
		return p, err
	}
	p.max = max(0, limit.Max)
	return p, p.override(filepath.Join(dir, "searchloop.json"))
}

func (p *pooling) readSentencePooling(path string) error {
	var modes map[string]any
	if found, err := readJSON(path, &modes); err != nil || !found {
		return err
	}
	on := ""
	if mode, ok := modes["pooling_mode"].(string); ok {
		on = mode
	}
	for mode, name := range map[string]string{
		"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max",
		"pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len", "pooling_mode_weightedmean_tokens": "weightedmean", "pooling_mode_lasttoken": "lasttoken",
	} {
		if v, _ := modes[mode].(bool); v {
			if on != "" && on != name {
				return fail.New(fail.BadInput, op, path, "several ways of pooling at once are not known")
			}
			on = name
		}
	}
	return p.set(on, path)
}

func (p *pooling) set(mode, path string) error {
	switch mode {
	case "mean":
		p.cls = false
	case "cls":
		p.cls = true
	default:
		return fail.New(fail.BadInput, op, path, "pooling %q is not known; mean and cls are", mode)
	}
	return nil
}

func (p *pooling) override(path string) error {
	var o struct {
		Pooling   *string `json:"pooling"`
		Normalize *bool   `json:"normalize"`
		Max       *int    `json:"max_tokens"`
	}
	if _, err := readJSON(path, &o); err != nil {
		return err
	}
	if o.Normalize != nil {
		p.normalise = *o.Normalize
	}
	if o.Max != nil {
		if *o.Max < 1 {
			return fail.New(fail.BadInput, op, path, "max_tokens is %d", *o.Max)
		}
		p.max = *o.Max
	}
	if o.Pooling != nil {
		return p.set(*o.Pooling, path)
	}
	return nil
}

func readJSON(path string, v any) (found bool, err error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, v)
	}
	return err == nil, fail.Wrap(fail.BadInput, op, path, err)
}
