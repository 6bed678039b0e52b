package token

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// bertNorm is BERT's normaliser.
type bertNorm struct {
	clean   bool // drop control characters, make every blank a space
	chinese bool // put spaces around ideographs
	strip   bool // drop accents
	lower   bool
}

func (b bertNorm) apply(s string) string {
	out := make([]byte, 0, len(s)+16)
	ascii := true
	for _, r := range s {
		if r >= utf8.RuneSelf {
			ascii = false
		}
		switch {
		case b.clean && isControl(r):
		case b.clean && unicode.IsSpace(r):
			out = append(out, ' ')
		case b.chinese && isIdeograph(r):
			out = append(out, ' ')
			out = utf8.AppendRune(out, r)
			out = append(out, ' ')
		case b.lower && r >= 'A' && r <= 'Z':
			out = append(out, byte(r)+'a'-'A')
		default:
			out = utf8.AppendRune(out, r)
		}
	}
	if ascii {
		return string(out)
	}
	var runes []rune
	switch {
	case b.strip && !norm.NFD.IsNormal(out):
		runes = decompose(string(out))
	case b.strip || b.lower:
		runes = []rune(string(out))
	default:
		return string(out)
	}
	out = out[:0]
	for _, r := range runes {
		if b.strip && isMn(r) {
			continue
		}
		if b.lower {
			if r == 'İ' { // the one rune whose lower case is two
				out = append(out, "i\u0307"...)
				continue
			}
			r = lower(r)
		}
		out = utf8.AppendRune(out, r)
	}
	return string(out)
}

// isControl: Cc, Cf, Co, NUL and the replacement character, but not the three
// blanks among them.
func isControl(r rune) bool {
	switch {
	case r == '\t' || r == '\n' || r == '\r':
		return false
	case r < 0x7f:
		return r < 0x20
	}
	return r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co) && !unicode.Is(laterFormat, r)
}

func isIdeograph(r rune) bool {
	return r >= 0x3400 && (r <= 0x4dbf || r >= 0x4e00 && r <= 0x9fff || r >= 0xf900 && r <= 0xfaff ||
		r >= 0x20000 && r <= 0x2a6df || r >= 0x2a700 && r <= 0x2b73f || r >= 0x2b740 && r <= 0x2b81f ||
		r >= 0x2b920 && r <= 0x2ceaf || r >= 0x2f800 && r <= 0x2fa1f)
}

// bertWords yields the words of s until yield returns false: blanks separate
// and vanish, each punctuation mark is a word.
func bertWords(s string, yield func(string) bool) {
	start := -1
	for i, r := range s {
		blank, punct := false, false
		if r < utf8.RuneSelf {
			blank = r == ' ' || r >= '\t' && r <= '\r'
			punct = r >= '!' && r <= '/' || r >= ':' && r <= '@' || r >= '[' && r <= '`' || r >= '{' && r <= '~'
		} else {
			blank, punct = unicode.IsSpace(r), isPunct(r)
		}
		if !blank && !punct {
			if start < 0 {
				start = i
			}
			continue
		}
		if start >= 0 && !yield(s[start:i]) {
			return
		}
		start = -1
		if punct && !yield(s[i:i+utf8.RuneLen(r)]) {
			return
		}
	}
	if start >= 0 {
		yield(s[start:])
	}
}
