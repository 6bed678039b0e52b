package record

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"searchloop/internal/fail"
)

func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func gz(data string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(data))
	w.Close()
	return b.Bytes()
}

func zst(data string) []byte {
	w, _ := zstd.NewWriter(nil)
	return w.EncodeAll([]byte(data), nil)
}

// lines gives "n:text" for every line, "n!" for unusable ones.
func lines(path string) (out []string, err error) {
	for l, err := range Lines(path) {
		if err != nil {
			return out, err
		}
		if l.Err != nil {
			out = append(out, fmt.Sprintf("%d!", l.N))
		} else {
			out = append(out, fmt.Sprintf("%d:%s", l.N, l.Data))
		}
	}
	return out, nil
}

func TestLines(t *testing.T) {
	text := "\ufeffone\r\n\n  \ntwo\nlast"
	want := "1:one|4:two|5:last"
	two := append(gz("\ufeffone\r\n\n  \nt"), gz("wo\nlast")...) // gzip files may be joined
	for name, data := range map[string][]byte{"plain": []byte(text), "gz": gz(text), "zst": zst(text), "joined": two} {
		got, err := lines(write(t, "anything", data))
		if s := strings.Join(got, "|"); err != nil || s != want {
			t.Errorf("%s: %q, %v", name, s, err)
		}
	}
	long := strings.Repeat("x", 3<<20)
	got, err := lines(write(t, "long", []byte(long+"\n"+long+"y\nz")))
	if err != nil || len(got) != 3 || got[1] != "2:"+long+"y" || got[2] != "3:z" {
		t.Errorf("long lines: %d, %v", len(got), err)
	}
	if got, err := lines(write(t, "empty", nil)); err != nil || got != nil {
		t.Error(got, err)
	}
}

func TestLineTooLong(t *testing.T) {
	path := write(t, "huge.gz", gz("a\n"+strings.Repeat("x", MaxLine+1)+"\nb\n"))
	got, err := lines(path)
	if s := strings.Join(got, "|"); err != nil || s != "1:a|2!|3:b" {
		t.Errorf("%.40q, %v", s, err)
	}
}

func TestCutText(t *testing.T) {
	text := strings.Repeat("a line of text that repeats\n", 1000)
	for name, data := range map[string][]byte{"gz": gz(text), "zst": zst(text)} {
		for _, n := range []int{5, len(data) / 2, len(data) - 1} {
			path := write(t, "cut."+name, data[:n])
			if _, err := lines(path); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), path) {
				t.Errorf("%s cut at %d: %v", name, n, err)
			}
			for _, err := range Items(path) {
				if fail.KindOf(err) != fail.BadInput {
					if err == nil {
						continue
					}
					t.Errorf("%s cut at %d: %v", name, n, err)
				}
			}
		}
	}
}

func items(path string) (out []string, err error) {
	for it, err := range Items(path, "data_id") {
		if err != nil {
			return out, err
		}
		out = append(out, fmt.Sprintf("%d %s %s", it.N, it.Key, it.Raw))
	}
	return out, nil
}

func TestItems(t *testing.T) {
	for in, want := range map[string]string{
		"{\"data_id\":{\"odd\":1}}\n{\"data_id\":2}\n": `1  {"data_id":{"odd":1}}|2  {"data_id":2}`,
		`{"x":1}`:                               `1  {"x":1}`,
		"not json\n{\"x\":1}":                   `1  not json|2  {"x":1}`,
		"[ {\"a\":1},\n {\"b\":\n2} ]":          "1  {\"a\":1}|2  {\"b\":\n2}",
		`[]`:                                    ``,
		`{}`:                                    `1  {}`,
		``:                                      ``,
		`{"k":{"data_id":"k"},"l":{"a":[1]}}`:   `1 k {"data_id":"k"}|2 l {"a":[1]}`,
		"{\n \"k\": [1, 2],\n \"l\": null\n}\n": `1 k [1, 2]|2 l null`,
	} {
		got, err := items(write(t, "x.json", []byte(in)))
		if s := strings.Join(got, "|"); err != nil || s != want {
			t.Errorf("%q: %q, %v; want %q", in, s, err, want)
		}
	}
	for _, in := range []string{`[{"a":1}, {"b":`, `[{"a":1} {"b":2}]`, `[1] [2]`, `{"k":{}, "l":`, `{"k":{}} x`, `[{"a":1},`} {
		path := write(t, "bad.json", []byte(in))
		if _, err := items(path); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "row") {
			t.Errorf("%s: %v", in, err)
		}
	}
}
