package token

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"searchloop/internal/fail"
)

// uniFile is the part of a Unigram tokenizer.json that decides what it does.
type uniFile struct {
	AddedTokens  []added  `json:"added_tokens"`
	Normalizer   *uniStep `json:"normalizer"`
	PreTokenizer *uniStep `json:"pre_tokenizer"`
	Post         *hfStep  `json:"post_processor"`
	Model        struct {
		Type  string               `json:"type"`
		Unk   *int32               `json:"unk_id"`
		Bytes bool                 `json:"byte_fallback"`
		Vocab [][2]json.RawMessage `json:"vocab"`
	} `json:"model"`
}

// uniStep is a normalizer or pre-tokenizer.
type uniStep struct {
	Type           string     `json:"type"`
	Normalizers    []uniStep  `json:"normalizers"`
	Pretokenizers  []uniStep  `json:"pretokenizers"`
	Charsmap       *string    `json:"precompiled_charsmap"`
	Pattern        *hfPattern `json:"pattern"`
	Content        string     `json:"content"`
	Left           bool       `json:"strip_left"`
	Right          bool       `json:"strip_right"`
	Replacement    string     `json:"replacement"`
	AddPrefixSpace *bool      `json:"add_prefix_space"`
	Prepend        string     `json:"prepend_scheme"`
	Split          *bool      `json:"split"`
}

// Marked is a tokenizer for encoders: ids with the model's marks around the text.
type Marked interface {
	// Encode returns at most maxTokens ids, marks included; 0 is no limit.
	Encode(s string, maxTokens int) []int32
	// Size is the highest id plus one.
	Size() int
}

// LoadMarked reads the encoder's tokenizer in dir: Unigram or WordPiece.
func LoadMarked(dir string) (Marked, error) {
	var kind struct {
		Model struct {
			Type  string          `json:"type"`
			Vocab json.RawMessage `json:"vocab"`
		} `json:"model"`
	}
	data, err := os.ReadFile(filepath.Join(dir, File))
	if err == nil && json.Unmarshal(data, &kind) == nil {
		// Old files do not say the type; only Unigram's vocabulary is a list.
		if kind.Model.Type == "Unigram" || kind.Model.Type == "" && strings.HasPrefix(string(kind.Model.Vocab), "[") {
			return LoadUnigram(dir)
		}
	}
	return LoadWordPiece(dir)
}

// LoadUnmarked reads the byte-level BPE in dir/tokenizer.json as an encoder's tokenizer
// that puts no marks around a text. A file that asks for marks is a BadInput error.
func LoadUnmarked(dir string) (Marked, error) {
	f, path, err := readFile(dir)
	if err != nil {
		return nil, err
	}
	if f.Post != nil && f.Post.Type != "ByteLevel" {
		return nil, fail.New(fail.BadInput, "read tokenizer", path, "post_processor %q puts marks around a text; this model has none", f.Post.Type)
	}
	t, err := f.bpe()
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, "read tokenizer", path, err)
	}
	return unmarked{t}, nil
}

// unmarked reads special tokens in a text as such, as Hugging Face's does.
type unmarked struct{ *BPE }

func (u unmarked) Encode(s string, maxTokens int) []int32 {
	ids := u.BPE.Encode(s)
	if maxTokens > 0 && len(ids) > maxTokens {
		ids = ids[:maxTokens]
	}
	return ids
}

// LoadUnigram reads the Unigram model in dir/tokenizer.json. What it cannot do
// exactly is a BadInput error.
func LoadUnigram(dir string) (*Unigram, error) {
	path := filepath.Join(dir, File)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fail.WithHint(fail.Wrap(fail.BadInput, "read tokenizer", path, err), "a model's folder must hold its tokenizer.json")
	}
	var f uniFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fail.Wrap(fail.BadInput, "read tokenizer", path, err)
	}
	u, err := f.unigram()
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, "read tokenizer", path, err)
	}
	return u, nil
}

func (f *uniFile) unigram() (*Unigram, error) {
	if f.Model.Type != "Unigram" && f.Model.Type != "" {
		return nil, fmt.Errorf("model is %q, want Unigram", f.Model.Type)
	}
	u := &Unigram{bos: -1, eos: -1, bytes: f.Model.Bytes}
	if err := u.readNormalizer(f.Normalizer); err != nil {
		return nil, err
	}
	if err := u.readPreTokenizer(f.PreTokenizer); err != nil {
		return nil, err
	}
	if err := u.readVocab(f); err != nil {
		return nil, err
	}
	ids := map[string]int32{}
	var literal, normal []added
	for _, a := range f.AddedTokens {
		if a.ID < 0 || a.ID > maxID {
			return nil, fmt.Errorf("id %d of %q is out of range", a.ID, a.Content)
		}
		ids[a.Content] = a.ID
		u.size = max(u.size, int(a.ID)+1)
		if a.Normalized {
			for _, n := range u.norm {
				a.Content = n(a.Content)
			}
			normal = append(normal, a)
		} else {
			literal = append(literal, a)
		}
	}
	u.literal, u.normal = newFinder(literal), newFinder(normal)
	return u, u.readMarks(f.Post, ids)
}

func (u *Unigram) readNormalizer(n *uniStep) error {
	if n == nil {
		return nil
	}
	switch n.Type {
	case "Sequence":
		for i := range n.Normalizers {
			if err := u.readNormalizer(&n.Normalizers[i]); err != nil {
				return err
			}
		}
	case "Precompiled":
		if n.Charsmap == nil || *n.Charsmap == "" {
			return nil
		}
		raw, err := base64.StdEncoding.DecodeString(*n.Charsmap)
		if err != nil {
			return fmt.Errorf("precompiled_charsmap: %w", err)
		}
		c, err := readCharsmap(raw)
		if err != nil {
			return err
		}
		u.norm = append(u.norm, c.apply)
	case "Replace":
		switch p := n.Pattern; {
		case p != nil && p.String != nil && *p.String != "":
			u.norm = append(u.norm, func(s string) string { return strings.ReplaceAll(s, *p.String, n.Content) })
		case p != nil && p.Regex != nil && *p.Regex == " {2,}":
			u.norm = append(u.norm, func(s string) string { return runsOfBlanks(s, n.Content) })
		default:
			return errors.New("normalizer Replace: only text and the pattern \" {2,}\" are known")
		}
	case "Strip":
		u.norm = append(u.norm, func(s string) string {
			if n.Left {
				s = strings.TrimLeftFunc(s, unicode.IsSpace)
			}
			if n.Right {
				s = strings.TrimRightFunc(s, unicode.IsSpace)
			}
			return s
		})
	default:
		return fmt.Errorf("normalizer %q is not known (Precompiled, Replace, Strip)", n.Type)
	}
	return nil
}

// runsOfBlanks replaces each run of two or more blanks.
func runsOfBlanks(s, by string) string {
	if !strings.Contains(s, "  ") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		n := 0
		for i+n < len(s) && s[i+n] == ' ' {
			n++
		}
		if n > 1 {
			b.WriteString(by)
			i += n
			continue
		}
		b.WriteByte(s[i])
		i++
	}
	return b.String()
}

func (u *Unigram) readPreTokenizer(p *uniStep) error {
	if p == nil {
		return nil
	}
	steps := []uniStep{*p}
	if p.Type == "Sequence" {
		steps = p.Pretokenizers
	}
	for i, s := range steps {
		switch {
		case s.Type == "WhitespaceSplit" && i == 0:
			u.split = true
		case s.Type == "Metaspace" && i == len(steps)-1:
			u.meta = metaspace{mark: s.Replacement, prepend: 'a', split: s.Split == nil || *s.Split}
			switch {
			case s.Prepend == "first":
				u.meta.prepend = 'f'
			case s.Prepend == "never", s.Prepend == "" && s.AddPrefixSpace != nil && !*s.AddPrefixSpace:
				u.meta.prepend = 'n'
			case s.Prepend != "" && s.Prepend != "always":
				return fmt.Errorf("prepend_scheme %q is not known", s.Prepend)
			}
			if len([]rune(s.Replacement)) != 1 {
				return fmt.Errorf("replacement %q is not one character", s.Replacement)
			}
		default:
			return fmt.Errorf("pre_tokenizer %q is not known here (WhitespaceSplit, then Metaspace)", s.Type)
		}
	}
	return nil
}

func (u *Unigram) readVocab(f *uniFile) error {
	n := len(f.Model.Vocab)
	if n == 0 || n > maxID {
		return fmt.Errorf("a vocabulary of %d pieces", n)
	}
	if f.Model.Unk == nil || *f.Model.Unk < 0 || int(*f.Model.Unk) >= n {
		return errors.New("unk_id is missing or out of range")
	}
	u.unk, u.size = *f.Model.Unk, n
	pieces := make([]string, n)
	u.scores, u.ids = make([]float64, n), make(map[string]int32, n)
	for i, v := range f.Model.Vocab {
		if json.Unmarshal(v[0], &pieces[i]) != nil || json.Unmarshal(v[1], &u.scores[i]) != nil {
			return fmt.Errorf("vocabulary entry %d is not a piece and its score", i)
		}
		u.ids[pieces[i]] = int32(i)
		if i == 0 || u.scores[i] < u.unkScore {
			u.unkScore = u.scores[i]
		}
	}
	u.unkScore -= unkPenalty
	nodes := nodesOf(pieces)
	if nodes > 1<<22 {
		return fmt.Errorf("pieces of %d different beginnings", nodes)
	}
	t := newPieceTrie(nodes)
	for _, p := range pieces {
		t.add(p, u.ids[p]) // of pieces that are there twice the last counts
	}
	u.pieces = *t
	for b := range u.byteIDs {
		id, ok := u.ids[fmt.Sprintf("<0x%02X>", b)]
		if u.byteIDs[b] = id; !ok {
			u.byteIDs[b] = -1
		}
	}
	return nil
}

// nodesOf is the number of different beginnings of the pieces.
func nodesOf(pieces []string) int {
	sorted := slices.Sorted(slices.Values(pieces))
	n, last := 1, ""
	for _, p := range sorted {
		same := 0
		for same < len(p) && same < len(last) && p[same] == last[same] {
			same++
		}
		n += len(p) - same
		last = p
	}
	return n
}

// readMarks finds what the post-processor puts around a text.
func (u *Unigram) readMarks(p *hfStep, ids map[string]int32) error {
	if p == nil {
		return nil
	}
	bos, eos := "", ""
	switch {
	case p.Cls.Token != "" && p.Sep.Token != "":
		bos, eos = p.Cls.Token, p.Sep.Token
	case p.Type == "TemplateProcessing":
		seen := false
		for i, s := range p.Single {
			switch {
			case s.Sequence != nil && !seen:
				seen = true
			case s.Special != nil && i == 0:
				bos = s.Special.ID
			case s.Special != nil && seen && i == len(p.Single)-1:
				eos = s.Special.ID
			default:
				return errors.New("post_processor: only one mark on either side of the text is known")
			}
		}
		if !seen {
			return errors.New("post_processor leaves the text out")
		}
	default:
		return fmt.Errorf("post_processor %q is not known", p.Type)
	}
	for _, m := range []struct {
		token string
		id    *int32
	}{{bos, &u.bos}, {eos, &u.eos}} {
		if m.token == "" {
			continue
		}
		id, ok := ids[m.token]
		if !ok {
			if id, ok = u.ids[m.token]; !ok {
				return fmt.Errorf("the vocabulary lacks %q", m.token)
			}
		}
		*m.id = id
	}
	return nil
}
