package token

import (
	"sync"
	"unicode"
)

// Classes of a rune as the pre-tokenizer patterns see them.
const (
	other   uint8 = iota // [^\s\p{L}\p{N}]
	letter               // \p{L}
	number               // \p{N}
	space                // \s but not \r, \n
	newline              // \r, \n
	mark                 // \p{M}; counts as other for patterns without \p{M}
)

// planes holds the class of every rune below 0x20000; the few above that are
// letters are looked up. Building it takes some milliseconds, once.
var planes = sync.OnceValue(func() *[0x20000]uint8 {
	t := new([0x20000]uint8)
	for r := range t {
		t[r] = classify(rune(r))
	}
	return t
})

func classify(r rune) uint8 {
	switch {
	case r == '\r' || r == '\n':
		return newline
	case unicode.IsLetter(r) || unicode.Is(newLetters, r):
		return letter
	case unicode.IsNumber(r) || unicode.Is(newNumbers, r):
		return number
	case unicode.IsSpace(r):
		return space
	case unicode.IsMark(r) || unicode.Is(newMarks, r):
		return mark
	}
	return other
}
