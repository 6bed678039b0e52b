package picture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"searchloop/internal/fail"
)

// pngHeader is a PNG that claims a size and holds no pixels.
func pngHeader(w, h uint32) []byte {
	var b bytes.Buffer
	b.WriteString("\x89PNG\r\n\x1a\n")
	body := append([]byte("IHDR"), binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, w), h)...)
	body = append(body, 8, 2, 0, 0, 0)
	_ = binary.Write(&b, binary.BigEndian, uint32(13))
	b.Write(body)
	_ = binary.Write(&b, binary.BigEndian, crc32.ChecksumIEEE(body))
	return b.Bytes()
}

func TestRefused(t *testing.T) {
	good := golden().Files[0].Data
	var photo bytes.Buffer
	if err := jpeg.Encode(&photo, image.NewGray(image.Rect(0, 0, 64, 64)), nil); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		data  []byte
		cause error
	}{
		"empty":         {nil, ErrFormat},
		"text":          {[]byte("<html>not found</html>"), ErrFormat},
		"TIFF":          {[]byte("II*\x00\x08\x00\x00\x00"), ErrFormat},
		"bomb":          {pngHeader(60000, 60000), ErrTooLarge},
		"wide":          {pngHeader(200000, 1), ErrTooLarge},
		"many pixels":   {pngHeader(20000, 20000), ErrTooLarge},
		"no pixels":     {pngHeader(0, 7), ErrCorrupt},
		"header only":   {pngHeader(10, 10), ErrCorrupt},
		"many bytes":    {append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, MaxBytes)...), ErrTooLarge},
		"cut PNG":       {good[:len(good)-30], ErrCorrupt},
		"cut JPEG":      {photo.Bytes()[:photo.Len()-10], ErrCorrupt},
		"magic only":    {[]byte("\xff\xd8\xff"), ErrCorrupt},
		"RIFF only":     {[]byte("RIFF\x00\x00\x00\x00WEBP"), ErrCorrupt},
		"lying WebP":    {[]byte("RIFF\x40\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x80\x00\x00\x80\x00"), ErrTooLarge},
		"BMP of 2 Gpx":  {append([]byte("BM\x00\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00\x28\x00\x00\x00\x00\xc0\x00\x00\x00\xc0\x00\x00\x01\x00\x18\x00"), make([]byte, 24)...), ErrTooLarge},
		"GIF of 4 Gpx":  {append([]byte("GIF89a\xff\xff\xff\xff\x00\x00\x00"), make([]byte, 24)...), ErrTooLarge},
		"JPEG of 4 Gpx": {[]byte("\xff\xd8\xff\xc0\x00\x11\x08\xff\xff\xff\xff\x03\x01\x11\x00\x02\x11\x00\x03\x11\x00\xff\xda\x00\x08"), ErrTooLarge},
	} {
		p, err := Decode(c.data)
		if p != nil || !errors.Is(err, c.cause) || fail.KindOf(err) != fail.BadInput {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestDamaged: any flipped or lost byte gives a picture or an error, never a panic.
func TestDamaged(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, f := range golden().Files {
		for range 60 {
			d := bytes.Clone(f.Data)
			for range 1 + r.IntN(4) {
				d[r.IntN(len(d))] ^= byte(1 << r.IntN(8))
			}
			if r.IntN(4) == 0 {
				d = d[:r.IntN(len(d))]
			}
			p, err := Decode(d)
			if err == nil && len(p.Pix) != 3*p.W*p.H {
				t.Fatalf("%s: %d×%d has %d bytes", f.Name, p.W, p.H, len(p.Pix))
			}
			if err != nil && fail.KindOf(err) != fail.BadInput {
				t.Fatalf("%s: %v", f.Name, err)
			}
		}
	}
}

// TestSmallFrame: a GIF frame smaller than its canvas is drawn where it belongs.
func TestSmallFrame(t *testing.T) {
	frame := image.NewPaletted(image.Rect(2, 1, 4, 3), color.Palette{color.RGBA{10, 20, 30, 255}})
	var b bytes.Buffer
	if err := gif.EncodeAll(&b, &gif.GIF{Image: []*image.Paletted{frame}, Delay: []int{0}, Config: image.Config{Width: 6, Height: 5}}); err != nil {
		t.Fatal(err)
	}
	p, err := Decode(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if p.W != 6 || p.H != 5 {
		t.Fatalf("%d×%d", p.W, p.H)
	}
	for y := range 5 {
		for x := range 6 {
			want := [3]uint8{255, 255, 255}
			if x >= 2 && x < 4 && y >= 1 && y < 3 {
				want = [3]uint8{10, 20, 30}
			}
			if got := [3]uint8(p.Pix[3*(6*y+x):]); got != want {
				t.Errorf("(%d,%d) is %v", x, y, got)
			}
		}
	}
}

func TestEncode(t *testing.T) {
	p, err := Decode(golden().Files[0].Data)
	if err != nil {
		t.Fatal(err)
	}
	data, err := p.PNG()
	if err != nil {
		t.Fatal(err)
	}
	q, err := Decode(data)
	if err != nil || !bytes.Equal(p.Pix, q.Pix) {
		t.Errorf("PNG changed the picture: %v", err)
	}
	a, _ := p.JPEG(90)
	b, _ := p.JPEG(90)
	if !bytes.Equal(a, b) || Format(a) != "jpeg" || Format(data) != "png" || Format([]byte("x")) != "" {
		t.Error("formats")
	}
}

func TestProcessor(t *testing.T) {
	dir := t.TempDir()
	if _, err := LoadProcessor(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	load := func(text string) (Processor, error) {
		if err := os.WriteFile(filepath.Join(dir, "preprocessor_config.json"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return LoadProcessor(dir)
	}
	half := [3]float32{.5, .5, .5}
	p, err := load(`{"size": {"longest_edge": 16777216, "shortest_edge": 65536}, "patch_size": 16, "temporal_patch_size": 2, "merge_size": 2, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "processor_class": "Qwen3VLProcessor"}`)
	if want := (Processor{16, 2, 2, 65536, 16777216, half, half}); err != nil || p != want {
		t.Errorf("Qwen3-VL: %+v %v", p, err)
	}
	p, err = load(`{"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2, "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}`)
	if err != nil || p.PatchSize != 14 || p.MaxPixels != 12845056 {
		t.Errorf("Qwen2.5-VL: %+v %v", p, err)
	}
	// The level 128 in both normalisations.
	gray := &Picture{W: 56, H: 56, Pix: bytes.Repeat([]byte{128}, 3*56*56)}
	patches, err := p.PatchesFor(gray, [3]int32{1, 4, 4})
	if err != nil {
		t.Fatal(err)
	}
	for c, want := range []float64{.0763361, .1688972, .3399486} {
		if got := float64(patches[c*2*14*14]); math.Abs(got-want) > 1e-6 {
			t.Errorf("channel %d: %v, want %v", c, got, want)
		}
	}
	third := p
	third.Mean, third.Std = [3]float32{.5, .5, .5}, [3]float32{.5, .5, .5}
	if patches, err = third.PatchesFor(gray, [3]int32{1, 4, 4}); err != nil || math.Abs(float64(patches[0])-.0039216) > 1e-7 {
		t.Errorf("Qwen3-VL: %v, %v", patches[0], err)
	}
	for _, text := range []string{"", "[]", `{"patch_size": 0}`, `{"image_std": [0, 1, 1]}`, `{"image_mean": [1]}`, `{"min_pixels": 100, "max_pixels": 10}`, `{"merge_size": -1}`} {
		if _, err := load(text); err == nil || fail.KindOf(err) != fail.BadInput {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, grid := range [][3]int32{{2, 4, 4}, {1, 3, 4}, {1, 0, 0}, {1, -2, 2}, {1, 1 << 20, 1 << 20}} {
		if _, err := p.PatchesFor(gray, grid); err == nil || fail.KindOf(err) != fail.BadInput {
			t.Errorf("grid %v: %v", grid, err)
		}
	}
	if _, _, err := p.Patches(&Picture{W: 2000, H: 3, Pix: make([]byte, 18000)}); err == nil {
		t.Error("a line of pixels was accepted")
	}
}

// TestNewsPhotos decodes every photograph of the LiveVQA sample.
func TestNewsPhotos(t *testing.T) {
	files, _ := filepath.Glob("../../../shared/data/livevqa-news/News_imgs/*")
	if len(files) == 0 {
		t.Skip("no ../shared/data/livevqa-news beside the repository")
	}
	for i, f := range files {
		if i%6 != 0 {
			continue
		}
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if p, err := Decode(data); err != nil || p.W < 100 {
			t.Errorf("%s: %v", filepath.Base(f), err)
		}
	}
}

func BenchmarkResize(b *testing.B) {
	p := &Picture{W: 1600, H: 900, Pix: make([]uint8, 3*1600*900)}
	for b.Loop() {
		p.Resize(448, 800)
	}
}

func BenchmarkPatches(b *testing.B) {
	p := &Picture{W: 96, H: 96, Pix: make([]uint8, 3*96*96)}
	half := [3]float32{.5, .5, .5}
	c := Processor{16, 2, 2, 1024, 4096, half, half}
	for b.Loop() {
		if _, _, err := c.Patches(p); err != nil {
			b.Fatal(err)
		}
	}
}
