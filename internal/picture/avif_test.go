package picture

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// quarters are the colours of testdata/avif.py's picture.
var quarters = [4][3]int{{220, 30, 40}, {40, 200, 60}, {30, 60, 210}, {230, 220, 50}}

// near says whether the pixel at (x, y) has a colour but for compression.
func near(p *Picture, x, y int, c [3]int) bool {
	for i, v := range c {
		if d := int(p.Pix[3*(y*p.W+x)+i]) - v; d < -8 || d > 8 {
			return false
		}
	}
	return true
}

// TestAVIF holds that every orientation is undone, as Pillow's exif_transpose does.
func TestAVIF(t *testing.T) {
	for o := 1; o <= 8; o++ {
		data, err := os.ReadFile(fmt.Sprintf("testdata/avif-%d.avif", o))
		if err != nil {
			t.Fatal(err)
		}
		if f, w, h, err := Size(data); f != "avif" || w != 48 || h != 32 || err != nil {
			t.Fatalf("%s %d×%d %v", f, w, h, err)
		}
		if got := readAVIF(data).orient; got != o {
			t.Errorf("orientation %d, want %d", got, o)
		}
		p, err := Decode(data)
		if err != nil {
			if strings.Contains(err.Error(), "not built in") {
				continue // without the tag nodynamic
			}
			t.Fatal(err)
		}
		stored := &Picture{W: 48, H: 32, Pix: make([]uint8, 3*48*32)}
		for i := range 48 * 32 {
			q := quarters[b2i(i%48 >= 24)+2*b2i(i/48 >= 16)]
			stored.Pix[3*i], stored.Pix[3*i+1], stored.Pix[3*i+2] = uint8(q[0]), uint8(q[1]), uint8(q[2])
		}
		want := stored.orient(o)
		if p.W != want.W || p.H != want.H {
			t.Fatalf("%d: %d×%d, want %d×%d", o, p.W, p.H, want.W, want.H)
		}
		for _, at := range [][2]int{{5, 5}, {p.W - 6, 5}, {5, p.H - 6}, {p.W - 6, p.H - 6}} {
			i := 3 * (at[1]*want.W + at[0])
			if !near(p, at[0], at[1], [3]int{int(want.Pix[i]), int(want.Pix[i+1]), int(want.Pix[i+2])}) {
				t.Errorf("orientation %d at %v: %v", o, at, p.Pix[i:i+3])
			}
		}
	}
	data, err := os.ReadFile("testdata/avif-alpha.avif")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Decode(data)
	if err != nil {
		t.Skip(err)
	}
	if !near(p, 5, 3, [3]int{255, 255, 255}) || !near(p, 5, 28, quarters[2]) {
		t.Errorf("alpha is not laid on white: %v, %v", p.Pix[3*(3*48+5):][:3], p.Pix[3*(28*48+5):][:3])
	}
}

// TestAVIFDamage holds that cut and changed files are errors, and bombs too.
func TestAVIFDamage(t *testing.T) {
	data, err := os.ReadFile("testdata/avif-1.avif")
	if err != nil {
		t.Fatal(err)
	}
	for n := 12; n < len(data); n += 37 {
		if _, err := Decode(data[:n]); err == nil {
			t.Errorf("cut at %d of %d bytes: no error", n, len(data))
		}
	}
	at := strings.Index(string(data), "ispe")
	bomb := append([]byte(nil), data...)
	copy(bomb[at+8:], "\x00\x01\x00\x00\x00\x01\x00\x00")
	if _, err := Decode(bomb); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
