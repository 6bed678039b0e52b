package corpus

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"searchloop/corpus/record"
)

// TestPrintedCandidates reads what Python and numpy print; testdata/make.py made
// the file.
func TestPrintedCandidates(t *testing.T) {
	data, err := os.ReadFile("testdata/candidates.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Text string
		Want []string
	}
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) != 40 {
		t.Fatal(len(cases), err)
	}
	for _, c := range cases {
		got, err := ParseCandidates(record.TextOf(c.Text))
		if err != nil || !slices.Equal(got, c.Want) {
			t.Errorf("%s\ngives %q, %v\nwant  %q", c.Text, got, err, c.Want)
		}
	}
}

func TestCandidates(t *testing.T) {
	for in, want := range map[string][]string{
		"":                                     nil,
		" None ":                               nil,
		"null":                                 nil,
		"[]":                                   nil,
		"[null, \"\", \" a \", \"a\"]":         {"a"},
		"[1, 2.50, true, \"x\"]":               {"1", "2.50", "true", "x"},
		`["a", ["b", ["c"]]]`:                  {"a", "b", "c"},
		"['a' 'b'\n 'c']":                      {"a", "b", "c"},
		"['a', 'b' 'c']":                       {"a", "b", "c"},
		"[None, nan, 'a', 7, True]":            {"a", "7", "True"},
		"array(['Spain', 'ESP'], dtype='<U5')": {"Spain", "ESP"},
		"(u'a', b'b\\xc3\\xa9')":               {"a", "bé"},
		`['\ud83c\uddea', '\u0101\x41\U0001F1EA']`: {"🇪", "āA🇪"},
		`['\ud83c']`: {"\uFFFD"},
		`['a\qb', 'c\
d']`: {`a\qb`, "cd"},
		"Spain":                         {"Spain"},
		"1963":                          {"1963"},
		`"Spain"`:                       {"Spain"},
		"'Spain'":                       {"Spain"},
		"(I Can't Get No) Satisfaction": {"(I Can't Get No) Satisfaction"},
		"(1963)":                        {"(1963)"},
		"'Round Midnight":               {"'Round Midnight"},
		"{'a', 'b'}":                    {"a", "b"},
		"nullable":                      {"nullable"},
		"Infinity":                      {"Infinity"},
	} {
		got, err := ParseCandidates(record.TextOf(in))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s gives %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"[a, b]", "['a", "['a'", "['a'] x", "['a' ... 'z']", `{"a": 1}`, `[{"a": 1}]`, "[b'\xff\\xff']", "['\\U99999999']",
		strings.Repeat("[", 1000), "array(['a'], x)", "array(['a'"} {
		if got, err := ParseCandidates(record.TextOf(in)); err == nil {
			t.Errorf("%.40s gives %q", in, got)
		}
	}
	list := record.ListOf([]record.Value{record.TextOf("a"), {}, record.TextOf("b")})
	if got, err := ParseCandidates(list); err != nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Error(got, err)
	}
	if _, err := ParseCandidates(record.BytesOf([]byte{0xff})); err == nil {
		t.Error("bytes that are no text are accepted")
	}
}

// FuzzCandidates holds that whatever is read is clean text and survives being
// written and read again.
func FuzzCandidates(f *testing.F) {
	for _, s := range []string{`["a", "\ud83c\uddea"]`, "['a' 'b']", `array(['x', "y's"], dtype=object)`, "('a',)", "{'a'}", "None", "x", `['\x41\u0101']`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseCandidates(record.TextOf(s))
		if err != nil {
			return
		}
		for _, c := range got {
			if c == "" || c != strings.TrimSpace(c) || utf8.ValidString(s) && !utf8.ValidString(c) {
				t.Fatalf("%q gives %q", s, got)
			}
		}
		if !utf8.ValidString(s) {
			return
		}
		again, err := ParseCandidates(record.TextOf(candidatesJSON(got)))
		if err != nil || !reflect.DeepEqual(again, got) {
			t.Fatalf("%q: %q is read again as %q, %v", s, got, again, err)
		}
	})
}
