package eva

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/picture"
	"searchloop/internal/tensor"
)

func load(t testing.TB) *Tower {
	t.Helper()
	tower, err := Load("testdata/clip")
	if err != nil {
		t.Fatal(err)
	}
	return tower
}

// goldenPatches are the golden images, prepared, and timm's vectors of them.
func goldenPatches(t testing.TB, size int) (patches [][]float32, want [][]float64) {
	t.Helper()
	var golden struct {
		Images []struct {
			PNG    []byte
			Vector []float64
		}
	}
	raw, err := os.ReadFile("testdata/clip.json")
	if err == nil {
		err = json.Unmarshal(raw, &golden)
	}
	square, err2 := picture.LoadSquare("testdata/clip")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	for _, im := range golden.Images {
		pic, err := picture.Decode(im.PNG)
		if err != nil {
			t.Fatal(err)
		}
		p, err := square.Patches(pic, size)
		if err != nil {
			t.Fatal(err)
		}
		patches, want = append(patches, p), append(want, im.Vector)
	}
	return patches, want
}

func encode(t testing.TB, tower *Tower, patches ...[]float32) []float32 {
	t.Helper()
	v, err := tower.Encode(slices.Concat(patches...))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestAgainstTimm compares with testdata/golden.py's output, from the file of the
// picture to the vector.
func TestAgainstTimm(t *testing.T) {
	tower := load(t)
	patches, want := goldenPatches(t, tower.Patch())
	if len(want) != 3 {
		t.Fatalf("%d golden images", len(want))
	}
	got := encode(t, tower, patches...)
	for i, w := range want {
		var dot, a, b, worst float64
		for j, x := range w {
			y := float64(got[i*tower.Dim()+j])
			dot, a, b, worst = dot+x*y, a+x*x, b+y*y, max(worst, math.Abs(x-y))
		}
		cos := dot / math.Sqrt(a*b)
		t.Logf("image %d: cosine %.9f, greatest difference %.2g", i, cos, worst)
		if !(cos >= 0.99999) || !(worst < 1e-5) {
			t.Errorf("image %d: cosine %.9f, greatest difference %g", i, cos, worst)
		}
	}
}

// strict is the processor's back end with a GPU's demands.
type strict struct{ tensor.Encoding }

func (strict) Widths() int { return 8 }

// Packs of images in wider matrices, as a device has them, give the same vectors, from
// many callers at once.
func TestDeviceAsProcessor(t *testing.T) {
	tower, err := LoadOn(&tensor.Shared{Encoding: strict{tensor.CPU.(tensor.Encoding)}}, "testdata/clip")
	if err != nil {
		t.Fatal(err)
	}
	host := load(t)
	patches, _ := goldenPatches(t, tower.Patch())
	want := encode(t, host, patches...)
	var wait sync.WaitGroup
	for i := range 20 {
		wait.Go(func() {
			v, err := tower.Encode(slices.Concat(patches[i%3], patches[(i+1)%3]))
			if err != nil {
				t.Error(err)
				return
			}
			for k := range 2 {
				w := want[(i+k)%3*host.Dim():][:host.Dim()]
				for j, x := range v[k*host.Dim():][:host.Dim()] {
					if math.Abs(float64(x-w[j])) > 1e-5 {
						t.Errorf("image %d: %v, the processor's %v", (i+k)%3, x, w[j])
						return
					}
				}
			}
		})
	}
	wait.Wait()
	if err := tower.Close(); err != nil {
		t.Error(err)
	}
	if _, err := tower.Encode(patches[0]); err == nil {
		t.Error("a closed tower encodes")
	}
}

func TestAloneOrTogether(t *testing.T) {
	tower := load(t)
	patches, _ := goldenPatches(t, tower.Patch())
	all := encode(t, tower, patches...)
	old := runtime.GOMAXPROCS(3)
	defer runtime.GOMAXPROCS(old)
	for i, p := range patches {
		if !slices.Equal(encode(t, tower, p), all[i*tower.Dim():(i+1)*tower.Dim()]) {
			t.Errorf("image %d alone differs", i)
		}
	}
	if v := encode(t, tower); len(v) != 0 {
		t.Errorf("no images: %v", v)
	}
	if _, err := tower.Encode(patches[0][1:]); fail.KindOf(err) != fail.BadInput {
		t.Errorf("a part of an image: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	good, err := os.ReadFile("testdata/clip/config.json")
	if err != nil {
		t.Fatal(err)
	}
	weights, err := filepath.Abs("testdata/clip/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string][2]string{
		"clip_vision":   {`"jina_clip"`, `"clip_vision"`},
		"width":         {`"width": 16`, `"width": -1`},
		"head_width":    {`"head_width": 8`, `"head_width": 6`},
		"patches of":    {`"patch_size": 4`, `"patch_size": 40`},
		"mlp_ratio":     {`"mlp_ratio": 2.6667`, `"mlp_ratio": -2`},
		"EVA02":         {`"post_norm": false`, `"post_norm": true`},
		"subln":         {`"subln": true`, `"subln": false`},
		"stretched":     {`"intp_freq": true`, `"intp_freq": false`},
		"projected":     {`"proj_type": null, `, `"proj_type": "mlp", `},
		"add":           {`"add_projections": false`, `"add_projections": 1`},
		"shape":         {`"image_size": 22`, `"image_size": 26`},
		"blocks.2.":     {`"layers": 2`, `"layers": 65000`},
		"config.json (": {`{`, `[`},
	} {
		text := strings.Replace(string(good), c[0], c[1], 1)
		if what == "projected" {
			text = strings.Replace(string(good), "\"proj_type\": null,\n  \"pt_hw", "\"proj_type\": \"mlp\",\n  \"pt_hw", 1)
		}
		if text == string(good) {
			t.Fatalf("%s: nothing changed", what)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(weights, filepath.Join(dir, "model.safetensors")); err != nil {
			t.Fatal(err)
		}
		_, err := Load(dir)
		if want := strings.TrimSuffix(what, " ("); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := Load(t.TempDir()); fail.KindOf(err) != fail.BadInput {
		t.Errorf("an empty folder: %v", err)
	}
}
