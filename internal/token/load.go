package token

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"searchloop/internal/fail"
)

// File is the tokenizer file in a model's folder.
const File = "tokenizer.json"

const maxID = 1 << 24 // no real vocabulary comes near; guards the id tables

// hfFile is the part of tokenizer.json that both kinds of tokenizers share.
type hfFile struct {
	Version      string          `json:"version"`
	Truncation   json.RawMessage `json:"truncation"`
	Padding      json.RawMessage `json:"padding"`
	AddedTokens  []added         `json:"added_tokens"`
	Normalizer   *hfStep         `json:"normalizer"`
	PreTokenizer *hfStep         `json:"pre_tokenizer"`
	Post         *hfStep         `json:"post_processor"`
	Decoder      *hfStep         `json:"decoder"`
	Model        json.RawMessage `json:"model"`
}

// hfStep is a normalizer, pre-tokenizer or decoder.
type hfStep struct {
	Type           string     `json:"type"`
	Normalizers    []hfStep   `json:"normalizers,omitempty"`
	Pretokenizers  []hfStep   `json:"pretokenizers,omitempty"`
	Pattern        *hfPattern `json:"pattern,omitempty"`
	Behavior       string     `json:"behavior,omitempty"`
	Invert         *bool      `json:"invert,omitempty"`
	AddPrefixSpace *bool      `json:"add_prefix_space,omitempty"`
	TrimOffsets    *bool      `json:"trim_offsets,omitempty"`
	UseRegex       *bool      `json:"use_regex,omitempty"`
	CleanText      *bool      `json:"clean_text,omitempty"`
	Chinese        *bool      `json:"handle_chinese_chars,omitempty"`
	StripAccents   *bool      `json:"strip_accents,omitempty"`
	Lowercase      *bool      `json:"lowercase,omitempty"`
	Processors     []hfStep   `json:"processors,omitempty"`
	Single         []hfPiece  `json:"single,omitempty"`
	Sep            hfNamed    `json:"sep,omitzero"`
	Cls            hfNamed    `json:"cls,omitzero"`
}

type hfPattern struct {
	Regex  *string `json:"Regex,omitempty"`
	String *string `json:"String,omitempty"`
}

type hfBPE struct {
	Type         string            `json:"type"`
	Dropout      *float64          `json:"dropout"`
	Unk          *string           `json:"unk_token"`
	Prefix       *string           `json:"continuing_subword_prefix"`
	Suffix       *string           `json:"end_of_word_suffix"`
	FuseUnk      bool              `json:"fuse_unk"`
	ByteFallback bool              `json:"byte_fallback"`
	IgnoreMerges bool              `json:"ignore_merges"`
	Vocab        map[string]int32  `json:"vocab"`
	Merges       []json.RawMessage `json:"merges"`
}

// readFile reads dir/tokenizer.json.
func readFile(dir string) (*hfFile, string, error) {
	path := filepath.Join(dir, File)
	data, err := os.ReadFile(path)
	if err != nil {
		e := fail.Wrap(fail.BadInput, "read tokenizer", path, err)
		if errors.Is(err, fs.ErrNotExist) {
			e = fail.WithHint(e, "a model's folder must hold its tokenizer.json")
		}
		return nil, path, e
	}
	f := new(hfFile)
	if err := json.Unmarshal(data, f); err != nil {
		return nil, path, fail.Wrap(fail.BadInput, "read tokenizer", path, err)
	}
	return f, path, nil
}

// LoadBPE reads the byte-level BPE in dir/tokenizer.json. What it cannot do
// exactly (another pattern, normaliser, dropout) is a BadInput error.
func LoadBPE(dir string) (*BPE, error) {
	f, path, err := readFile(dir)
	if err != nil {
		return nil, err
	}
	t, err := f.bpe()
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, "read tokenizer", path, err)
	}
	return t, nil
}

func (f *hfFile) bpe() (*BPE, error) {
	var m hfBPE
	if err := json.Unmarshal(f.Model, &m); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	switch {
	case m.Type != "BPE" && m.Type != "":
		return nil, fmt.Errorf("model is %q, want byte-level BPE", m.Type)
	case m.Dropout != nil && *m.Dropout != 0, m.ByteFallback, m.Prefix != nil && *m.Prefix != "", m.Suffix != nil && *m.Suffix != "":
		return nil, errors.New("BPE with dropout, byte fallback, prefixes or suffixes is not byte-level BPE")
	}
	t := &BPE{ignoreMerges: m.IgnoreMerges, vocab: m.Vocab, added: f.AddedTokens}
	if err := t.readSteps(f.Normalizer, f.PreTokenizer, f.Decoder); err != nil {
		return nil, err
	}
	for rank, raw := range m.Merges {
		p, err := t.readMerge(raw)
		if err != nil {
			return nil, fmt.Errorf("merge %d: %w", rank, err)
		}
		t.merges = append(t.merges, p)
	}
	return t, t.build()
}

// readSteps sets what normalizer and pre-tokenizer ask for.
func (t *BPE) readSteps(n, p, d *hfStep) error {
	if n != nil && n.Type == "Sequence" && len(n.Normalizers) == 1 {
		n = &n.Normalizers[0]
	}
	switch {
	case n == nil || n.Type == "Sequence" && len(n.Normalizers) == 0:
	case n.Type == "NFC":
		t.nfc = true
	default:
		return fmt.Errorf("normalizer %q is not known (NFC or none)", n.Type)
	}
	if p == nil {
		return errors.New("no pre_tokenizer")
	}
	steps := []hfStep{*p}
	if p.Type == "Sequence" {
		steps = p.Pretokenizers
	}
	if len(steps) == 0 || steps[len(steps)-1].Type != "ByteLevel" || d == nil || d.Type != "ByteLevel" {
		return errors.New("not a byte-level tokenizer: pre_tokenizer and decoder must end in ByteLevel")
	}
	last := steps[len(steps)-1]
	regex, isOn := gpt2Regex, last.UseRegex == nil || *last.UseRegex
	t.prefixSpace = last.AddPrefixSpace == nil || *last.AddPrefixSpace
	switch {
	case len(steps) == 1 && isOn:
	case len(steps) == 2 && !isOn && !t.prefixSpace && steps[0].Type == "Split" && steps[0].Pattern != nil && steps[0].Pattern.Regex != nil &&
		steps[0].Behavior == "Isolated" && (steps[0].Invert == nil || !*steps[0].Invert):
		regex = *steps[0].Pattern.Regex
	default:
		return errors.New("pre_tokenizer is neither ByteLevel with its own pattern nor Split(Isolated) then ByteLevel")
	}
	var ok bool
	if t.pattern, ok = patterns[regex]; !ok {
		return fmt.Errorf("pre-tokenizer pattern %q is not known", regex)
	}
	return nil
}

// readMerge reads "a b" (old files) or ["a", "b"].
func (t *BPE) readMerge(raw json.RawMessage) (pair, error) {
	var ab []string
	var s string
	if json.Unmarshal(raw, &s) == nil {
		ab = strings.Split(s, " ")
	} else if err := json.Unmarshal(raw, &ab); err != nil {
		return pair{}, err
	}
	if len(ab) != 2 {
		return pair{}, fmt.Errorf("%s is not two tokens", raw)
	}
	a, okA := t.vocab[ab[0]]
	b, okB := t.vocab[ab[1]]
	if !okA || !okB {
		return pair{}, fmt.Errorf("%s is not in the vocabulary", raw)
	}
	return pair{a, b}, nil
}

// build fills the tables from pattern, vocab, added and merges, and checks them.
func (t *BPE) build() error {
	size := int32(0)
	for s, id := range t.vocab {
		if id < 0 || id > maxID {
			return fmt.Errorf("id %d of %q is out of range", id, s)
		}
		size = max(size, id+1)
	}
	for _, a := range t.added {
		if a.ID < 0 || a.ID > maxID {
			return fmt.Errorf("id %d of %q is out of range", a.ID, a.Content)
		}
		size = max(size, a.ID+1)
	}
	t.tokens, t.raw, t.known = make([]string, size), make([]string, size), make([]bool, size)
	set := func(s string, id int32) error {
		if t.known[id] && t.tokens[id] != s {
			return fmt.Errorf("id %d is both %q and %q", id, t.tokens[id], s)
		}
		t.tokens[id], t.known[id] = s, true
		t.raw[id], _ = unspell(s)
		return nil
	}
	for s, id := range t.vocab {
		if err := set(s, id); err != nil {
			return err
		}
	}
	t.added = slices.Clone(t.added)
	slices.SortStableFunc(t.added, func(a, b added) int { return cmp.Compare(a.ID, b.ID) })
	t.byID = map[string]int32{}
	var literal, normal []added
	for _, a := range t.added {
		if err := set(a.Content, a.ID); err != nil {
			return err
		}
		t.byID[a.Content] = a.ID
		if a.Normalized {
			if t.nfc {
				a.Content = nfc(a.Content)
			}
			normal = append(normal, a)
		} else {
			literal = append(literal, a)
		}
	}
	t.literal, t.normal = newFinder(literal), newFinder(normal)
	for b := range t.single {
		id, ok := t.vocab[string(byteRune[b])]
		if !ok {
			return fmt.Errorf("the vocabulary lacks the byte 0x%02x (%q)", b, byteRune[b])
		}
		t.single[b] = id
	}
	t.table = make(map[uint64]merge, len(t.merges))
	for rank, p := range t.merges {
		id, ok := t.vocab[t.tokens[p.a]+t.tokens[p.b]]
		if !ok {
			return fmt.Errorf("merge %d: %q is not in the vocabulary", rank, t.tokens[p.a]+t.tokens[p.b])
		}
		t.table[p.key()] = merge{int32(rank), id}
	}
	if t.ignoreMerges {
		t.words = make(map[string]int32, len(t.vocab))
		for s, id := range t.vocab {
			if raw, ok := unspell(s); ok {
				t.words[raw] = id
			}
		}
	}
	t.seed = maphash.MakeSeed()
	t.cache = make([]atomic.Pointer[cached], cacheSlots)
	return nil
}

// hfPiece is a part of a TemplateProcessing post-processor.
type hfPiece struct {
	Special *struct {
		ID string `json:"id"`
	} `json:"SpecialToken,omitempty"`
	Sequence *struct {
		ID string `json:"id"`
	} `json:"Sequence,omitempty"`
}

// hfNamed is a ["[CLS]", 101] pair of a BertProcessing post-processor.
type hfNamed struct {
	Token string
	ID    int32
}

// UnmarshalJSON reads the pair.
func (n *hfNamed) UnmarshalJSON(b []byte) error {
	var two []any
	if err := json.Unmarshal(b, &two); err != nil {
		return err
	}
	if len(two) == 2 {
		n.Token, _ = two[0].(string)
		id, _ := two[1].(float64)
		n.ID = int32(id)
	}
	return nil
}
