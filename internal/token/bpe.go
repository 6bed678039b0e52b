// Package token turns text into token ids and back, with the tokenizers that
// models bring along: byte-level BPE (Qwen2, Qwen3, Llama 3, GPT-2) and BERT's
// WordPiece, read from Hugging Face's tokenizer.json. It also trains a small
// byte-level BPE and writes it in that format.
//
// Ids equal those of Hugging Face's tokenizers library, text for text; a file
// that asks for something this package does not do is refused at load, never
// approximated. Post-processors (templates that add tokens) are left to the
// caller, except BERT's [CLS] and [SEP]. All types are safe for concurrent use.
package token

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"
)

// BPE is a byte-level BPE tokenizer.
type BPE struct {
	pattern      pattern
	nfc          bool // normalizer: NFC or none
	prefixSpace  bool // a text that starts with no space gets one
	ignoreMerges bool // a word that is in the vocabulary is that token

	tokens []string         // id → token as spelled in the file; "" for a hole
	raw    []string         // id → bytes
	known  []bool           // id → exists
	vocab  map[string]int32 // spelled token → id, without added tokens
	added  []added          // by id
	byID   map[string]int32 // content of added token → id
	merges []pair           // by rank; kept for Save and Digest

	table   map[uint64]merge // two neighbours → what they become
	words   map[string]int32 // bytes → id; only with ignoreMerges
	single  [256]int32       // byte → id
	literal *finder          // added tokens looked for in the text as it is
	normal  *finder          // added tokens looked for after normalisation

	seed  maphash.Seed
	cache []atomic.Pointer[cached] // direct-mapped by hash of the word
}

type pair struct{ a, b int32 }

func (p pair) key() uint64 { return uint64(uint32(p.a))<<32 | uint64(uint32(p.b)) }

type merge struct{ rank, id int32 }

type cached struct {
	word string
	ids  []int32
}

const (
	cacheSlots    = 1 << 15
	cacheableWord = 64 // bytes
)

// Encode returns the ids of s. Added tokens, special ones included, are
// recognised wherever they stand: only for text that we wrote ourselves. Bytes
// that are not UTF-8 are read as U+FFFD.
func (t *BPE) Encode(s string) []int32 { return t.encode(nil, s, false) }

// EncodeOrdinary is Encode for text from outside: special tokens (<|im_end|>,
// <|image_pad|>) in it are ordinary characters. Added tokens that the tokenizer
// does not call special (<think>, <tool_call>) are still one token each, because
// that is how models are trained to read them.
func (t *BPE) EncodeOrdinary(s string) []int32 { return t.encode(nil, s, true) }

// AppendOrdinary appends the ids of EncodeOrdinary(s) to dst.
func (t *BPE) AppendOrdinary(dst []int32, s string) []int32 { return t.encode(dst, s, true) }

func (t *BPE) encode(dst []int32, s string, ordinary bool) []int32 {
	if !utf8.ValidString(s) {
		s = Text([]byte(s))
	}
	t.literal.split(s, ordinary, func(text string, id int32) {
		if id >= 0 {
			dst = append(dst, id)
			return
		}
		if t.nfc {
			text = nfc(text)
		}
		t.normal.split(text, ordinary, func(text string, id int32) {
			if id >= 0 {
				dst = append(dst, id)
				return
			}
			if t.prefixSpace && text[0] != ' ' {
				text = " " + text
			}
			for len(text) > 0 {
				n := t.pattern.next(text)
				dst = t.word(dst, text[:n])
				text = text[n:]
			}
		})
	})
	return dst
}

// word appends the ids of one pre-token.
func (t *BPE) word(dst []int32, w string) []int32 {
	if len(w) == 1 {
		return append(dst, t.single[w[0]])
	}
	if len(w) > cacheableWord {
		return t.merge(dst, w)
	}
	slot := &t.cache[maphash.String(t.seed, w)%cacheSlots]
	if c := slot.Load(); c != nil && c.word == w {
		return append(dst, c.ids...)
	}
	n := len(dst)
	dst = t.merge(dst, w)
	slot.Store(&cached{strings.Clone(w), slices.Clone(dst[n:])})
	return dst
}

// Decode returns the text of ids, special tokens included. Bytes that are not
// UTF-8 become U+FFFD; ids that do not exist are left out.
func (t *BPE) Decode(ids []int32) string {
	var b []byte
	for _, id := range ids {
		b = t.AppendBytes(b, id)
	}
	return Text(b)
}

// AppendBytes appends the bytes that id stands for; they need not be whole runes.
func (t *BPE) AppendBytes(dst []byte, id int32) []byte {
	if id < 0 || int(id) >= len(t.raw) {
		return dst
	}
	return append(dst, t.raw[id]...)
}

// ID returns the id of a token as the vocabulary spells it; added tokens first.
func (t *BPE) ID(token string) (int32, bool) {
	if id, ok := t.byID[token]; ok {
		return id, true
	}
	id, ok := t.vocab[token]
	return id, ok
}

// Special reports whether id is a special token: a mark, not a text.
func (t *BPE) Special(id int32) bool {
	i, ok := slices.BinarySearchFunc(t.added, id, func(a added, id int32) int { return int(a.ID) - int(id) })
	return ok && t.added[i].Special
}

// Size is the highest id plus one: the least vocabulary a model needs.
func (t *BPE) Size() int { return len(t.tokens) }

// Digest identifies the tokenizer: equal digests give equal ids for every text.
func (t *BPE) Digest() string {
	h := sha256.New()
	fmt.Fprintf(h, "bpe %+v %v %v %v\n", t.pattern, t.nfc, t.prefixSpace, t.ignoreMerges)
	for id, s := range t.tokens {
		if t.known[id] {
			fmt.Fprintf(h, "%d %q\n", id, s)
		}
	}
	for _, p := range t.merges {
		fmt.Fprintf(h, "%d %d\n", p.a, p.b)
	}
	for _, a := range t.added {
		fmt.Fprintf(h, "%+v\n", a)
	}
	return hex.EncodeToString(h.Sum(nil))
}
