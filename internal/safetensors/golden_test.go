package safetensors

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

type golden struct{ F32, F16, BF16 []uint32 }

func loadGolden(t *testing.T) (g golden, f32 []float32) {
	t.Helper()
	raw, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	for _, b := range g.F32 {
		f32 = append(f32, math.Float32frombits(b))
	}
	return g, f32
}

func TestReadsTheReferencesFile(t *testing.T) {
	m, err := OpenFile("testdata/golden.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	g, f32 := loadGolden(t)
	if want := []string{"empty", "layer.brain <&> é", "layer.half", "layer.weight", "scalar"}; !slices.Equal(m.Names(), want) {
		t.Errorf("names %q", m.Names())
	}
	if m.Metadata()["format"] != "pt" {
		t.Errorf("metadata %v", m.Metadata())
	}
	dtype, shape, ok := m.Info("layer.half")
	if !ok || dtype != "F16" || !slices.Equal(shape, []int{2, 128}) {
		t.Errorf("info %s %v %v", dtype, shape, ok)
	}
	for name, widened := range map[string]func(i int) float32{
		"layer.weight":      func(i int) float32 { return f32[i] },
		"layer.half":        func(i int) float32 { return FromF16(uint16(g.F16[i])) },
		"layer.brain <&> é": func(i int) float32 { return FromBF16(uint16(g.BF16[i])) },
	} {
		x, err := m.Float32(name)
		if err != nil || len(x) != 256 {
			t.Fatalf("%s: %d numbers, %v", name, len(x), err)
		}
		for i := range x {
			if math.Float32bits(x[i]) != math.Float32bits(widened(i)) {
				t.Fatalf("%s[%d] = %g", name, i, x[i])
			}
		}
	}
	if x, err := m.Float32("scalar"); err != nil || len(x) != 1 || x[0] != 2.5 {
		t.Errorf("scalar %v %v", x, err)
	}
	if x, err := m.Float32("empty"); err != nil || len(x) != 0 {
		t.Errorf("empty %v %v", x, err)
	}
}

func TestRoundsAsTheReference(t *testing.T) {
	g, f32 := loadGolden(t)
	for i, x := range f32 {
		if h := ToF16(x); uint32(h) != g.F16[i] {
			t.Errorf("ToF16(%g) = %#04x, want %#04x", x, h, g.F16[i])
		}
		if h := ToBF16(x); uint32(h) != g.BF16[i] {
			t.Errorf("ToBF16(%g) = %#04x, want %#04x", x, h, g.BF16[i])
		}
	}
}

func TestWritesTheReferencesBytes(t *testing.T) {
	_, f32 := loadGolden(t)
	path := filepath.Join(t.TempDir(), FileName)
	err := Write(path, []Tensor{
		{Name: "scalar", DType: "F32", Shape: nil, F32: []float32{2.5}},
		{Name: "layer.brain <&> é", DType: "BF16", Shape: []int{256}, F32: f32},
		{Name: "layer.half", DType: "F16", Shape: []int{2, 128}, F32: f32},
		{Name: "empty", DType: "F32", Shape: []int{0, 4}, F32: nil},
		{Name: "layer.weight", DType: "F32", Shape: []int{16, 16}, F32: f32},
	}, map[string]string{"format": "pt"})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := os.ReadFile(path)
	want, _ := os.ReadFile("testdata/golden.safetensors")
	if !bytes.Equal(got, want) {
		t.Errorf("bytes differ:\n%q\n%q", got[:min(len(got), 500)], want[:500])
	}
}
