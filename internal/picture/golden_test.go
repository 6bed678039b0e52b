package picture

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"sync"
	"testing"
)

type goldenFile struct {
	Files []struct {
		Name string `json:"name"`
		Data []byte `json:"data"`
		W    int    `json:"w"`
		H    int    `json:"h"`
		SHA  string `json:"sha"`
		RGB  []byte `json:"rgb"`
	} `json:"files"`
	Resizes []struct {
		PNG    []byte `json:"png"`
		H2, W2 int
		SHA    string `json:"sha"`
	} `json:"resizes"`
	Sizes   [][6]json.RawMessage `json:"sizes"`
	Patches struct {
		PNG  []byte       `json:"png"`
		Grid [3]int32     `json:"grid"`
		SHA  string       `json:"sha"`
		At   [][3]float64 `json:"at"`
	} `json:"patches"`
}

var golden = sync.OnceValue(func() *goldenFile {
	data, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		panic(err)
	}
	g := new(goldenFile)
	if err := json.Unmarshal(data, g); err != nil {
		panic(err)
	}
	return g
})

func digest(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// TestGoldenDecode: all but JPEG give Pillow's bytes; JPEG nearly so (its cosine
// transforms round differently).
func TestGoldenDecode(t *testing.T) {
	for _, f := range golden().Files {
		p, err := Decode(f.Data)
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		if p.W != f.W || p.H != f.H || len(p.Pix) != 3*p.W*p.H {
			t.Errorf("%s: %d×%d with %d bytes, want %d×%d", f.Name, p.W, p.H, len(p.Pix), f.W, f.H)
			continue
		}
		if f.SHA != "" {
			if digest(p.Pix) != f.SHA {
				t.Errorf("%s: pixels differ", f.Name)
			}
			continue
		}
		sum := 0.0
		for i, v := range p.Pix {
			sum += math.Abs(float64(v) - float64(f.RGB[i]))
		}
		if mean := sum / float64(len(p.Pix)); mean > 1 {
			t.Errorf("%s: pixels are %.2f levels off on average", f.Name, mean)
		}
	}
}

func TestGoldenResize(t *testing.T) {
	for i, r := range golden().Resizes {
		p, err := Decode(r.PNG)
		if err != nil {
			t.Fatal(err)
		}
		before := digest(p.Pix)
		q := p.Resize(r.H2, r.W2)
		if q.H != r.H2 || q.W != r.W2 || digest(q.Pix) != r.SHA {
			t.Errorf("%d: %d×%d to %d×%d differs from Pillow's", i, p.H, p.W, r.H2, r.W2)
		}
		if digest(p.Pix) != before {
			t.Errorf("%d: the source changed", i)
		}
	}
}

func TestGoldenSizes(t *testing.T) {
	num := func(raw json.RawMessage) (n int) {
		if err := json.Unmarshal(raw, &n); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, s := range golden().Sizes {
		var want []int
		if err := json.Unmarshal(s[5], &want); err != nil {
			t.Fatal(err)
		}
		h, w, err := SmartResize(num(s[0]), num(s[1]), num(s[2]), num(s[3]), num(s[4]))
		switch {
		case (err != nil) != (len(want) == 0):
			t.Errorf("%s: %v, want %v", s, err, want)
		case err == nil && (h != want[0] || w != want[1]):
			t.Errorf("%s: %d×%d, want %v", s, h, w, want)
		}
	}
}

// TestPublishedSizes are sizes and token counts as the published processors give them.
func TestPublishedSizes(t *testing.T) {
	for _, c := range []struct{ h, w, h25, w25, n25, h3, w3, n3 int }{
		{480, 640, 476, 644, 391, 480, 640, 300}, {1080, 1920, 1092, 1932, 2691, 1088, 1920, 2040}, {70, 420, 56, 420, 30, 128, 640, 80},
		{42, 1000, 56, 1008, 72, 64, 1280, 80}, {20, 20, 56, 56, 4, 256, 256, 64}, {5000, 4000, 4004, 3192, 16302, 4576, 3648, 16302},
		{3024, 4032, 3024, 4032, 15552, 3008, 4032, 11844},
	} {
		h, w, err := SmartResize(c.h, c.w, 28, 3136, 12845056)
		if err != nil || h != c.h25 || w != c.w25 || h*w/28/28 != c.n25 {
			t.Errorf("%d×%d by 28: %d×%d %v", c.h, c.w, h, w, err)
		}
		h, w, err = SmartResize(c.h, c.w, 32, 65536, 16777216)
		if err != nil || h != c.h3 || w != c.w3 || h*w/32/32 != c.n3 {
			t.Errorf("%d×%d by 32: %d×%d %v", c.h, c.w, h, w, err)
		}
	}
	if h, w, err := SmartResize(11, 2000, 28, 3136, 12845056); err != nil || h != 28 || w != 756 {
		t.Errorf("11×2000: %d×%d %v", h, w, err)
	}
}

func TestGoldenPatches(t *testing.T) {
	g := golden().Patches
	pic, err := Decode(g.PNG)
	if err != nil {
		t.Fatal(err)
	}
	p := Processor{PatchSize: 16, MergeSize: 2, TemporalPatch: 2, MinPixels: 1024, MaxPixels: 65536, Mean: [3]float32{.5, .5, .5}, Std: [3]float32{.5, .5, .5}}
	grid, patches, err := p.Patches(pic)
	if err != nil || grid != g.Grid {
		t.Fatalf("grid %v, want %v: %v", grid, g.Grid, err)
	}
	if want := int(grid[1]*grid[2]) * 3 * 2 * 16 * 16; len(patches) != want {
		t.Fatalf("%d values, want %d", len(patches), want)
	}
	levels := make([]byte, len(patches))
	for i, v := range patches {
		levels[i] = byte(math.RoundToEven((float64(v) + 1) * 127.5))
	}
	if digest(levels) != g.SHA {
		t.Error("patches are in another order or of other values")
	}
	for _, at := range g.At {
		if got := patches[int(at[0])*1536+int(at[1])]; math.Abs(float64(got)-at[2]) > 1e-6 {
			t.Errorf("patch %v value %v is %v, want %v", at[0], at[1], got, at[2])
		}
	}
	again, err := p.PatchesFor(pic, grid)
	if err != nil || len(again) != len(patches) {
		t.Fatal(err)
	}
	for i := range again {
		if again[i] != patches[i] {
			t.Fatal("a given grid gives other patches")
		}
	}
	if p.Tokens(grid) != int(grid[1]*grid[2])/4 {
		t.Error("token count")
	}
}
