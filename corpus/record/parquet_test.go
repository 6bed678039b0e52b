package record

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"searchloop/internal/fail"
)

var layouts = []string{"snappy", "groups", "pages", "v2", "plain", "large"}

// TestLayouts reads one table in the layouts of pyarrow.
func TestLayouts(t *testing.T) {
	raw, err := os.ReadFile("testdata/layouts.json")
	if err != nil {
		t.Fatal(err)
	}
	want, err := ParseJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range layouts {
		p, err := OpenParquet(filepath.Join("testdata", name+".parquet"))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if p.Rows() != 32 {
			t.Fatalf("%s: %d rows", name, p.Rows())
		}
		check := func(row int64, column string) {
			t.Helper()
			v, err := p.Get(row, column)
			w := want.Items()[row%4].Get(column)
			if got, want := string(v.AppendJSON(nil)), string(w.AppendJSON(nil)); err != nil || got != want {
				t.Errorf("%s: row %d %s = %s, %v; want %s", name, row, column, got, err, want)
			}
		}
		for _, column := range p.Columns() {
			for row := range p.Rows() {
				check(row, column)
			}
			check(31, column) // again
			check(2, column)  // backwards, over row groups
			check(30, column) // leaping
		}
		if v, err := p.Get(0, "absent"); err != nil || !v.IsNull() {
			t.Errorf("%s: absent column: %v, %v", name, v, err)
		}
		if _, err := p.Get(32, "n"); fail.KindOf(err) != fail.BadInput {
			t.Errorf("%s: row 32: %v", name, err)
		}
	}
}

// twoLevel is a list as old programs wrote it: the repeated field is the item.
type twoLevel struct{ parquet.Group }

func (twoLevel) Type() parquet.Type { return parquet.List(parquet.String()).Type() }

func TestOldLists(t *testing.T) {
	schema := parquet.NewSchema("old", parquet.Group{
		"bare":   parquet.Repeated(parquet.String()),
		"two":    parquet.Optional(twoLevel{parquet.Group{"item": parquet.Repeated(parquet.String())}}),
		"tuples": twoLevel{parquet.Group{"tuples_tuple": parquet.Repeated(parquet.Group{"a": parquet.Leaf(parquet.Int32Type)})}},
	})
	var buf bytes.Buffer
	w := parquet.NewWriter(&buf, schema)
	// Columns in order of their names: bare, tuples.a, two.item.
	row := parquet.Row{
		parquet.ByteArrayValue([]byte("p")).Level(0, 1, 0), parquet.ByteArrayValue([]byte("q")).Level(1, 1, 0),
		parquet.Int32Value(4).Level(0, 1, 1), parquet.Int32Value(5).Level(1, 1, 1),
		parquet.ByteArrayValue([]byte("x")).Level(0, 2, 2), parquet.ByteArrayValue([]byte("y")).Level(1, 2, 2),
	}
	if _, err := w.WriteRows([]parquet.Row{row}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "old.parquet")
	os.WriteFile(path, buf.Bytes(), 0o600)
	p, err := OpenParquet(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for column, want := range map[string]string{"bare": `["p","q"]`, "two": `["x","y"]`, "tuples": `[{"a":4},{"a":5}]`} {
		v, err := p.Get(0, column)
		if got := string(v.AppendJSON(nil)); err != nil || got != want {
			t.Errorf("%s = %s, %v; want %s", column, got, err, want)
		}
	}
}

// readAll reads every cell and returns how many rows came and the first error.
func readAll(path string) (n int64, err error) {
	p, err := OpenParquet(path)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	for n = range p.Rows() {
		for _, c := range p.Columns() {
			if _, err := p.Get(n, c); err != nil {
				return n, err
			}
		}
	}
	return n + 1, nil
}

func TestTruncatedParquet(t *testing.T) {
	for _, name := range layouts {
		whole, err := os.ReadFile(filepath.Join("testdata", name+".parquet"))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "cut.parquet")
		for i := range 64 {
			os.WriteFile(path, whole[:len(whole)*i/64], 0o600)
			_, err := readAll(path)
			if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "cut short") {
				t.Fatalf("%s cut at %d/64: %v", name, i, err)
			}
		}
	}
}

// TestFlippedBits holds that damage gives typed errors or values, never a panic.
func TestFlippedBits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flipped.parquet")
	for _, name := range layouts {
		whole, err := os.ReadFile(filepath.Join("testdata", name+".parquet"))
		if err != nil {
			t.Fatal(err)
		}
		step := max(len(whole)*8/150, 1)
		for bit := 3; bit < len(whole)*8; bit += step {
			damaged := bytes.Clone(whole)
			damaged[bit/8] ^= 1 << (bit % 8)
			os.WriteFile(path, damaged, 0o600)
			if _, err := readAll(path); err != nil && fail.KindOf(err) != fail.BadInput {
				t.Fatalf("%s bit %d: %v", name, bit, err)
			}
		}
	}
}

// TestLZ4 holds that LZ4 is refused before anything is decoded.
func TestLZ4(t *testing.T) {
	var buf bytes.Buffer
	w := parquet.NewGenericWriter[struct{ A string }](&buf, parquet.Compression(&parquet.Lz4Raw))
	w.Write([]struct{ A string }{{"x"}})
	w.Close()
	path := filepath.Join(t.TempDir(), "lz4.parquet")
	os.WriteFile(path, buf.Bytes(), 0o600)
	if _, err := OpenParquet(path); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "LZ4") {
		t.Error(err)
	}
}

func TestNotParquet(t *testing.T) {
	dir := t.TempDir()
	for i, data := range []string{"", "PAR1", "PAR1PAR1", "PAR1\xff\xff\xff\x7fPAR1", "{\"a\": 1}\n", strings.Repeat("x", 1000)} {
		path := filepath.Join(dir, fmt.Sprint(i))
		os.WriteFile(path, []byte(data), 0o600)
		if _, err := OpenParquet(path); fail.KindOf(err) != fail.BadInput {
			t.Errorf("%q: %v", data, err)
		}
	}
	if _, err := OpenParquet(filepath.Join(dir, "absent")); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "absent") {
		t.Errorf("absent file: %v", err)
	}
}
