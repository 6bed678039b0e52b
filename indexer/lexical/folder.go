package lexical

import (
	"math"
	"math/rand/v2"
	"path/filepath"

	"searchloop/indexer/encoder"
	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/safetensors"
)

const (
	positions = 512 // longest sequence the model takes
	maxTokens = 256 // longest sequence it is used with, as E5 is
	heads     = 4
)

// Files are the names written to the encoder's folder.
var Files = []string{"1_Pooling/config.json", "config.json", "model.safetensors", "modules.json", "searchloop.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"}

// settings are E5's. The prefixes' words occur in every passage or in none and
// weigh nothing.
var settings = encoder.Settings{QueryPrefix: "query: ", PassagePrefix: "passage: ", MaxTokens: maxTokens}

// writeTokenizer writes the files that the tokenizer is loaded from.
func writeTokenizer(dir string, vocab []string) error {
	text, err := tokenizerJSON(vocab)
	if err != nil {
		return fail.Wrap(fail.Bug, "fit encoder", dir, err)
	}
	if err := atomicfile.WriteFile(filepath.Join(dir, "tokenizer.json"), text); err != nil {
		return err
	}
	if err := atomicfile.WriteFile(filepath.Join(dir, "vocab.txt"), vocabText(vocab)); err != nil {
		return err
	}
	return writeJSON(dir, "tokenizer_config.json", map[string]any{
		"tokenizer_class": "BertTokenizer", "do_lower_case": true, "model_max_length": positions,
		"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]",
	})
}

// writeModel writes the configuration and the weights.
func writeModel(dir string, embeddings []float32, vocab, dim int, seed uint64) error {
	files := map[string]any{
		"config.json": map[string]any{
			"architectures": []string{"BertModel"}, "model_type": "bert", "hidden_act": "gelu", "hidden_size": dim,
			"intermediate_size": dim, "num_hidden_layers": 1, "num_attention_heads": heads, "layer_norm_eps": 1e-12,
			"max_position_embeddings": positions, "type_vocab_size": 2, "vocab_size": vocab, "pad_token_id": 0,
			"position_embedding_type": "absolute", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "torch_dtype": "float32",
		},
		"1_Pooling/config.json": map[string]any{
			"word_embedding_dimension": dim, "pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true,
			"pooling_mode_max_tokens": false, "pooling_mode_mean_sqrt_len_tokens": false,
		},
		"modules.json": []map[string]any{
			{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
			{"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
			{"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
		},
		"searchloop.json": settings,
	}
	for name, v := range files {
		if err := writeJSON(dir, name, v); err != nil {
			return err
		}
	}
	return safetensors.Write(filepath.Join(dir, "model.safetensors"), tensors(embeddings, vocab, dim, seed), map[string]string{"format": "pt"})
}

func writeJSON(dir, name string, v any) error {
	text, err := pretty(v)
	if err != nil {
		return fail.Wrap(fail.Bug, "fit encoder", dir, err)
	}
	return atomicfile.WriteFile(filepath.Join(dir, name), text)
}

// tensors are the model's weights under their Hugging Face names.
func tensors(embeddings []float32, vocab, dim int, seed uint64) []safetensors.Tensor {
	rng := rand.New(rand.NewPCG(seed, 0x62657274))
	var out []safetensors.Tensor
	add := func(name string, data []float32, shape ...int) {
		out = append(out, safetensors.Tensor{Name: name, DType: "F32", Shape: shape, F32: data})
	}
	fill := func(n int, v float32) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = v
		}
		return x
	}
	// A product with such a matrix is about 0.03 times as long as what went in; a
	// residual branch has two of them.
	linear := func(name string) {
		w := make([]float32, dim*dim)
		for i := range w {
			w[i] = float32(rng.NormFloat64() * 0.03 / math.Sqrt(float64(dim)))
		}
		add(name+".weight", w, dim, dim)
		add(name+".bias", fill(dim, 0), dim)
	}
	layerNorm := func(name string, gain []float32) {
		add(name+".weight", gain, dim)
		add(name+".bias", fill(dim, 0), dim)
	}
	add("embeddings.word_embeddings.weight", embeddings, vocab, dim)
	add("embeddings.position_embeddings.weight", fill(positions*dim, 0), positions, dim)
	add("embeddings.token_type_embeddings.weight", fill(2*dim, 0), 2, dim)
	layerNorm("embeddings.LayerNorm", fill(dim, 1))
	for _, name := range []string{"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense", "intermediate.dense", "output.dense"} {
		linear("encoder.layer.0." + name)
	}
	layerNorm("encoder.layer.0.attention.output.LayerNorm", fill(dim, 1))
	last := fill(dim, 1)
	last[dim-2], last[dim-1] = 0, 0 // drops the direction that made all words equally long
	layerNorm("encoder.layer.0.output.LayerNorm", last)
	return out
}
