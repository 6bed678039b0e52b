package record

import (
	"os"
	"path/filepath"
	"testing"

	"searchloop/internal/fail"
)

func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e3,"\ud83d\ude00",null,NaN]}`, `[]`, `"x"`, `{"a":{"a":{}}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := ParseJSON(b)
		if err != nil {
			return
		}
		// What is written is read back the same.
		text := v.AppendJSON(nil)
		again, err := ParseJSON(text)
		if err != nil || string(again.AppendJSON(nil)) != string(text) {
			t.Fatalf("%q became %q: %v", b, text, err)
		}
		EachField(b, func(name, raw []byte) error {
			if _, err := ParseJSON(raw); err != nil {
				t.Fatalf("%q: field %q is %q: %v", b, name, raw, err)
			}
			return nil
		})
	})
}

// FuzzFields holds that fields read one by one, undecoded, are those of the value
// read as a whole.
func FuzzFields(f *testing.F) {
	for _, s := range []string{`{"id": "1", "contents": "\"T\"\nt\u00e9 \ud83d"}`, `{"a":1,"a":{"b":["\\"]},"\u0061":null}`, `{"a":"\x"}`, `{"a":tru}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		whole, err := ParseJSON(b)
		if err != nil || whole.Kind() != Struct {
			return
		}
		i := 0
		err = EachField(b, func(name, raw []byte) error {
			want := whole.list[i]
			if string(name) != whole.names[i] {
				t.Fatalf("%q: field %d is %q, not %q", b, i, name, whole.names[i])
			}
			i++
			text, ok, err := UnquoteJSON(raw)
			if err != nil || ok != (want.Kind() == Text) || ok && text != want.String() {
				t.Fatalf("%q: field %q is %q (%v, %v), not %v", b, name, text, ok, err, want)
			}
			if v, err := ParseJSON(raw); err != nil || string(v.AppendJSON(nil)) != string(want.AppendJSON(nil)) {
				t.Fatalf("%q: field %q is %q: %v", b, name, raw, err)
			}
			return nil
		})
		if err != nil || i != len(whole.names) {
			t.Fatalf("%q: %d fields of %d: %v", b, i, len(whole.names), err)
		}
	})
}

// FuzzItems reads files in every form of JSON, compressed or not.
func FuzzItems(f *testing.F) {
	for _, s := range []string{"{\"id\":1}\n{\"id\":2}\n", `[{"id":1},{"id":2}]`, `{"a":{"id":1}}`, "{\n\"id\":1}\n{\n\"id\":2}", "\x1f\x8b\x08", "\x28\xb5\x2f\xfd"} {
		f.Add([]byte(s))
	}
	f.Add(gz("{\"id\":1}\n"))
	f.Add(zst("{\"id\":1}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "items")
		os.WriteFile(path, b, 0o600)
		for _, err := range Items(path, "id") {
			if err != nil && fail.KindOf(err) != fail.BadInput {
				t.Fatal(err)
			}
		}
	})
}

func FuzzParquetFile(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.parquet")
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil && len(data) < 1<<20 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "f.parquet")
		os.WriteFile(path, b, 0o600)
		if _, err := readAll(path); err != nil && fail.KindOf(err) != fail.BadInput {
			t.Fatal(err)
		}
	})
}
