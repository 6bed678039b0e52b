package lexical

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// special are the marks every vocabulary begins with; their ids are their places.
var special = []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}

// Vocabulary proposes a WordPiece vocabulary for the texts: the marks, every
// character alone and as a continuation, so that no word is unknown as a whole,
// then the words, most frequent first. What a word is need not be exactly what
// the tokenizer says: weights are counted by the tokenizer itself.
func Vocabulary(texts []string) []string {
	words, chars := map[string]int{}, map[string]int{}
	for _, t := range texts {
		seen := map[string]bool{}
		for _, w := range split(t) {
			for _, r := range w {
				chars[string(r)]++
			}
			if !seen[w] {
				seen[w] = true
				words[w]++
			}
		}
	}
	out := slices.Clone(special)
	top := slices.Sorted(slices.Values(frequent(chars, maxChars)))
	out = append(out, top...)
	for _, c := range top {
		out = append(out, "##"+c)
	}
	for _, w := range frequent(words, maxWords) {
		if _, char := chars[w]; !char {
			out = append(out, w)
		}
	}
	return out
}

// frequent gives at most n keys, the most frequent first, equal ones in order.
func frequent(count map[string]int, n int) []string {
	keys := make([]string, 0, len(count))
	for k := range count {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(count[b]-count[a], strings.Compare(a, b))
	})
	return keys[:min(n, len(keys))]
}

// split lowers, drops accents and cuts the text as BERT's basic tokenizer does:
// words of letters and digits, every other visible character alone.
func split(text string) []string {
	var out []string
	var word strings.Builder
	flush := func() {
		if word.Len() > 0 {
			out = append(out, word.String())
			word.Reset()
		}
	}
	for _, r := range norm.NFD.String(strings.ToLower(text)) {
		switch {
		case unicode.Is(unicode.Mn, r) || unicode.IsControl(r) && !unicode.IsSpace(r) || r == unicode.ReplacementChar:
		case unicode.IsSpace(r):
			flush()
		case unicode.Is(unicode.Han, r) || !unicode.IsLetter(r) && !unicode.IsNumber(r):
			flush()
			out = append(out, string(r))
		default:
			word.WriteRune(r)
		}
	}
	flush()
	return out
}

// vocabText is vocab.txt: one token a line, the line number is the id.
func vocabText(vocab []string) []byte {
	return []byte(strings.Join(vocab, "\n") + "\n")
}

// tokenizerJSON is tokenizer.json in the form that Hugging Face's tokenizers
// library writes for an uncased BERT.
func tokenizerJSON(vocab []string) ([]byte, error) {
	type object = map[string]any
	ids := object{}
	for i, t := range vocab {
		ids[t] = i
	}
	var added []object
	for i, t := range special {
		added = append(added, object{"id": i, "content": t, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
	}
	mark := func(t string) object { return object{"SpecialToken": object{"id": t, "type_id": 0}} }
	seq := func(id string, n int) object { return object{"Sequence": object{"id": id, "type_id": n}} }
	entry := func(t string) object {
		return object{"id": t, "ids": []int{slices.Index(special, t)}, "tokens": []string{t}}
	}
	return pretty(object{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added,
		"normalizer":    object{"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": nil, "lowercase": true},
		"pre_tokenizer": object{"type": "BertPreTokenizer"},
		"post_processor": object{"type": "TemplateProcessing",
			"single":         []object{mark("[CLS]"), seq("A", 0), mark("[SEP]")},
			"pair":           []object{mark("[CLS]"), seq("A", 0), mark("[SEP]"), seq("B", 1), {"SpecialToken": object{"id": "[SEP]", "type_id": 1}}},
			"special_tokens": object{"[CLS]": entry("[CLS]"), "[SEP]": entry("[SEP]")}},
		"decoder": object{"type": "WordPiece", "prefix": "##", "cleanup": true},
		"model":   object{"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": ids},
	})
}

// pretty is JSON with sorted keys, indented, nothing escaped for HTML.
func pretty(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}
