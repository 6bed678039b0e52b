package token

import "unicode/utf8"

// Byte-level vocabularies spell every byte as one printable rune: printable
// Latin-1 as itself, the rest, in order, from U+0100 on (GPT-2's table).
var (
	byteRune [256]rune
	runeByte [0x144]int16 // -1: not a byte's rune
)

func init() {
	for i := range runeByte {
		runeByte[i] = -1
	}
	next := rune(0x100)
	for b := range rune(256) {
		r := b
		if printable := b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae; !printable {
			r = next
			next++
		}
		byteRune[b] = r
		runeByte[r] = int16(b)
	}
}

// unspell returns the bytes that a token of the vocabulary spells. A token that holds any other rune (an added
// token such as "年") stands for its own UTF-8 bytes; ok is then false.
func unspell(token string) (s string, ok bool) {
	out := make([]byte, 0, len(token))
	for _, r := range token {
		if int(r) >= len(runeByte) || runeByte[r] < 0 {
			return token, false
		}
		out = append(out, byte(runeByte[r]))
	}
	return string(out), true
}

// Text turns bytes into valid UTF-8: each maximal ill-formed part becomes one
// U+FFFD, as Rust, Python and the web platform do (Go's own functions differ).
func Text(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	out := make([]byte, 0, len(b)+8)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n <= 1 {
			n = illFormed(b)
		}
		out = utf8.AppendRune(out, r)
		b = b[n:]
	}
	return string(out)
}

// illFormed returns the length of the maximal subpart at the start of b, which
// does not start with a whole rune: the longest prefix of some valid sequence,
// at least 1 byte.
func illFormed(b []byte) int {
	lo, hi, want := byte(0x80), byte(0xbf), 0
	switch c := b[0]; {
	case c >= 0xc2 && c <= 0xdf:
		want = 1
	case c >= 0xe0 && c <= 0xef:
		want = 2
		if c == 0xe0 {
			lo = 0xa0
		} else if c == 0xed {
			hi = 0x9f
		}
	case c >= 0xf0 && c <= 0xf4:
		want = 3
		if c == 0xf0 {
			lo = 0x90
		} else if c == 0xf4 {
			hi = 0x8f
		}
	}
	n := 1
	for n <= want && n < len(b) && b[n] >= lo && b[n] <= hi {
		lo, hi = 0x80, 0xbf
		n++
	}
	return n
}

// Partial returns how many bytes at the end of b may be the beginning of a rune
// that the next bytes complete; 0 to 3. Streaming output stops before them.
func Partial(b []byte) int {
	for n := 1; n <= 3 && n <= len(b); n++ {
		tail := b[len(b)-n:]
		if tail[0] < 0x80 {
			return 0
		}
		if tail[0] >= 0xc0 {
			if !utf8.FullRune(tail) && illFormed(tail) == n {
				return n
			}
			return 0
		}
	}
	return 0
}
