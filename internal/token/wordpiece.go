package token

import (
	"strings"
	"unicode/utf8"
)

// WordPiece is BERT's tokenizer: normalise, split at blanks and punctuation,
// then cut each word into the longest vocabulary entries from the left.
type WordPiece struct {
	norm     bertNorm
	whole    map[string]int32 // entries that begin a word
	rest     map[string]int32 // entries that continue one, without their prefix
	longest  int              // bytes of the longest entry
	maxRunes int              // longer words are unknown
	unk      int32
	cls, sep int32
	size     int
	literal  *finder
	normal   *finder
}

// Size is the highest id plus one.
func (w *WordPiece) Size() int { return w.size }

// Encode returns [CLS], the ids of s and [SEP], cut to maxTokens in all (no
// limit when maxTokens is 0; never fewer than the two marks).
func (w *WordPiece) Encode(s string, maxTokens int) []int32 {
	if !utf8.ValidString(s) {
		s = Text([]byte(s))
	}
	ids := make([]int32, 1, 2+len(s)/3)
	ids[0] = w.cls
	w.literal.split(s, false, func(text string, id int32) {
		if id >= 0 {
			ids = append(ids, id)
			return
		}
		if maxTokens > 0 && len(ids) >= maxTokens {
			return
		}
		w.normal.split(w.norm.apply(text), false, func(text string, id int32) {
			if id >= 0 {
				ids = append(ids, id)
				return
			}
			bertWords(text, func(word string) bool {
				ids = w.word(ids, word)
				return maxTokens <= 0 || len(ids) < maxTokens
			})
		})
	})
	if maxTokens > 0 {
		ids = ids[:min(len(ids), max(maxTokens-1, 1))]
	}
	return append(ids, w.sep)
}

// word appends the pieces of one word, or the unknown token alone.
func (w *WordPiece) word(ids []int32, word string) []int32 {
	if len(word) > w.maxRunes && utf8.RuneCountInString(word) > w.maxRunes {
		return append(ids, w.unk)
	}
	start := len(ids)
	entries := w.whole
	for word != "" {
		end := min(len(word), w.longest)
		for ; end > 0; end-- {
			if end < len(word) && !utf8.RuneStart(word[end]) {
				continue
			}
			if id, ok := entries[word[:end]]; ok {
				ids = append(ids, id)
				break
			}
		}
		if end == 0 {
			return append(ids[:start], w.unk)
		}
		word = word[end:]
		entries = w.rest
	}
	return ids
}

// setVocab splits the vocabulary into what begins and what continues a word.
func (w *WordPiece) setVocab(vocab map[string]int32, prefix string) {
	w.whole, w.rest = vocab, map[string]int32{}
	for s, id := range vocab {
		w.longest = max(w.longest, len(s))
		w.size = max(w.size, int(id)+1)
		if r, ok := strings.CutPrefix(s, prefix); ok {
			w.rest[r] = id
		}
	}
}
