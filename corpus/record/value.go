// Package record reads files whose schema is not ours: JSON lines, JSON
// documents and Parquet. What goes in is a file; what comes out, one row at a
// time, is an untyped Value that knows nulls, text, numbers, bytes, lists and
// structs and nothing of what they mean. It streams: memory is bounded by the
// largest row and, for Parquet, the largest page.
//
// Whatever a file holds, the readers end with an error of package fail and
// never with a panic. They write nothing and change no file.
package record

import (
	"encoding/base64"
	"iter"
	"strconv"
	"unicode/utf8"
)

// Kind is what a Value holds.
type Kind uint8

const (
	Null Kind = iota
	Bool
	Number
	Text
	Bytes
	List
	Struct
)

var kindNames = [...]string{"null", "true or false", "a number", "text", "bytes", "a list", "an object"}

func (k Kind) String() string { return kindNames[k] }

// Value is one untyped value. The zero Value is null. Values are read-only;
// bytes share memory with the reader's page or line.
type Value struct {
	kind  Kind
	text  string   // Text; Bool and Number as they are written in JSON
	bytes []byte   // Bytes
	names []string // Struct: the names of list
	list  []Value  // List and Struct
}

// TextOf, BytesOf and ListOf make values.
func TextOf(s string) Value    { return Value{kind: Text, text: s} }
func BytesOf(b []byte) Value   { return Value{kind: Bytes, bytes: b} }
func ListOf(vs []Value) Value  { return Value{kind: List, list: vs} }
func numberOf(s string) Value  { return Value{kind: Number, text: s} }
func intOf(n int64) Value      { return numberOf(strconv.FormatInt(n, 10)) }
func boolOf(b bool) Value      { return Value{kind: Bool, text: strconv.FormatBool(b)} }
func (v Value) Kind() Kind     { return v.kind }
func (v Value) IsNull() bool   { return v.kind == Null }
func (v Value) Items() []Value { return v.list[:len(v.list):len(v.list)] }

// Get follows names through structs; null when one is absent. Of fields with
// one name the last counts.
func (v Value) Get(path ...string) Value {
next:
	for _, name := range path {
		if v.kind == Struct {
			for i := len(v.names) - 1; i >= 0; i-- {
				if v.names[i] == name {
					v = v.list[i]
					continue next
				}
			}
		}
		return Value{}
	}
	return v
}

// With returns v with the field name set to x; the fields keep their order and
// a new one is last. A null v counts as an empty struct.
func (v Value) With(name string, x Value) Value {
	out := Value{kind: Struct, names: v.names, list: append([]Value(nil), v.list...)}
	for i := len(v.names) - 1; i >= 0; i-- {
		if v.names[i] == name {
			out.list[i] = x
			return out
		}
	}
	out.names = append(v.names[:len(v.names):len(v.names)], name)
	out.list = append(out.list, x)
	return out
}

// Fields goes through a struct in the order of the file.
func (v Value) Fields() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		for i, name := range v.names {
			if !yield(name, v.list[i]) {
				return
			}
		}
	}
}

// String is the text of Text, Number and Bool, and of Bytes that are UTF-8
// (files without type annotations store text so); "" for everything else.
func (v Value) String() string {
	s, _ := v.AsText()
	return s
}

// AsText is String and whether there was text.
func (v Value) AsText() (string, bool) {
	switch v.kind {
	case Text, Number, Bool:
		return v.text, true
	case Bytes:
		if utf8.Valid(v.bytes) {
			return string(v.bytes), true
		}
	}
	return "", false
}

// AsBytes is the content of Bytes, of a list of numbers from 0 to 255, the form in
// which some writers store an array of uint8, and of an object that has such
// numbers under "0", "1", and so on, in order: what JavaScript makes of one.
func (v Value) AsBytes() ([]byte, bool) {
	switch v.kind {
	case Bytes:
		return v.bytes, true
	case Struct:
		for i, name := range v.names {
			if name != strconv.Itoa(i) {
				return nil, false
			}
		}
		fallthrough
	case List:
		if len(v.list) == 0 {
			return nil, false
		}
		out := make([]byte, len(v.list))
		for i, x := range v.list {
			n, err := strconv.ParseUint(x.text, 10, 8)
			if x.kind != Number || err != nil {
				return nil, false
			}
			out[i] = byte(n)
		}
		return out, true
	}
	return nil, false
}

// AppendJSON appends v as JSON: fields in order, text unescaped where JSON
// allows it, numbers as they were written, bytes as base64 text.
func (v Value) AppendJSON(b []byte) []byte {
	switch v.kind {
	case Null:
		return append(b, "null"...)
	case Bool, Number:
		return append(b, v.text...)
	case Text:
		return AppendQuoted(b, v.text)
	case Bytes:
		b = append(b, '"')
		b = base64.StdEncoding.AppendEncode(b, v.bytes)
		return append(b, '"')
	case List:
		b = append(b, '[')
		for i, x := range v.list {
			if i > 0 {
				b = append(b, ',')
			}
			b = x.AppendJSON(b)
		}
		return append(b, ']')
	}
	b = append(b, '{')
	for i, x := range v.list {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendQuoted(b, v.names[i])
		b = append(b, ':')
		b = x.AppendJSON(b)
	}
	return append(b, '}')
}

const hexDigits = "0123456789abcdef"

// AppendQuoted appends s as a JSON string. Only what JSON demands is escaped;
// bytes that are not UTF-8 become U+FFFD.
func AppendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				b = append(append(b, s[from:i]...), "\uFFFD"...)
				from = i + 1
			}
			i += n
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, s[from:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\t':
			b = append(b, '\\', 't')
		case '\r':
			b = append(b, '\\', 'r')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		from = i
	}
	return append(append(b, s[from:]...), '"')
}
