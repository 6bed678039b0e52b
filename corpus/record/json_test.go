package record

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParseJSON(t *testing.T) {
	for in, want := range map[string]string{
		` {"b": [1, -2.50e+3, "x"], "a": {"n": null, "t": true}} `: `{"b":[1,-2.50e+3,"x"],"a":{"n":null,"t":true}}`,
		`"\ud83c\uddea\ud83c\uddf8 \u0101 \"\\\/\b\f\n\r\t"`:       `"🇪🇸 ā \"\\/\u0008\u000c\n\r\t"`,
		`"\ud83c x \udde8"`:              `"` + "\uFFFD x \uFFFD" + `"`,
		`"\ud83c\u0041"`:                 `"` + "\uFFFDA" + `"`,
		`[NaN, Infinity, -Infinity, -0]`: `[null,null,null,-0]`,
		`{"a":1,"a":2}`:                  `{"a":1,"a":2}`,
		`[]`:                             `[]`,
		`{}`:                             `{}`,
		`"<&>"`:                          `"<&>"`,
	} {
		v, err := ParseJSON([]byte(in))
		if got := string(v.AppendJSON(nil)); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", in, got, err, want)
		}
	}
	if v, _ := ParseJSON([]byte(`{"a":1,"a":{"b":2}}`)); v.Get("a", "b").String() != "2" {
		t.Error("of equal names the last counts")
	}
}

func TestParseJSONErrors(t *testing.T) {
	for _, in := range []string{
		``, ` `, `{`, `[1`, `[1,]`, `{"a"}`, `{"a":}`, `{a:1}`, `{"a":1,}`, `"abc`, `"a` + "\n" + `b"`, `"\x41"`, `"\u12g4"`, `"\u123`,
		`01`, `1.`, `.5`, `1e`, `+1`, `-`, `tru`, `nul`, `1 2`, `[1] x`, "\"\xff\"", `'a'`, `{"a":1 "b":2}`, strings.Repeat("[", 100000),
	} {
		if v, err := ParseJSON([]byte(in)); err == nil {
			t.Errorf("%.20q gives %s", in, v.AppendJSON(nil))
		}
	}
}

func TestEachField(t *testing.T) {
	var got []string
	err := EachField([]byte(`{"id": 7, "contents":"a\"b" , "skip":{"id":[1,{"id":2}]}, "":""}`), func(name, raw []byte) error {
		got = append(got, string(name), string(raw))
		return nil
	})
	want := []string{"id", "7", "contents", `"a\"b"`, "skip", `{"id":[1,{"id":2}]}`, "", `""`}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if s, ok, err := UnquoteJSON([]byte(`"a\"b"`)); s != `a"b` || !ok || err != nil {
		t.Error(s, ok, err)
	}
	if _, ok, err := UnquoteJSON([]byte(`7`)); ok || err != nil {
		t.Error("a number is no text")
	}
	for _, in := range []string{`[]`, `{"a":[}`, `{"a":1}{}`, `7`, ``} {
		if err := EachField([]byte(in), func(_, _ []byte) error { return nil }); err == nil {
			t.Errorf("%s is accepted", in)
		}
	}
}

func TestWith(t *testing.T) {
	v, _ := ParseJSON([]byte(`{"a":1,"b":2}`))
	w := v.With("a", TextOf("x")).With("c", ListOf([]Value{BytesOf([]byte("hi"))}))
	if got := string(w.AppendJSON(nil)); got != `{"a":"x","b":2,"c":["aGk="]}` {
		t.Error(got)
	}
	if got := string(v.AppendJSON(nil)); got != `{"a":1,"b":2}` {
		t.Error("With changed its receiver:", got)
	}
	if got := string(Value{}.With("k", Value{}).AppendJSON(nil)); got != `{"k":null}` {
		t.Error(got)
	}
}

// FuzzParseJSON holds that we accept what encoding/json accepts and see the
// same in it, and that both scans agree.
func FuzzParseJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,"\ud83c\uddea",null]}`, `"\\\""`, `[[],{}]`, `-1.5e3`, "\"\x00\"", `{"a":"\\"}`, "\"\xf0\x9f\"", `"\ud83c"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		v, err := ParseJSON(in)
		var want any
		wantErr := json.Unmarshal(in, &want)
		if wantErr == nil && utf8.Valid(in) && err != nil && !strings.Contains(err.Error(), "levels") {
			t.Fatalf("%q: %v", in, err)
		}
		if err != nil {
			return
		}
		out := v.AppendJSON(nil)
		var got any
		if err := json.Unmarshal(out, &got); err != nil && !strings.Contains(err.Error(), "cannot unmarshal number") {
			t.Fatalf("%q is written as %q: %v", in, out, err)
		}
		if wantErr == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("%q gives %q", in, out)
		}
		if v.Kind() == Struct {
			n := 0
			if err := EachField(in, func(_, _ []byte) error { n++; return nil }); err != nil || n != len(v.Items()) {
				t.Fatalf("%q: %d fields, %v", in, n, err)
			}
		}
	})
}

func BenchmarkEachField(b *testing.B) {
	line := []byte(`{"id": "12345", "contents": "\"Evan Morris\"\n` + strings.Repeat("Some text of a passage, as long as they are. ", 14) + `"}`)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		EachField(line, func(_, raw []byte) error { UnquoteJSON(raw); return nil })
	}
}

// IsText is UTF-8 and control characters by the standard library, wherever they stand.
func TestIsText(t *testing.T) {
	parts := []string{"", "a", "abcdefgh", "–", "語", "🇪", "\xff", "\xe2\x80", "\x1f", "\x00", " ", "\x7f", "\u0080", "\xed\xa0\x80", "\xc0\xaf", "\n"}
	for i := range 20 {
		for _, a := range parts {
			for _, b := range parts {
				for _, c := range parts {
					s := strings.Repeat("x", i) + a + b + c
					want := utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 })
					if got := IsText([]byte(s)); got != want {
						t.Fatalf("%q: %v", s, got)
					}
				}
			}
		}
	}
}

func TestCursor(t *testing.T) {
	var got []string
	walk := func(text string) (*Cursor, error) {
		got = nil
		c := CursorOf([]byte(text))
		err := c.Object(func(name []byte) error {
			if string(name) != "list" {
				raw, err := c.Raw()
				got = append(got, string(name), string(raw))
				return err
			}
			return c.List(func() error {
				raw, err := c.Raw()
				got = append(got, string(raw))
				return err
			})
		})
		if err == nil {
			err = c.End()
		}
		return c, err
	}
	c, err := walk(` {"a" : {"list":[1]}, "list":[ {"x":"]}"} , null], "n": 2 } `)
	want := []string{"a", `{"list":[1]}`, `{"x":"]}"}`, "null", "n", "2"}
	if err != nil || c.Foreign() || !reflect.DeepEqual(got, want) {
		t.Fatalf("%q, %v, %v", got, c.Foreign(), err)
	}
	if c, err := walk(`{"a": {"b": [1, -Infinity]}}`); err != nil || !c.Foreign() {
		t.Errorf("an addition of Python's is not seen: %v", err)
	}
	for _, bad := range []string{``, `[]`, `{"list": 1}`, `{"list": [1,]}`, `{"a": }`, `{"a": 1} x`, `{"a": 1`, `{"a": ` + strings.Repeat("[", 1000) + `}`} {
		if _, err := walk(bad); err == nil {
			t.Errorf("%.30s is accepted", bad)
		}
	}
}
