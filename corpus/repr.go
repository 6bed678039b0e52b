package corpus

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// parseRepr reads what Python prints for a string, list, tuple or set of
// strings, and what numpy prints for an array of them. Commas between items are
// optional, because numpy's str writes none: ['Spain' 'ESP'] has two items,
// although Python would join them.
func parseRepr(s string) ([]string, error) {
	p := repr{s: s}
	p.space()
	tuple := p.peek() == '('
	if err := p.value(0); err != nil {
		return nil, err
	}
	if p.space(); p.i < len(p.s) {
		return nil, p.fail("something follows the list")
	}
	if tuple && len(p.items) == 1 && !p.comma {
		return nil, errors.New("a text in parentheses, not a tuple")
	}
	return p.items, nil
}

type repr struct {
	s     string
	i     int
	items []string
	comma bool // a comma was seen
}

func (p *repr) fail(format string, args ...any) error {
	return fmt.Errorf("at byte %d: %s", p.i+1, fmt.Sprintf(format, args...))
}

func (p *repr) space() {
	for p.i < len(p.s) && strings.IndexByte(" \t\r\n", p.s[p.i]) >= 0 {
		p.i++
	}
}

func (p *repr) peek() byte {
	if p.i < len(p.s) {
		return p.s[p.i]
	}
	return 0
}

// take consumes prefix if it comes next.
func (p *repr) take(prefix string) bool {
	if strings.HasPrefix(p.s[p.i:], prefix) {
		p.i += len(prefix)
		return true
	}
	return false
}

var closing = map[byte]byte{'[': ']', '(': ')', '{': '}'}

func (p *repr) value(depth int) error {
	if depth > 32 {
		return p.fail("nested too deeply")
	}
	p.space()
	switch c := p.peek(); {
	case closing[c] != 0:
		p.i++
		return p.sequence(depth, closing[c])
	case p.take("array("), p.take("np.array("), p.take("np.str_("), p.take("numpy.str_("):
		if err := p.value(depth + 1); err != nil {
			return err
		}
		p.space()
		if p.take(",") { // dtype=object, dtype='<U9'
			end := strings.IndexByte(p.s[p.i:], ')')
			if end < 0 || !strings.HasPrefix(strings.TrimSpace(p.s[p.i:]), "dtype=") {
				return p.fail("dtype is expected")
			}
			p.i += end
		}
		if !p.take(")") {
			return p.fail("')' is expected")
		}
		return nil
	case p.take("..."):
		return p.fail("numpy left items out (...): write the list with JSON")
	default:
		return p.item()
	}
}

func (p *repr) sequence(depth int, end byte) error {
	for {
		p.space()
		if p.peek() == end {
			p.i++
			return nil
		}
		if p.i >= len(p.s) {
			return p.fail("%q is missing", end)
		}
		if err := p.value(depth + 1); err != nil {
			return err
		}
		p.space()
		if p.take(",") {
			p.comma = true
		}
	}
}

// item reads a string, a number or a constant.
func (p *repr) item() error {
	start := p.i
	isBytes := false
	if c := p.peek() | 0x20; (c == 'u' || c == 'b') && p.i+1 < len(p.s) && (p.s[p.i+1] == '\'' || p.s[p.i+1] == '"') {
		isBytes = c == 'b'
		p.i++
	}
	if c := p.peek(); c == '\'' || c == '"' {
		s, err := p.str(isBytes)
		if err != nil {
			p.i = start
			return p.fail("%v", err)
		}
		p.items = append(p.items, s)
		return nil
	}
	for p.i < len(p.s) && strings.IndexByte(" \t\r\n,])}", p.s[p.i]) < 0 {
		p.i++
	}
	word := p.s[start:p.i]
	switch word {
	case "None", "nan", "null":
		return nil
	case "True", "False":
		p.items = append(p.items, word)
		return nil
	}
	if _, err := strconv.ParseFloat(word, 64); err != nil {
		p.i = start
		return p.fail("a text in quotes is expected")
	}
	p.items = append(p.items, word)
	return nil
}

func (p *repr) str(isBytes bool) (string, error) {
	quote := p.s[p.i]
	p.i++
	var b []byte
	for p.i < len(p.s) {
		c := p.s[p.i]
		p.i++
		if c == quote {
			if !utf8.Valid(b) {
				return "", errors.New("the text is not UTF-8")
			}
			return string(b), nil
		}
		if c != '\\' {
			b = append(b, c)
			continue
		}
		if p.i == len(p.s) {
			break
		}
		c = p.s[p.i]
		p.i++
		if n := strings.IndexByte(`abfnrtv\'"`, c); n >= 0 {
			b = append(b, "\a\b\f\n\r\t\v\\'\""[n])
			continue
		}
		digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		switch {
		case digits > 0 && (c == 'x' || !isBytes):
			r, err := p.hex(digits)
			if err != nil {
				return "", err
			}
			if utf16.IsSurrogate(r) {
				r = p.pair(r)
			}
			if isBytes {
				b = append(b, byte(r))
			} else {
				b = utf8.AppendRune(b, r)
			}
		case c == '\n': // a continued line
		default: // Python keeps a backslash it has no meaning for
			b = append(b, '\\', c)
		}
	}
	return "", errors.New("a quotation mark is missing")
}

func (p *repr) hex(digits int) (rune, error) {
	if len(p.s)-p.i < digits {
		return 0, errors.New("an escape is cut short")
	}
	n, err := strconv.ParseUint(p.s[p.i:p.i+digits], 16, 32)
	if err != nil || n > utf8.MaxRune {
		return 0, errors.New("an escape is no character")
	}
	p.i += digits
	return rune(n), nil
}

// pair joins the first half of a surrogate pair with the second, if it follows.
func (p *repr) pair(high rune) rune {
	if mark := p.i; p.take(`\u`) {
		if low, err := p.hex(4); err == nil {
			if r := utf16.DecodeRune(high, low); r != utf8.RuneError {
				return r
			}
		}
		p.i = mark
	}
	return utf8.RuneError
}
