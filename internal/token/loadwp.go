package token

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"searchloop/internal/fail"
)

type hfWordPiece struct {
	Type     string           `json:"type"`
	Unk      string           `json:"unk_token"`
	Prefix   *string          `json:"continuing_subword_prefix"`
	MaxRunes *int             `json:"max_input_chars_per_word"`
	Vocab    map[string]int32 `json:"vocab"`
}

// LoadWordPiece reads dir/tokenizer.json, or, when there is none, dir/vocab.txt
// with BERT's usual settings as dir/tokenizer_config.json changes them
// (do_lower_case, strip_accents, tokenize_chinese_chars).
func LoadWordPiece(dir string) (*WordPiece, error) {
	f, path, err := readFile(dir)
	if errors.Is(err, fs.ErrNotExist) {
		path = filepath.Join(dir, "vocab.txt")
		f, err = vocabFile(dir, path)
	}
	if err != nil {
		return nil, err
	}
	w, err := f.wordPiece()
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, "read tokenizer", path, err)
	}
	return w, nil
}

func (f *hfFile) wordPiece() (*WordPiece, error) {
	var m hfWordPiece
	if err := json.Unmarshal(f.Model, &m); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if m.Type != "WordPiece" && (m.Type != "" || len(m.Vocab) == 0) {
		return nil, fmt.Errorf("model is %q, want WordPiece", m.Type)
	}
	w := &WordPiece{maxRunes: 100}
	prefix := "##"
	if m.Prefix != nil {
		prefix = *m.Prefix
	}
	if m.MaxRunes != nil {
		w.maxRunes = *m.MaxRunes
	}
	for s, id := range m.Vocab {
		if id < 0 || id > maxID {
			return nil, fmt.Errorf("id %d of %q is out of range", id, s)
		}
	}
	n := f.Normalizer
	if n != nil {
		if n.Type != "BertNormalizer" {
			return nil, fmt.Errorf("normalizer %q is not known (BertNormalizer or none)", n.Type)
		}
		on := func(b *bool) bool { return b == nil || *b }
		w.norm = bertNorm{clean: on(n.CleanText), chinese: on(n.Chinese), lower: on(n.Lowercase)}
		w.norm.strip = w.norm.lower
		if n.StripAccents != nil {
			w.norm.strip = *n.StripAccents
		}
	}
	if f.PreTokenizer == nil || f.PreTokenizer.Type != "BertPreTokenizer" {
		return nil, errors.New("pre_tokenizer is not BertPreTokenizer")
	}
	w.setVocab(m.Vocab, prefix)
	ids := map[string]int32{}
	var literal, normal []added
	for _, a := range f.AddedTokens {
		if a.ID < 0 || a.ID > maxID {
			return nil, fmt.Errorf("id %d of %q is out of range", a.ID, a.Content)
		}
		ids[a.Content] = a.ID
		w.size = max(w.size, int(a.ID)+1)
		if a.Normalized {
			a.Content = w.norm.apply(a.Content)
			normal = append(normal, a)
		} else {
			literal = append(literal, a)
		}
	}
	w.literal, w.normal = newFinder(literal), newFinder(normal)
	cls, sep := f.marks()
	for _, need := range []struct {
		token string
		id    *int32
	}{{m.Unk, &w.unk}, {cls, &w.cls}, {sep, &w.sep}} {
		id, ok := ids[need.token]
		if !ok {
			if id, ok = m.Vocab[need.token]; !ok {
				return nil, fmt.Errorf("the vocabulary lacks %q", need.token)
			}
		}
		*need.id = id
	}
	return w, nil
}

// marks returns the tokens that the post-processor puts around a text; BERT's
// when it does not say.
func (f *hfFile) marks() (cls, sep string) {
	cls, sep = "[CLS]", "[SEP]"
	p := f.Post
	if p == nil {
		return
	}
	if p.Cls.Token != "" && p.Sep.Token != "" {
		return p.Cls.Token, p.Sep.Token
	}
	if n := len(p.Single); n == 3 && p.Single[0].Special != nil && p.Single[2].Special != nil {
		return p.Single[0].Special.ID, p.Single[2].Special.ID
	}
	return
}

// vocabFile is the tokenizer.json that a vocab.txt stands for.
func vocabFile(dir, path string) (*hfFile, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fail.WithHint(fail.Wrap(fail.BadInput, "read tokenizer", path, err), "an encoder's folder must hold tokenizer.json or vocab.txt")
	}
	vocab := map[string]int32{}
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		vocab[strings.TrimRightFunc(line, unicode.IsSpace)] = int32(i)
	}
	config := struct {
		Lower   *bool `json:"do_lower_case"`
		Strip   *bool `json:"strip_accents"`
		Chinese *bool `json:"tokenize_chinese_chars"`
	}{}
	configPath := filepath.Join(dir, "tokenizer_config.json")
	if data, err := os.ReadFile(configPath); err == nil {
		if err := json.Unmarshal(data, &config); err != nil {
			return nil, fail.Wrap(fail.BadInput, "read tokenizer", configPath, err)
		}
	}
	f := &hfFile{
		Normalizer:   &hfStep{Type: "BertNormalizer", Lowercase: config.Lower, StripAccents: config.Strip, Chinese: config.Chinese},
		PreTokenizer: &hfStep{Type: "BertPreTokenizer"},
	}
	for _, s := range []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"} {
		if id, ok := vocab[s]; ok {
			f.AddedTokens = append(f.AddedTokens, added{ID: id, Content: s, Special: true})
		}
	}
	f.Model, err = json.Marshal(hfWordPiece{Type: "WordPiece", Unk: "[UNK]", Vocab: vocab})
	return f, fail.Wrap(fail.Bug, "read tokenizer", path, err)
}
