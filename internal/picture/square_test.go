package picture

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"searchloop/internal/fail"
)

// TestGoldenSquare: the pixels are torchvision's to the bit, the values to the last digits.
func TestGoldenSquare(t *testing.T) {
	var golden struct {
		Mean, Std [3]float32
		Cases     []struct {
			PNG  []byte
			Side int
			SHA  string
			At   [][4]float64
		}
	}
	data, err := os.ReadFile("testdata/square.json")
	if err == nil {
		err = json.Unmarshal(data, &golden)
	}
	if err != nil || len(golden.Cases) < 10 {
		t.Fatal(err, len(golden.Cases))
	}
	const size = 5
	for i, c := range golden.Cases {
		p, err := Decode(c.PNG)
		if err != nil {
			t.Fatal(err)
		}
		s := Square{c.Side, golden.Mean, golden.Std}
		cut, err := s.Cut(p)
		if err != nil {
			t.Fatal(err)
		}
		if cut.W != c.Side || cut.H != c.Side || digest(cut.Pix) != c.SHA {
			t.Errorf("case %d, %d×%d to %d: pixels differ", i, p.H, p.W, c.Side)
		}
		patches, err := s.Patches(p, size)
		if err != nil {
			t.Fatal(err)
		}
		n := c.Side / size
		if len(patches) != n*n*3*size*size {
			t.Fatalf("case %d: %d numbers in %d patches", i, len(patches), n*n)
		}
		seen := 0
		for _, at := range c.At {
			ch, y, x := int(at[0]), int(at[1]), int(at[2])
			if y/size == n || x/size == n {
				continue // dropped
			}
			seen++
			got := patches[((y/size*n+x/size)*3+ch)*size*size+y%size*size+x%size]
			if math.Abs(float64(got)-at[3]) > 1e-6 {
				t.Errorf("case %d: value %v is %g", i, at, got)
			}
		}
		if seen == 0 {
			t.Errorf("case %d compares no values", i)
		}
	}
	if _, err := (Square{Side: 16}).Cut(&Picture{W: 1, H: 201, Pix: make([]uint8, 603)}); fail.KindOf(err) != fail.BadInput {
		t.Errorf("a strip: %v", err)
	}
}

func TestLoadSquare(t *testing.T) {
	dir := t.TempDir()
	if _, err := LoadSquare(dir); fail.KindOf(err) != fail.BadInput {
		t.Errorf("no file: %v", err)
	}
	for text, side := range map[string]int{
		`{"size": 512, "mean": [0.5, 0.5, 0.5], "std": [1, 2, 3]}`: 512,
		`{"size": [64, 64], "resize_mode": "shortest"}`:            64,
		`{}`:                         224,
		`{"size": [64, 32]}`:         0,
		`{"size": "64"}`:             0,
		`{"size": -1}`:               0,
		`{"size": 1e9}`:              0,
		`{"mean": [1, 2]}`:           0,
		`{"std": [1, 0, 1]}`:         0,
		`{"resize_mode": "squash"}`:  0,
		`{"interpolation": "cubic"}`: 0,
		`[`:                          0,
	} {
		if err := os.WriteFile(filepath.Join(dir, "preprocessor_config.json"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		s, err := LoadSquare(dir)
		if side == 0 && fail.KindOf(err) != fail.BadInput || side > 0 && (err != nil || s.Side != side || s.Std[0] == 0) {
			t.Errorf("%s: %+v, %v", text, s, err)
		}
	}
}
