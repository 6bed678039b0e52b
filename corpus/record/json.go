package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"unicode/utf8"
	"unsafe"

	"searchloop/internal/jsonscan"
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

// Cursor walks over one JSON value in a single pass, for rows of which parts are
// wanted that lie deep. Everything it gives shares memory with the text.
type Cursor struct {
	s     scanner
	depth int
}

// CursorOf stands before the value in b.
func CursorOf(b []byte) *Cursor { return &Cursor{s: scanner{b: b}} }

// Object walks over an object. field is called after each name and walks over
// the value.
func (c *Cursor) Object(field func(name []byte) error) error {
	if c.s.space(); c.s.peek() != '{' {
		return c.s.fail("an object is expected")
	}
	c.depth++
	err := c.s.object(c.depth-1, field)
	c.depth--
	return err
}

// List walks over a list. item walks over an item.
func (c *Cursor) List(item func() error) error {
	if c.s.space(); c.s.peek() != '[' {
		return c.s.fail("a list is expected")
	}
	c.depth++
	err := c.s.array(c.depth-1, item)
	c.depth--
	return err
}

// Raw walks over a value of any kind and gives it undecoded.
func (c *Cursor) Raw() ([]byte, error) {
	c.s.space()
	from := c.s.i
	if err := c.s.skip(c.depth); err != nil {
		return nil, err
	}
	return c.s.b[from:c.s.i], nil
}

// End says whether nothing follows the value.
func (c *Cursor) End() error { return c.s.end() }

// Foreign says whether one of Python's additions to JSON was passed.
func (c *Cursor) Foreign() bool { return c.s.foreign }

// UnquoteJSON decodes a JSON string as EachField gives it. ok is false when raw
// is another kind of value.
func UnquoteJSON(raw []byte) (text string, ok bool, err error) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false, nil
	}
	s := scanner{b: raw}
	text, err = s.str()
	return text, true, err
}

// AppendUnquoted is UnquoteJSON for many texts that share memory: it appends the text
// to dst, which stays as it was where there is none.
func AppendUnquoted(dst, raw []byte) (out []byte, ok bool, err error) {
	if len(raw) == 0 || raw[0] != '"' {
		return dst, false, nil
	}
	s := scanner{b: raw}
	part, escaped, err := s.checked()
	switch {
	case err != nil:
		return dst, true, err
	case !escaped:
		return append(dst, part...), true, nil
	}
	if out, err = s.unescape(dst, part); err != nil {
		out = dst
	}
	return out, true, err
}

// scanner walks over b. All methods stand before or after a whole token.
type scanner struct {
	b       []byte
	i       int
	foreign bool // NaN or Infinity was passed
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
		return Value{kind: Text, text: t}, err
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
		_, err := s.span()
		return err
	case '{':
		return s.sequence(depth, '}', func() error {
			if s.peek() != '"' {
				return s.fail("a field name is expected")
			}
			if _, err := s.span(); err != nil {
				return err
			}
			if err := s.colon(); err != nil {
				return err
			}
			return s.skip(depth + 1)
		})
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
		name, err := s.name()
		if err != nil {
			return err
		}
		if err := s.colon(); err != nil {
			return err
		}
		return value(name)
	})
}

func (s *scanner) colon() error {
	if s.space(); s.peek() != ':' {
		return s.fail("':' is expected")
	}
	s.i++
	return nil
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
	text    string
	kind    Kind
	foreign bool
}{{"null", Null, false}, {"true", Bool, false}, {"false", Bool, false}, {"NaN", Null, true}, {"Infinity", Null, true}, {"-Infinity", Null, true}}

func (s *scanner) scalar() (Kind, error) {
	first := s.peek()
	for _, w := range words {
		if first == w.text[0] && bytes.HasPrefix(s.b[s.i:], []byte(w.text)) {
			s.i += len(w.text)
			s.foreign = s.foreign || w.foreign
			return w.kind, nil
		}
	}
	from := s.i
	if first == '-' {
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
func (s *scanner) span() (raw []byte, err error) {
	s.i++
	from := s.i
	for {
		n := bytes.IndexByte(s.b[s.i:], '"')
		if n < 0 {
			s.i = len(s.b)
			return nil, s.fail("")
		}
		// The quote ends the string unless an odd number of backslashes is before it.
		end := s.i + n
		back := 0
		for end-1-back >= from && s.b[end-1-back] == '\\' {
			back++
		}
		s.i = end + 1
		if back%2 == 0 {
			return s.b[from:end], nil
		}
	}
}

// str decodes a string.
func (s *scanner) str() (string, error) {
	raw, escaped, err := s.checked()
	if err != nil || !escaped {
		return string(raw), err
	}
	out, err := s.unescape(make([]byte, 0, len(raw)), raw)
	if err != nil {
		return "", err
	}
	return unsafe.String(unsafe.SliceData(out), len(out)), nil // nobody else has it
}

// name decodes a field's name. Without escapes, as almost all are, it shares
// memory with b.
func (s *scanner) name() ([]byte, error) {
	raw, escaped, err := s.checked()
	if err != nil || !escaped {
		return raw, err
	}
	return s.unescape(nil, raw)
}

// checked is span with the text checked, but for its escapes.
func (s *scanner) checked() (raw []byte, escaped bool, err error) {
	start := s.i
	if raw, err = s.span(); err != nil {
		return nil, false, err
	}
	if !IsText(raw) {
		s.i = start
		return nil, false, s.fail("the string holds control characters or is not UTF-8")
	}
	return raw, bytes.IndexByte(raw, '\\') >= 0, nil
}

// unescape appends raw, which checked has given, decoded.
func (s *scanner) unescape(dst, raw []byte) ([]byte, error) {
	out, ok := jsonscan.AppendUnescaped(dst, raw)
	if !ok {
		s.i -= len(raw) + 2 // with the quotes
		return dst, s.fail("the string holds an unknown escape")
	}
	return out, nil
}

// IsText says whether b is UTF-8 without bytes below 0x20. It looks at 32 bytes at a
// time, and at eight behind the first that is not ASCII.
func IsText(b []byte) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for len(b) >= 8 {
		for len(b) >= 32 {
			w, x := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
			y, z := binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
			// Of bytes all below 0x80, those below 0x20 borrow.
			if (w|x|y|z|(w-ones*0x20)|(x-ones*0x20)|(y-ones*0x20)|(z-ones*0x20))&high != 0 {
				break
			}
			b = b[32:]
		}
		if len(b) < 8 {
			break
		}
		x := binary.LittleEndian.Uint64(b)
		if (x-ones*0x20)&^x&high != 0 {
			return false
		}
		if x&high == 0 {
			b = b[8:]
			continue
		}
		b = b[bits.TrailingZeros64(x&high)/8:]
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			return false
		}
		b = b[n:]
	}
	for _, c := range b {
		if c < 0x20 {
			return false
		}
	}
	return utf8.Valid(b)
}
