package token

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strconv"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
)

// Save writes dir/tokenizer.json, which Hugging Face's tokenizers library loads
// and encodes equally with, and dir/tokenizer_config.json, with which
// transformers finds it. <|im_end|> is the end mark and <|endoftext|> the padding
// if there are such tokens. Equal tokenizers give equal bytes.
func (t *BPE) Save(dir string) error {
	const op = "write tokenizer"
	no := false
	level := &hfStep{Type: "ByteLevel", AddPrefixSpace: &t.prefixSpace, TrimOffsets: &no, UseRegex: &t.pattern.gpt2}
	f := hfFile{Version: "1.0", AddedTokens: t.added, PreTokenizer: level, Post: level, Decoder: level}
	if f.AddedTokens == nil {
		f.AddedTokens = []added{}
	}
	if t.nfc {
		f.Normalizer = &hfStep{Type: "NFC"}
	}
	for regex, p := range patterns {
		if p == t.pattern && !p.gpt2 {
			f.PreTokenizer = &hfStep{Type: "Sequence", Pretokenizers: []hfStep{
				{Type: "Split", Pattern: &hfPattern{Regex: &regex}, Behavior: "Isolated", Invert: &no}, *level}}
		}
	}
	model := hfBPE{Type: "BPE", Prefix: new(string), Suffix: new(string), IgnoreMerges: t.ignoreMerges, Vocab: t.vocab, Merges: []json.RawMessage{}}
	for _, p := range t.merges {
		raw, err := encodeJSON([2]string{t.tokens[p.a], t.tokens[p.b]}, "")
		if err != nil {
			return fail.Wrap(fail.Bug, op, dir, err)
		}
		model.Merges = append(model.Merges, raw)
	}
	var err error
	if f.Model, err = encodeJSON(model, ""); err != nil {
		return fail.Wrap(fail.Bug, op, dir, err)
	}
	text, err := encodeJSON(f, " ")
	if err != nil {
		return fail.Wrap(fail.Bug, op, dir, err)
	}
	if err := atomicfile.WriteFile(filepath.Join(dir, File), text); err != nil {
		return err
	}

	config := map[string]any{
		"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": t.prefixSpace, "add_bos_token": no,
		"split_special_tokens": no, "clean_up_tokenization_spaces": no, "errors": "replace", "bos_token": nil, "unk_token": nil,
		"model_max_length": 131072,
	}
	decoder := map[string]any{}
	for _, a := range t.added {
		decoder[strconv.Itoa(int(a.ID))] = map[string]any{
			"content": a.Content, "single_word": a.SingleWord, "lstrip": a.LStrip, "rstrip": a.RStrip, "normalized": a.Normalized, "special": a.Special}
	}
	config["added_tokens_decoder"] = decoder
	for key, token := range map[string]string{"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"} {
		if _, ok := t.byID[token]; ok {
			config[key] = token
		}
	}
	if text, err = encodeJSON(config, " "); err != nil {
		return fail.Wrap(fail.Bug, op, dir, err)
	}
	return atomicfile.WriteFile(filepath.Join(dir, "tokenizer_config.json"), text)
}

// encodeJSON is JSON without HTML escapes; maps come out sorted by key.
func encodeJSON(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
