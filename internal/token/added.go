package token

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// added is a token that is found in text before the model sees it.
type added struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// finder finds added tokens in text: leftmost, then longest.
type finder struct {
	byFirst [256][]added // longest first
	any     bool
}

func newFinder(tokens []added) *finder {
	f := new(finder)
	for _, t := range tokens {
		if t.Content != "" {
			f.byFirst[t.Content[0]] = append(f.byFirst[t.Content[0]], t)
			f.any = true
		}
	}
	for _, l := range f.byFirst {
		slices.SortStableFunc(l, func(a, b added) int { return cmp.Compare(len(b.Content), len(a.Content)) })
	}
	return f
}

// split calls yield for each part of s in order: text with id -1, or an added
// token with its id. Special tokens are left in the text when ordinary is set.
func (f *finder) split(s string, ordinary bool, yield func(text string, id int32)) {
	from := 0
	for i := 0; f.any && i < len(s); {
		t := f.at(s[i:])
		if t == nil {
			i++
			continue
		}
		start, stop := i, i+len(t.Content)
		i = stop
		if ordinary && t.Special || t.SingleWord && (wordBefore(s[:start]) || wordAfter(s[stop:])) {
			continue
		}
		if t.LStrip {
			start = max(from, len(strings.TrimRightFunc(s[:start], unicode.IsSpace)))
		}
		if t.RStrip {
			stop = len(s) - len(strings.TrimLeftFunc(s[stop:], unicode.IsSpace))
			i = stop
		}
		if from < start {
			yield(s[from:start], -1)
		}
		yield("", t.ID)
		from = stop
	}
	if from < len(s) {
		yield(s[from:], -1)
	}
}

func (f *finder) at(s string) *added {
	l := f.byFirst[s[0]]
	for i := range l {
		if strings.HasPrefix(s, l[i].Content) {
			return &l[i]
		}
	}
	return nil
}

func wordBefore(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && isWord(r)
}

func wordAfter(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && isWord(r)
}

func isWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.Is(unicode.Nd, r) || unicode.Is(unicode.Pc, r) || r == 0x200c || r == 0x200d
}
