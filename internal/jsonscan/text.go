package jsonscan

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// AppendText writes a text as encoding/json does without escaping for HTML.
func AppendText(b []byte, s string) []byte {
	from := len(b)
	b = append(b, '"')
	at := 0
	for i := 0; i < len(s); {
		for len(s)-i >= 8 && plain8(s[i:i+8]) {
			i += 8
		}
		if i == len(s) {
			break
		}
		c := s[i]
		switch {
		case c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\':
			i++
			continue
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 || r == '\u2028' || r == '\u2029' {
				return appendSlow(b[:from], s)
			}
			i += n
			continue
		}
		b = append(b, s[at:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		case '\t':
			b = append(b, `\t`...)
		case '\r':
			b = append(b, `\r`...)
		default:
			return appendSlow(b[:from], s)
		}
		i++
		at = i
	}
	return append(append(b, s[at:]...), '"')
}

// plain8 says whether eight bytes stand for themselves: none is a control character, a
// quote, a backslash or part of a character beyond ASCII.
func plain8(s string) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	_ = s[7]
	x := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
	quote, slash := x^'"'*ones, x^'\\'*ones
	// y-n*ones has the high bit of a byte below n, if no byte has one already.
	return (x|(x-' '*ones)|(quote-ones)|(slash-ones))&high == 0
}

// appendSlow writes a text of rare characters.
func appendSlow(b []byte, s string) []byte {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a text is always written
	return append(b, bytes.TrimSuffix(text.Bytes(), []byte("\n"))...)
}

// Compact takes the spaces between the parts of a JSON text away, in place.
func Compact(text []byte) []byte {
	out, quoted := text[:0], false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\' && i+1 < len(text):
			out = append(out, c)
			i++
			c = text[i]
		case !quoted && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
			continue
		}
		out = append(out, c)
	}
	return out
}
