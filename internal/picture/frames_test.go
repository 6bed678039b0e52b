package picture

import (
	"bytes"
	"image"
	"image/color"
	"image/gif"
	"runtime"
	"testing"
)

// F20: a GIF of ten megabytes and a hundred thousand frames costs no more than its first
// frame, or is refused; nothing of it is kept.
func TestF20ManyFrames(t *testing.T) {
	var b bytes.Buffer
	frame := image.NewPaletted(image.Rect(0, 0, 96, 96), color.Palette{color.Black, color.White})
	if err := gif.Encode(&b, frame, nil); err != nil {
		t.Fatal(err)
	}
	one := b.Bytes()
	start := bytes.IndexByte(one[13+6:], ',') + 13 + 6 // behind the header and its table of two colours
	body := one[start : len(one)-1]
	frames := 100_000
	many := append(bytes.Clone(one[:start]), bytes.Repeat(body, frames)...)
	many = append(many, ';')
	if len(many) < 5<<20 {
		t.Fatalf("%d bytes", len(many))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p, err := Decode(many)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 300<<20 {
		t.Errorf("%d MB for a GIF of %d MB", used>>20, len(many)>>20)
	}
	if err == nil && (p.W != 96 || p.H != 96) {
		t.Errorf("%d×%d", p.W, p.H)
	}
	t.Logf("%d MB, %d frames: %v", len(many)>>20, frames, err)
}
