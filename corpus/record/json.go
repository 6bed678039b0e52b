package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds the nesting of JSON, so that a hostile line cannot exhaust
// the stack.
const maxDepth = 256

// ParseJSON reads one JSON value (RFC 8259). Beyond the standard it takes what
// Python's json module writes by default: NaN, Infinity and -Infinity, which
// become null. A lone half of a surrogate pair becomes U+FFFD. The error says at
// which byte.
func ParseJSON(b []byte) (Value, error) {
	s := scanner{b: b}
	v, err := s.value(0)
	if err == nil {
		err = s.end()
	}
	return v, err
}

// EachField calls field for every field of the JSON object in b, with the
// undecoded value, in order. It is how rows of many large files are read without
// decoding what nobody asked for. name and raw share memory with b.
func EachField(b []byte, field func(name, raw []byte) error) error {
	s := scanner{b: b}
	s.space()
	if s.peek() != '{' {
		return s.fail("an object is expected")
	}
	err := s.object(0, func(name []byte) error {
		s.space()
		from := s.i
		if err := s.skip(1); err != nil {
			return err
		}
		return field(name, s.b[from:s.i])
	})
	if err != nil {
		return err
	}
	return s.end()
}

// EachItem calls item for every item of the JSON list in b, undecoded, in order.
// raw shares memory with b.
func EachItem(b []byte, item func(raw []byte) error) error {
	s := scanner{b: b}
	s.space()
	if s.peek() != '[' {
		return s.fail("a list is expected")
	}
	err := s.array(0, func() error {
		s.space()
		from := s.i
		if err := s.skip(1); err != nil {
			return err
		}
		return item(s.b[from:s.i])
	})
	if err != nil {
		return err
	}
	return s.end()
}

// UnquoteJSON decodes a JSON string as EachField gives it. ok is false when raw
// is another kind of value.
func UnquoteJSON(raw []byte) (text string, ok bool, err error) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false, nil
	}
	s := scanner{b: raw}
	t, err := s.str()
	return string(t), true, err
}

// scanner walks over b. All methods stand before or after a whole token.
type scanner struct {
	b []byte
	i int
}

func (s *scanner) fail(format string, args ...any) error {
	if s.i >= len(s.b) {
		return errors.New("JSON ends too early")
	}
	return fmt.Errorf("not JSON at byte %d: %s", s.i+1, fmt.Sprintf(format, args...))
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

func (s *scanner) peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

func (s *scanner) end() error {
	if s.space(); s.i < len(s.b) {
		return s.fail("something follows the value")
	}
	return nil
}

func (s *scanner) value(depth int) (Value, error) {
	s.space()
	switch c := s.peek(); c {
	case '"':
		t, err := s.str()
		return Value{kind: Text, text: string(t)}, err
	case '{':
		v := Value{kind: Struct}
		err := s.object(depth, func(name []byte) error {
			x, err := s.value(depth + 1)
			v.names, v.list = append(v.names, string(name)), append(v.list, x)
			return err
		})
		return v, err
	case '[':
		v := Value{kind: List}
		err := s.array(depth, func() error {
			x, err := s.value(depth + 1)
			v.list = append(v.list, x)
			return err
		})
		return v, err
	default:
		from := s.i
		kind, err := s.scalar()
		if err != nil || kind == Null {
			return Value{}, err
		}
		return Value{kind: kind, text: string(s.b[from:s.i])}, nil
	}
}

// skip passes over one value, checking its structure but not the text in it.
func (s *scanner) skip(depth int) error {
	s.space()
	switch s.peek() {
	case '"':
		_, _, err := s.span()
		return err
	case '{':
		return s.object(depth, func([]byte) error { return s.skip(depth + 1) })
	case '[':
		return s.array(depth, func() error { return s.skip(depth + 1) })
	}
	_, err := s.scalar()
	return err
}

func (s *scanner) object(depth int, value func(name []byte) error) error {
	return s.sequence(depth, '}', func() error {
		if s.peek() != '"' {
			return s.fail("a field name is expected")
		}
		name, err := s.str()
		if err != nil {
			return err
		}
		if s.space(); s.peek() != ':' {
			return s.fail("':' is expected")
		}
		s.i++
		return value(name)
	})
}

func (s *scanner) array(depth int, value func() error) error {
	return s.sequence(depth, ']', value)
}

func (s *scanner) sequence(depth int, closing byte, item func() error) error {
	if depth >= maxDepth {
		return s.fail("more than %d levels", maxDepth)
	}
	s.i++
	if s.space(); s.peek() == closing {
		s.i++
		return nil
	}
	for {
		s.space()
		if err := item(); err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case closing:
			s.i++
			return nil
		case ',':
			s.i++
		default:
			return s.fail("',' or %q is expected", closing)
		}
	}
}

var words = []struct {
	text string
	kind Kind
}{{"null", Null}, {"true", Bool}, {"false", Bool}, {"NaN", Null}, {"Infinity", Null}, {"-Infinity", Null}}

func (s *scanner) scalar() (Kind, error) {
	for _, w := range words {
		if bytes.HasPrefix(s.b[s.i:], []byte(w.text)) {
			s.i += len(w.text)
			return w.kind, nil
		}
	}
	from := s.i
	if s.peek() == '-' {
		s.i++
	}
	lead := s.peek()
	n := s.digits()
	ok := n > 0 && (lead != '0' || n == 1)
	if ok && s.peek() == '.' {
		s.i++
		ok = s.digits() > 0
	}
	if ok && (s.peek()|0x20) == 'e' {
		s.i++
		if c := s.peek(); c == '+' || c == '-' {
			s.i++
		}
		ok = s.digits() > 0
	}
	if !ok {
		if s.i < len(s.b) {
			s.i = from
		}
		return Null, s.fail("no value")
	}
	return Number, nil
}

func (s *scanner) digits() int {
	from := s.i
	for s.i < len(s.b) && s.b[s.i]-'0' < 10 {
		s.i++
	}
	return s.i - from
}

// span finds the end of the string that begins at i, stands behind it and gives
// what is between the quotes, undecoded.
func (s *scanner) span() (raw []byte, escaped bool, err error) {
	s.i++
	from := s.i
	for {
		n := bytes.IndexByte(s.b[s.i:], '"')
		if n < 0 {
			s.i = len(s.b)
			return nil, false, s.fail("")
		}
		// The quote ends the string unless an odd number of backslashes is before it.
		end := s.i + n
		back := 0
		for end-1-back >= from && s.b[end-1-back] == '\\' {
			back++
		}
		s.i = end + 1
		if back%2 == 0 {
			raw = s.b[from:end]
			return raw, bytes.IndexByte(raw, '\\') >= 0, nil
		}
	}
}

// str decodes a string. Without escapes the result shares memory with b.
func (s *scanner) str() ([]byte, error) {
	start := s.i
	raw, escaped, err := s.span()
	if err != nil {
		return nil, err
	}
	if HasControl(raw) || !utf8.Valid(raw) {
		s.i = start
		return nil, s.fail("the string holds control characters or is not UTF-8")
	}
	if !escaped {
		return raw, nil
	}
	out, ok := unescape(raw)
	if !ok {
		s.i = start
		return nil, s.fail("the string holds an unknown escape")
	}
	return out, nil
}

// HasControl looks for bytes below 0x20, eight at a time.
func HasControl(b []byte) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for len(b) >= 8 {
		x := binary.LittleEndian.Uint64(b)
		if (x-ones*0x20)&^x&high != 0 {
			return true
		}
		b = b[8:]
	}
	for _, c := range b {
		if c < 0x20 {
			return true
		}
	}
	return false
}

func unescape(raw []byte) ([]byte, bool) {
	out := make([]byte, 0, len(raw))
	for {
		n := bytes.IndexByte(raw, '\\')
		if n < 0 {
			return append(out, raw...), true
		}
		out = append(out, raw[:n]...)
		raw = raw[n+1:]
		if len(raw) == 0 {
			return nil, false
		}
		c := raw[0]
		raw = raw[1:]
		switch c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, ok := hex4(raw)
			if !ok {
				return nil, false
			}
			raw = raw[4:]
			if utf16.IsSurrogate(r) {
				pair := rune(utf8.RuneError)
				if len(raw) >= 6 && raw[0] == '\\' && raw[1] == 'u' {
					if low, ok := hex4(raw[2:]); ok {
						pair = utf16.DecodeRune(r, low)
					}
				}
				if pair != utf8.RuneError {
					raw = raw[6:]
				}
				r = pair
			}
			out = utf8.AppendRune(out, r)
		default:
			return nil, false
		}
	}
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case c-'0' < 10:
			r = r<<4 | rune(c-'0')
		case (c|0x20)-'a' < 6:
			r = r<<4 | rune((c|0x20)-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}
