package record

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"searchloop/internal/fail"
)

func numbered(l Line) string {
	if l.Err != nil {
		return fmt.Sprintf("%d!", l.N)
	}
	return fmt.Sprintf("%d:%s", l.N, l.Data)
}

// mapped is what lines gives, by mapLines with blocks of a size.
func mapped(path string, size int) (out []string, err error) {
	for s, err := range mapLines(path, size, func() func(Line) string { return numbered }) {
		if err != nil {
			return out, err
		}
		out = append(out, s)
	}
	return out, nil
}

// cut is what lines should give, by the standard library.
func cut(text []byte) (out []string) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	for i, line := range bytes.Split(text, []byte("\n")) {
		if line = bytes.TrimRight(line, "\r"); len(bytes.TrimSpace(line)) > 0 {
			out = append(out, fmt.Sprintf("%d:%s", i+1, line))
		}
	}
	return out
}

// TestBlocks cuts files at every place: between the bytes of a line end, in a
// mark, within long lines.
func TestBlocks(t *testing.T) {
	text := "\ufeffone\r\n\r\n  \ntwo\n" + strings.Repeat("long ", 30) + "\n\nthree\r\r\nlast"
	for name, data := range map[string][]byte{"plain": []byte(text), "gz": gz(text), "zst": zst(text), "with end": []byte(text + "\r\n"), "blank": []byte("\n\n"), "empty": nil} {
		path := write(t, "f", data)
		want := cut([]byte(text))
		switch name {
		case "blank", "empty":
			want = nil
		}
		for size := 1; size < 64; size++ {
			if got, err := mapped(path, size); err != nil || !slices.Equal(got, want) {
				t.Fatalf("%s in blocks of %d: %q, %v; want %q", name, size, got, err, want)
			}
		}
		if got, err := lines(path); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestMapLinesKeepsOrder(t *testing.T) {
	var text bytes.Buffer
	for i := range 40000 {
		fmt.Fprintf(&text, "%d %s\n", i, strings.Repeat("x", i%200))
		if i == 20000 {
			text.WriteString(strings.Repeat("y", 10<<20) + "\n")
		}
	}
	path := write(t, "f", text.Bytes())
	want := cut(text.Bytes())
	if got, err := mapped(path, blockBytes); err != nil || !slices.Equal(got, want) {
		t.Fatalf("%d lines, want %d, or others: %v", len(got), len(want), err)
	}
	n := 0
	for range MapLines(path, func() func(Line) int64 { return func(l Line) int64 { return l.N } }) {
		if n++; n == 30000 {
			break // nothing waits for what nobody reads
		}
	}
}

func TestMapLinesErrors(t *testing.T) {
	path := write(t, "huge.gz", gz("a\n"+strings.Repeat("x", MaxLine+1)+"\nb\n"+strings.Repeat("y", MaxLine+1)))
	got, err := mapped(path, blockBytes)
	if s := strings.Join(got, "|"); err != nil || s != "1:a|2!|3:b|4!" {
		t.Errorf("%.40q, %v", s, err)
	}
	whole := gz(strings.Repeat("a line of text that repeats\n", 1000))
	path = write(t, "cut.gz", whole[:len(whole)/2])
	got, err = mapped(path, 100)
	if len(got) == 0 || fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), path) {
		t.Errorf("%d lines of a cut file, %v", len(got), err)
	}
	if _, err := mapped(path+".absent", 100); fail.KindOf(err) != fail.BadInput {
		t.Error(err)
	}
}

// FuzzLines holds that lines do not depend on where blocks end.
func FuzzLines(f *testing.F) {
	for _, s := range []string{"a\r\nb\n\n c", "\ufeffx\n", "\n", "one\rtwo\n\r\n"} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, size uint8) {
		if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) || bytes.HasPrefix(data, []byte{0x28, 0xb5, 0x2f, 0xfd}) {
			return // compressed
		}
		path := filepath.Join(t.TempDir(), "f")
		os.WriteFile(path, data, 0o600)
		got, err := mapped(path, int(size)+1)
		if want := cut(data); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%q in blocks of %d: %q, %v; want %q", data, int(size)+1, got, err, want)
		}
	})
}
