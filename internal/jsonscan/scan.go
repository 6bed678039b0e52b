// Package jsonscan reads JSON texts of a known form in one pass, without reflection:
// long lists of token ids and log-probs, texts of turns, hits of searches. It reads
// what servers write; whatever is unusual (a name with capitals or escapes, invalid
// UTF-8 or JSON, a number too large, a value of another type) makes it give up, and its caller reads the text with encoding/json, which says what is
// wrong with it, or that nothing is. It also writes the texts of such JSON (AppendText).
package jsonscan

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// Scanner reads one text. After a failure every method does nothing and gives the
// zero value.
type Scanner struct {
	text  []byte
	at    int
	depth int
	bad   bool
}

// New begins to read a text, which must not change while it is read.
func New(text []byte) *Scanner { return &Scanner{text: text} }

// maxDepth bounds what is nested in one another.
const maxDepth = 200

// End says whether the whole text was read and was what the caller took it for.
func (s *Scanner) End() bool {
	s.space()
	return !s.bad && s.at == len(s.text)
}

// Fail gives up.
func (s *Scanner) Fail() { s.bad = true }

// Once gives up when a field comes twice; bit i of seen, which is zero before the
// object, is its mark.
func (s *Scanner) Once(seen *uint, i uint) {
	if *seen&(1<<i) != 0 {
		s.bad = true
	}
	*seen |= 1 << i
}

func (s *Scanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// peek is the next byte that is no space; 0 at the end or after a failure.
func (s *Scanner) peek() byte {
	s.space()
	if s.bad || s.at >= len(s.text) {
		return 0
	}
	return s.text[s.at]
}

// eat takes the byte c; anything else is a failure.
func (s *Scanner) eat(c byte) {
	if s.peek() != c || c == 0 {
		s.bad = true
		return
	}
	s.at++
}

// word takes a literal.
func (s *Scanner) word(w string) {
	if s.bad || len(s.text)-s.at < len(w) || string(s.text[s.at:s.at+len(w)]) != w {
		s.bad = true
		return
	}
	s.at += len(w)
}

// Null takes a null, if one comes.
func (s *Scanner) Null() bool {
	if s.peek() != 'n' {
		return false
	}
	s.word("null")
	return !s.bad
}

// Object reads an object: field is called with each name and must read the value. A
// name that comes twice is a failure when field says so; see Once.
func (s *Scanner) Object(field func(name []byte)) {
	s.list('{', '}', func() {
		name, plain := s.quoted()
		for _, c := range name {
			plain = plain && (c < 'A' || c > 'Z') && c < utf8.RuneSelf
		}
		if !plain {
			s.bad = true
		}
		s.eat(':')
		if !s.bad {
			field(name)
		}
	})
}

// Array reads a list: item is called before each value and must read it.
func (s *Scanner) Array(item func()) { s.list('[', ']', item) }

func (s *Scanner) list(open, end byte, item func()) {
	s.eat(open)
	if s.depth++; s.depth > maxDepth {
		s.bad = true
	}
	if s.peek() == end {
		s.at++
		s.depth--
		return
	}
	for !s.bad {
		item()
		if c := s.peek(); c != ',' {
			s.eat(end)
			break
		}
		s.at++
	}
	s.depth--
}

// quoted takes a string and gives what stands between its quotes; plain: it means
// just that.
func (s *Scanner) quoted() (raw []byte, plain bool) {
	s.eat('"')
	if s.bad {
		return nil, false
	}
	plain = true
	from := s.at
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			raw = s.text[from:s.at]
			s.at++
			return raw, plain
		case c < ' ':
			s.bad = true
			return nil, false
		case c == '\\':
			plain = false
			s.at++
		}
	}
	s.bad = true
	return nil, false
}

// String reads a text.
func (s *Scanner) String() string {
	raw, plain := s.quoted()
	switch {
	case s.bad:
		return ""
	case !utf8.Valid(raw):
		s.bad = true
		return ""
	case plain:
		return string(raw)
	}
	out, ok := AppendUnescaped(make([]byte, 0, len(raw)), raw)
	if !ok {
		s.bad = true
		return ""
	}
	return unsafe.String(unsafe.SliceData(out), len(out)) // nobody else has it
}

// AppendUnescaped appends what a JSON string means, from between its quotes; false at
// an escape that JSON does not know. Half a surrogate is U+FFFD, as in encoding/json.
func AppendUnescaped(out, raw []byte) ([]byte, bool) {
	for {
		n := bytes.IndexByte(raw, '\\')
		if n < 0 {
			out = append(out, raw...)
			return out, true
		}
		out = append(out, raw[:n]...)
		raw = raw[n+1:]
		if len(raw) == 0 {
			return out, false
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
				return out, false
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
			return out, false
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

// number takes a number.
func (s *Scanner) number() []byte {
	s.space()
	from := s.at
	digits := func() {
		n := s.at
		for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
			s.at++
		}
		if s.at == n {
			s.bad = true
		}
	}
	is := func(set string) bool {
		if s.at < len(s.text) {
			for i := range len(set) {
				if s.text[s.at] == set[i] {
					s.at++
					return true
				}
			}
		}
		return false
	}
	is("-")
	if !is("0") {
		digits()
	}
	if is(".") {
		digits()
	}
	if is("eE") {
		is("+-")
		digits()
	}
	if s.bad {
		return nil
	}
	return s.text[from:s.at]
}

// Int32 reads a whole number.
func (s *Scanner) Int32() int32 {
	b := s.number()
	n, negative := int64(0), len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 10 {
		s.bad = true
		return 0
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			s.bad = true
			return 0
		}
		n = 10*n + int64(c-'0')
	}
	if negative {
		n = -n
	}
	if n < math.MinInt32 || n > math.MaxInt32 {
		s.bad = true
		return 0
	}
	return int32(n)
}

// Float32 reads a number.
func (s *Scanner) Float32() float32 {
	b := s.number()
	if s.bad {
		return 0
	}
	f, err := strconv.ParseFloat(string(b), 32)
	if err != nil {
		s.bad = true
		return 0
	}
	return float32(f)
}

// room is how many items the list that begins here may have: one more than its commas,
// if it holds no list and no string.
func (s *Scanner) room() int {
	n := 1
	for _, c := range s.text[min(s.at, len(s.text)):] {
		switch c {
		case ',':
			n++
		case ']':
			return n
		}
	}
	return 0
}

// Int32s reads a list of whole numbers; null is nil.
func (s *Scanner) Int32s() (out []int32) {
	if s.peek() != '[' {
		if !s.Null() {
			s.bad = true
		}
		return nil
	}
	out = make([]int32, 0, s.room())
	s.Array(func() { out = append(out, s.Int32()) })
	return out
}

// Float32s reads a list of numbers; null is nil.
func (s *Scanner) Float32s() (out []float32) {
	if s.peek() != '[' {
		if !s.Null() {
			s.bad = true
		}
		return nil
	}
	out = make([]float32, 0, s.room())
	s.Array(func() { out = append(out, s.Float32()) })
	return out
}

// Skip reads any value and gives its text.
func (s *Scanner) Skip() []byte {
	c := s.peek()
	from := s.at
	switch {
	case c == '{':
		s.list('{', '}', func() {
			s.skipString()
			s.eat(':')
			s.Skip()
		})
	case c == '[':
		s.list('[', ']', func() { s.Skip() })
	case c == '"':
		s.skipString()
	case c == 't':
		s.word("true")
	case c == 'f':
		s.word("false")
	case c == 'n':
		s.word("null")
	default:
		s.number()
	}
	if s.bad {
		return nil
	}
	return s.text[from:s.at]
}

// skipString checks a string as String does.
func (s *Scanner) skipString() {
	from := s.at
	if raw, plain := s.quoted(); !plain && !s.bad || !utf8.Valid(raw) {
		s.at = from
		_ = s.String()
	}
}
