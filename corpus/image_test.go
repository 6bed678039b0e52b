package corpus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/png"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"searchloop/internal/fail"
)

// pngOf makes a small picture of one colour.
func pngOf(shade uint8) []byte {
	im := image.NewGray(image.Rect(0, 0, 9, 7))
	for i := range im.Pix {
		im.Pix[i] = shade
	}
	var b bytes.Buffer
	png.Encode(&b, im)
	return b.Bytes()
}

// bombPNG claims an enormous area in a few bytes.
func bombPNG(w, h uint32) []byte {
	b := bytes.Clone(pngOf(0))
	binary.BigEndian.PutUint32(b[16:], w)
	binary.BigEndian.PutUint32(b[20:], h)
	binary.BigEndian.PutUint32(b[29:], crc32.ChecksumIEEE(b[12:29]))
	return b
}

func TestCheckImage(t *testing.T) {
	good := pngOf(1)
	if err := CheckImage(good); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		data []byte
		says string
	}{
		"empty":        {nil, "empty"},
		"text":         {[]byte("just text"), "neither JPEG"},
		"html":         {[]byte("<html>"), "neither JPEG"},
		"cut png":      {good[:20], "damaged"},
		"cut jpeg":     {[]byte("\xff\xd8\xff\xe0\x00\x10JFIF"), "damaged"},
		"bomb":         {bombPNG(60000, 60000), "60000 x 60000"},
		"no area":      {bombPNG(0, 7), ""},
		"negative":     {bombPNG(1<<31+5, 7), ""},
		"just magic":   {[]byte("GIF89a"), "damaged"},
		"webp magic":   {[]byte("RIFF\x10\x00\x00\x00WEBPVP8 "), "damaged"},
		"bmp magic":    {[]byte("BM nothing"), "damaged"},
		"riff no webp": {[]byte("RIFF\x10\x00\x00\x00WAVEfmt "), "neither JPEG"},
	} {
		if err := CheckImage(c.data); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestImageStore(t *testing.T) {
	dir, second := filepath.Join(t.TempDir(), "new", "images"), t.TempDir()
	other, _ := OpenStore(second)
	elsewhere, err := other.Put(pngOf(9))
	if err != nil {
		t.Fatal(err)
	}
	s, err := OpenStore(dir, second)
	if err != nil {
		t.Fatal(err)
	}
	data := pngOf(1)
	sha, err := s.Put(data)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, sha[:2], sha+".png")
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, data) {
		t.Fatal(err)
	}
	before, _ := os.Stat(file)
	if again, err := s.Put(data); err != nil || again != sha {
		t.Error(again, err)
	}
	if after, _ := os.Stat(file); !os.SameFile(before, after) {
		t.Error("an equal image was written again")
	}
	if got, err := s.Get(elsewhere); err != nil || !bytes.Equal(got, pngOf(9)) {
		t.Error("second folder:", err)
	}
	if _, err := s.Put(pngOf(9)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, elsewhere[:2], elsewhere+".png")); err != nil {
		t.Error("the first folder must hold what was put, whatever others hold")
	}

	// A damaged file is an error to read and is repaired by Put.
	os.WriteFile(file, data[:10], 0o644)
	if _, err := s.Get(sha); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), file) {
		t.Error(err)
	}
	if _, err := s.Put(data); err != nil {
		t.Error(err)
	}
	if _, err := s.Get(sha); err != nil {
		t.Error(err)
	}

	for _, id := range []string{"", "abc", strings.Repeat("0", 64), "../../../../etc/passwd", strings.Repeat("A", 64)} {
		if _, err := s.Get(id); fail.KindOf(err) != fail.BadInput {
			t.Errorf("%q: %v", id, err)
		}
	}
	if _, err := s.Get(strings.Repeat("0", 64)); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := s.Put([]byte("text")); fail.KindOf(err) != fail.BadInput {
		t.Error(err)
	}
	if _, err := OpenStore(dir, filepath.Join(second, "absent")); fail.KindOf(err) != fail.BadInput {
		t.Error(err)
	}
	if _, err := OpenStore(file); fail.KindOf(err) != fail.BadInput {
		t.Error(err)
	}
	if _, err := OpenStore(); fail.KindOf(err) != fail.Usage {
		t.Error(err)
	}

	// Sync removes what dead writers left, and nothing that a living one holds.
	dead, held := filepath.Join(dir, sha[:2], ".x.tmp-1"), filepath.Join(dir, sha[:2], ".y.tmp-2")
	os.WriteFile(dead, nil, 0o600)
	f, err := os.Create(held)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Skip("this file system has no locks:", err)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); err == nil {
		t.Error("a dead writer's file stays")
	}
	if _, err := os.Stat(held); err != nil {
		t.Error("a living writer's file is gone")
	}
}

func TestImageStoreConcurrent(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			s, err := OpenStore(dir) // as another process would
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 40 {
				data := pngOf(uint8((i + w) % 40))
				sha, err := s.Put(data)
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := s.Get(sha); err != nil || !bytes.Equal(got, data) {
					t.Error("half an image was seen:", err)
				}
			}
		})
	}
	wg.Wait()
	files := 0
	filepath.WalkDir(dir, func(_ string, e fs.DirEntry, _ error) error {
		if !e.IsDir() {
			files++
		}
		return nil
	})
	if files != 40 {
		t.Errorf("%d files for 40 images", files)
	}
}

func TestAdopt(t *testing.T) {
	dir := t.TempDir()
	s, _ := OpenStore(filepath.Join(dir, "images"))
	for range 2 {
		file := filepath.Join(dir, "x")
		os.WriteFile(file, pngOf(3), 0o644)
		sha, err := s.adopt(file, pngOf(3))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(file); err == nil {
			t.Error("the file was not moved")
		}
		if _, err := s.Get(sha); err != nil {
			t.Error(err)
		}
	}
}

func TestIDSet(t *testing.T) {
	s, want := newIDSet(), map[string]bool{}
	ids := []string{"", "0", "00", "1", "01", "-1", "+1", "1.0", "511", "512", "999999999999999999", "1000000000000000000", "18446744073709551616", "a", "１"}
	for i := range 3000 {
		ids = append(ids, string(rune('a'+i%7))+"_"+strings.Repeat("9", i%5), bigNumber(i))
	}
	for _, id := range append(ids, ids...) {
		if got := s.add(id); got == want[id] {
			t.Fatalf("add(%q) = %v", id, got)
		}
		want[id] = true
	}
}

func bigNumber(i int) string { return strings.TrimLeft(strings.Repeat("7", i%17)+"13", "") }
