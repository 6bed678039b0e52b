package protocol

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// errJSON5 is all that is said of a text that is none: the model gets one sentence.
var errJSON5 = errors.New("not JSON5")

// maxDepth bounds nesting.
const maxDepth = 64

// parseJSON5 reads a JSON5 value (json5.org): JSON with comments, trailing commas,
// single quotes, bare keys, hexadecimal numbers, a leading plus or a bare decimal
// point. Objects become map[string]any, lists []any, numbers float64; Infinity and
// NaN are refused, since no argument can be one. The last of equal keys counts.
func parseJSON5(text string) (any, error) {
	p := &json5{text: text}
	v, ok := p.value(0)
	if !ok || !p.space() || p.at < len(p.text) {
		return nil, errJSON5
	}
	return v, nil
}

type json5 struct {
	text string
	at   int
}

// space skips white space and comments; false for a comment that does not end.
func (p *json5) space() bool {
	for p.at < len(p.text) {
		rest := p.text[p.at:]
		switch {
		case strings.HasPrefix(rest, "//"):
			n := strings.IndexAny(rest, "\n\r")
			if n < 0 {
				n = len(rest)
			}
			p.at += n
		case strings.HasPrefix(rest, "/*"):
			n := strings.Index(rest[2:], "*/")
			if n < 0 {
				return false
			}
			p.at += n + 4
		default:
			r, n := utf8.DecodeRuneInString(rest)
			if !unicode.IsSpace(r) && r != '\uFEFF' {
				return true
			}
			p.at += n
		}
	}
	return true
}

// take skips space and then c, if it is there.
func (p *json5) take(c byte) bool {
	if p.space() && p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *json5) value(depth int) (any, bool) {
	if !p.space() || p.at >= len(p.text) || depth > maxDepth {
		return nil, false
	}
	switch c := p.text[p.at]; {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.list(depth)
	case c == '"' || c == '\'':
		return p.quoted()
	case c == '-' || c == '+' || c == '.' || c >= '0' && c <= '9':
		return p.number()
	}
	switch p.name() {
	case "true":
		return true, true
	case "false":
		return false, true
	case "null":
		return nil, true
	}
	return nil, false
}

func (p *json5) object(depth int) (any, bool) {
	p.at++
	out := map[string]any{}
	for !p.take('}') {
		var key string
		if p.at < len(p.text) && (p.text[p.at] == '"' || p.text[p.at] == '\'') {
			s, ok := p.quoted()
			if !ok {
				return nil, false
			}
			key = s.(string)
		} else if key = p.name(); key == "" {
			return nil, false
		}
		if !p.take(':') {
			return nil, false
		}
		v, ok := p.value(depth + 1)
		if !ok {
			return nil, false
		}
		out[key] = v
		if !p.take(',') {
			return out, p.take('}')
		}
	}
	return out, true
}

func (p *json5) list(depth int) (any, bool) {
	p.at++
	out := []any{}
	for !p.take(']') {
		v, ok := p.value(depth + 1)
		if !ok {
			return nil, false
		}
		out = append(out, v)
		if !p.take(',') {
			return out, p.take(']')
		}
	}
	return out, true
}

// name reads an identifier; "" when there is none.
func (p *json5) name() string {
	from := p.at
	for p.at < len(p.text) {
		r, n := utf8.DecodeRuneInString(p.text[p.at:])
		if !(unicode.IsLetter(r) || r == '_' || r == '$' || p.at > from && (unicode.IsDigit(r) || unicode.Is(unicode.Mn, r))) {
			break
		}
		p.at += n
	}
	return p.text[from:p.at]
}

func (p *json5) number() (any, bool) {
	from := p.at
	sign := 1.0
	if c := p.text[p.at]; c == '-' || c == '+' {
		if c == '-' {
			sign = -1
		}
		p.at++
	}
	digits := p.at
	for p.at < len(p.text) && strings.IndexByte("0123456789abcdefABCDEFxX.+-", p.text[p.at]) >= 0 {
		// A sign belongs to the number only in an exponent.
		if c := p.text[p.at]; (c == '+' || c == '-') && (p.at == digits || p.text[p.at-1] != 'e' && p.text[p.at-1] != 'E') {
			break
		}
		p.at++
	}
	s := p.text[digits:p.at]
	if h, ok := strings.CutPrefix(strings.ToLower(s), "0x"); ok {
		n, err := strconv.ParseUint(h, 16, 53)
		return sign * float64(n), err == nil
	}
	if len(s) > 1 && s[0] == '0' && s[1] >= '0' && s[1] <= '9' || p.at-from > 400 {
		return nil, false
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(n, 0) || strings.ContainsAny(s, "_xXpP") {
		return nil, false
	}
	return sign * n, true
}

func (p *json5) quoted() (any, bool) {
	quote := p.text[p.at]
	p.at++
	var b strings.Builder
	for p.at < len(p.text) {
		c := p.text[p.at]
		switch {
		case c == quote:
			p.at++
			return b.String(), true
		case c == '\\':
			if !p.escape(&b) {
				return nil, false
			}
		default:
			// A bare line end is an error in JSON5; models write it, and mean it.
			b.WriteByte(c)
			p.at++
		}
	}
	return nil, false
}

// escape reads one escape sequence.
func (p *json5) escape(b *strings.Builder) bool {
	p.at++
	if p.at >= len(p.text) {
		return false
	}
	r, n := utf8.DecodeRuneInString(p.text[p.at:])
	p.at += n
	switch r {
	case 'n', 'r', 't', 'b', 'f', 'v', '0':
		b.WriteByte("\n\r\t\b\f\v\x00"[strings.IndexRune("nrtbfv0", r)])
	case '\n', '\u2028', '\u2029': // a line that goes on
	case '\r':
		if p.at < len(p.text) && p.text[p.at] == '\n' {
			p.at++
		}
	case 'x', 'u':
		size := 2
		if r == 'u' {
			size = 4
		}
		v, ok := p.hex(size)
		if !ok {
			return false
		}
		if v >= 0xD800 && v < 0xDC00 && strings.HasPrefix(p.text[p.at:], `\u`) { // half of a pair
			at := p.at
			p.at += 2
			if low, ok := p.hex(4); ok && low >= 0xDC00 && low < 0xE000 {
				v = 0x10000 + (v-0xD800)<<10 + low - 0xDC00
			} else {
				p.at = at
			}
		}
		b.WriteRune(v) // a lone half becomes U+FFFD
	default:
		b.WriteRune(r)
	}
	return true
}

func (p *json5) hex(n int) (rune, bool) {
	if p.at+n > len(p.text) {
		return 0, false
	}
	v, err := strconv.ParseUint(p.text[p.at:p.at+n], 16, 32)
	p.at += n
	return rune(v), err == nil
}
