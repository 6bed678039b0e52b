package safetensors

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/fail"
)

func image(header string, body int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, body)...)
}

func TestLiesAreRefused(t *testing.T) {
	ok := `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`
	if _, _, _, err := parse(image(ok, 8)); err != nil {
		t.Fatal(err)
	}
	one := func(s string) []byte { return image(`{"a":`+s+`}`, 8) }
	two := func(b string) []byte {
		return image(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},`+b+`}`, 12)
	}
	cases := []struct {
		name string
		file []byte
		want string
	}{
		{"empty", nil, "shorter than"},
		{"short", make([]byte, 7), "shorter than"},
		{"long header", binary.LittleEndian.AppendUint64(nil, 1<<40), "over the limit"},
		{"header past the end", append(binary.LittleEndian.AppendUint64(nil, 100), ok...), "past the end"},
		{"no header", make([]byte, 16), "'{'"},
		{"not JSON", image("{nonsense", 0), "header"},
		{"cut JSON", image(ok[:30], 8), "unexpected EOF"},
		{"text after", image(ok+"x", 8), "follows the JSON"},
		{"second object", image(ok+ok, 8), "follows the JSON"},
		{"bad UTF-8", image("{\"\xff\":1}", 8), "UTF-8"},
		{"list", one(`[]`), "expected"},
		{"no dtype", one(`{"shape":[2],"data_offsets":[0,8]}`), "missing"},
		{"no offsets", one(`{"dtype":"F32","shape":[2]}`), "missing"},
		{"field in capitals", one(`{"DTYPE":"F32","shape":[2],"data_offsets":[0,8]}`), "missing"},
		{"field twice", one(`{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}`), "twice"},
		{"dtype", one(`{"dtype":"F33","shape":[2],"data_offsets":[0,8]}`), "unknown dtype"},
		{"dtype null", one(`{"dtype":null,"shape":[2],"data_offsets":[0,8]}`), "not a string"},
		{"negative", one(`{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}`), "whole number"},
		{"fraction", one(`{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}`), "whole number"},
		{"overflow", one(`{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}`), "too large"},
		{"product wraps to zero", one(`{"dtype":"F32","shape":[9223372036854775807,2],"data_offsets":[0,8]}`), "too large"},
		{"deep", image(`{"a":{"x":`+strings.Repeat("[", 20000), 0), "header"},
		{"many dimensions", one(`{"dtype":"F32","shape":[` + strings.Repeat("1,", 100) + `1],"data_offsets":[0,4]}`), "64 numbers"},
		{"three offsets", one(`{"dtype":"F32","shape":[2],"data_offsets":[0,4,8]}`), "[begin, end]"},
		{"backwards", one(`{"dtype":"F32","shape":[2],"data_offsets":[8,0]}`), "[begin, end]"},
		{"too few bytes", one(`{"dtype":"F32","shape":[2],"data_offsets":[0,4]}`), "does not fill"},
		{"odd bits", one(`{"dtype":"F4","shape":[3],"data_offsets":[0,1]}`), "does not fill"},
		{"outside", one(`{"dtype":"F32","shape":[3],"data_offsets":[0,12]}`), "past the 8 bytes"},
		{"gap at the front", one(`{"dtype":"F32","shape":[1],"data_offsets":[4,8]}`), "gap"},
		{"bytes at the end", one(`{"dtype":"F32","shape":[1],"data_offsets":[0,4]}`), "follow the last"},
		{"overlap", two(`"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}`), "overlaps"},
		{"same bytes twice", two(`"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}`), "overlaps"},
		{"name twice", two(`"a":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}`), "twice"},
		{"name twice, escaped", two(`"\u0061":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}`), "twice"},
		{"metadata number", image(`{"__metadata__":{"x":1}}`, 0), "not a string"},
	}
	dir := t.TempDir()
	for _, c := range cases {
		_, _, _, err := parse(c.file)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		path := filepath.Join(dir, FileName)
		if err := os.WriteFile(path, c.file, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestShards(t *testing.T) {
	dir := t.TempDir()
	index := func(s string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, IndexName), []byte(s), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(want string) {
		t.Helper()
		m, err := Open(dir)
		if err == nil {
			m.Close()
		}
		if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	refused("neither")
	for name, v := range map[string]float32{"x": 1, "y": 2} {
		if err := Write(filepath.Join(dir, name+".safetensors"), []Tensor{{Name: name, DType: "BF16", Shape: []int{1}, F32: []float32{v}}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	index(`{"metadata":{"total_size":4},"weight_map":{"x":"x.safetensors","y":"y.safetensors"}}`)
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if y, err := m.Float32("y"); err != nil || y[0] != 2 {
		t.Errorf("y = %v, %v", y, err)
	}
	if _, err := m.Float32("z"); fail.KindOf(err) != fail.BadInput {
		t.Errorf("z: %v", err)
	}
	if err := m.Read("y", make([]float32, 2)); fail.KindOf(err) != fail.BadInput {
		t.Errorf("wrong length: %v", err)
	}
	m.Close()
	index(`{"weight_map":{"x":"x.safetensors","y":"x.safetensors"}}`)
	refused(`"y"`)
	index(`{"weight_map":{"x":"../x.safetensors"}}`)
	refused("outside")
	index(`{"weight_map":{"x":"absent.safetensors"}}`)
	refused("absent")
	index(`{"weight_map":{}}`)
	refused("empty")
	index(`{"weight_map":`)
	refused("JSON")
	if err := Write(filepath.Join(dir, "z.safetensors"), []Tensor{{Name: "x", DType: "F32", Shape: []int{1}, F32: []float32{1}}, {Name: "z", DType: "F32", Shape: []int{1}, F32: []float32{1}}}, nil); err != nil {
		t.Fatal(err)
	}
	index(`{"weight_map":{"x":"x.safetensors","z":"z.safetensors"}}`)
	refused("is also in")
}

func TestShortenedWhileOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	if err := Write(path, []Tensor{{Name: "x", DType: "F32", Shape: []int{1 << 18}, F32: make([]float32, 1<<18)}}, nil); err != nil {
		t.Fatal(err)
	}
	m, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := os.Truncate(path, 5000); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Float32("x"); fail.KindOf(err) != fail.BadInput {
		t.Errorf("%v", err)
	}
}

func TestWriteRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	for name, tensors := range map[string][]Tensor{
		"twice":    {{Name: "a", DType: "F32", Shape: nil, F32: []float32{1}}, {Name: "a", DType: "F16", Shape: nil, F32: []float32{1}}},
		"shape":    {{Name: "a", DType: "F32", Shape: []int{2}, F32: []float32{1}}},
		"negative": {{Name: "a", DType: "F32", Shape: []int{-1}, F32: nil}},
		"dtype":    {{Name: "a", DType: "I64", Shape: nil, F32: []float32{1}}},
		"name":     {{Name: "__metadata__", DType: "F32", Shape: nil, F32: []float32{1}}},
		"UTF-8":    {{Name: "\xff", DType: "F32", Shape: nil, F32: []float32{1}}},
	} {
		if err := Write(path, tensors, nil); err == nil {
			t.Errorf("%s: written", name)
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a refused file appeared")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(image(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8))
	f.Add(image(`{"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}  `, 2))
	if raw, err := os.ReadFile("testdata/golden.safetensors"); err == nil {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		tensors, _, body, err := parse(file)
		if err != nil {
			return
		}
		covered := 0
		for name, e := range tensors {
			raw := body[e.begin:e.end] // must not panic
			covered += len(raw)
			if w := bits[e.dtype]; uint64(e.elements)*w != uint64(len(raw))*8 {
				t.Fatalf("%q: %d elements in %d bytes", name, e.elements, len(raw))
			}
			if e.dtype == "F32" || e.dtype == "F16" || e.dtype == "BF16" {
				widen(make([]float32, e.elements), raw, e.dtype)
			}
		}
		if covered != len(body) {
			t.Fatalf("tensors cover %d of %d bytes", covered, len(body))
		}
	})
}
