package fence

import (
	"strings"
	"unicode"
)

// Visible is text without what nobody can see and a model still reads: control
// characters, zero-width and bidirectional marks, tag characters, variation
// selectors, fillers that look like nothing, glyphs of private fonts. Line ends are
// \n; tabs stay.
func Visible(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r >= ' ' && r <= '~' {
			return r
		}
		if hidden(r) {
			return -1
		}
		return r
	}, strings.ReplaceAll(strings.ToValidUTF8(text, "�"), "\r\n", "\n"))
}

// braille is a pattern without dots.
const braille = '\u2800'

func hidden(r rune) bool {
	switch {
	case unicode.Is(unicode.Prepended_Concatenation_Mark, r): // formats too, but seen
		return false
	case r == '\u2028', r == '\u2029', r == braille:
		return true
	}
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Co, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
