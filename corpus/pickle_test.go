package corpus

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"image"
	"image/draw"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/job"
)

// TestPickledCaches reads what Python's pickle makes of one cache in every
// protocol, and holds that pixels are Pillow's.
func TestPickledCaches(t *testing.T) {
	var want []struct{ Mode, RGBA string }
	text, err := os.ReadFile("testdata/pickles/want.json")
	if err != nil || json.Unmarshal(text, &want) != nil {
		t.Fatal(err)
	}
	for protocol := 2; protocol <= 5; protocol++ {
		path := fmt.Sprintf("testdata/pickles/cache%d.pkl", protocol)
		var ids []string
		n := 0
		for e, err := range pickledEntries(path) {
			if err != nil {
				t.Fatal(path, err)
			}
			ids = append(ids, e.ID)
			if e.Err != nil {
				if e.ID != "fvqa_train_wrong" {
					t.Errorf("%s: %s: %v", path, e.ID, e.Err)
				}
				continue
			}
			if len(e.pictures) == 0 || e.pictures[0] == nil || e.pictures[0].mode == "CMYK" {
				continue
			}
			m, err := e.pictures[0].decode()
			if e.ID == "fvqa_train_float" {
				if err == nil {
					t.Error("an image of floats was decoded")
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			flat := image.NewNRGBA(m.Bounds())
			draw.Draw(flat, m.Bounds(), m, image.Point{}, draw.Src)
			sum := sha256.Sum256(flat.Pix)
			if got := hex.EncodeToString(sum[:]); e.pictures[0].mode != want[n].Mode || got != want[n].RGBA {
				t.Errorf("%s: %s: mode %s pixels %s, want %+v", path, e.ID, e.pictures[0].mode, got, want[n])
			}
			n++
		}
		if n != len(want) || len(ids) != 16 || ids[15] != "fvqa_train_wrong" {
			t.Errorf("%s: %d images, entries %v", path, n, ids)
		}
	}
}

// TestPickledLens makes a lens dataset of a pickle.
func TestPickledLens(t *testing.T) {
	o := LensOptions{Cache: []string{"testdata/pickles/cache4.pkl"}, Out: t.TempDir(), MaxMissing: 0.2}
	if err := lensJob(t, o); err != nil {
		t.Fatal(err)
	}
	rows := rowsOfDataset[LensEntry](t, o.Out)
	if len(rows) != 15 || rows[0].DataID != "fvqa_train_0" || len(rows[0].Hits) != 2 || rows[0].Hits[0].ImageID == "" || rows[0].Hits[1].Path != "https://example.org/0.jpg" || rows[0].Hits[1].ImageID != "" {
		t.Errorf("%d rows, %+v", len(rows), rows[0])
	}
	store, err := OpenStore(filepath.Join(o.Out, "images"))
	if err != nil {
		t.Fatal(err)
	}
	if data, err := store.Get(rows[0].Hits[0].ImageID); err != nil || CheckImage(data) != nil || imageExt(data) != ".png" {
		t.Error(err)
	}
	published, err := os.ReadFile(filepath.Join(o.Out, LensPublished))
	if err != nil || !strings.Contains(string(published), `"cached_title":"Title 0","cached_images_path":"/`) || !strings.Contains(string(published), `"cached_images_path":null`) {
		t.Errorf("%.400s %v", published, err)
	}
	var report LensReport
	text, _ := os.ReadFile(filepath.Join(o.Out, LensReportOf))
	if err := json.Unmarshal(text, &report); err != nil || report.FoundBy["in the cache itself"] != 11 || report.HitsOnWeb != 11 || len(report.Missing) != 1 || report.HitsNoPath != 1 {
		t.Errorf("%+v %v", report, err)
	}
}

func lensJob(t *testing.T, o LensOptions) error {
	t.Helper()
	r := job.Testing(t)
	r.ProgressMode = "none"
	return Lens(t.Context(), r, o)
}

// TestEvilPickles holds that a name that is not on the list is refused with its
// name and nothing else happens.
func TestEvilPickles(t *testing.T) {
	files, _ := filepath.Glob("testdata/pickles/evil-*.pkl")
	if len(files) != 4 {
		t.Fatal(files)
	}
	for _, f := range files {
		_, err := loadPickle(f)
		if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "not on the list") || !strings.Contains(err.Error(), f) {
			t.Errorf("%s: %v", f, err)
		}
	}
}

// TestDamagedPickles cuts and flips a cache, and lies about lengths.
func TestDamagedPickles(t *testing.T) {
	whole, err := os.ReadFile("testdata/pickles/cache4.pkl")
	if err != nil {
		t.Fatal(err)
	}
	for n := range 200 {
		if _, err := unpickle(whole[:len(whole)*n/200]); err == nil {
			t.Errorf("cut at %d/200: no error", n)
		}
	}
	for bit := 0; bit < len(whole)*8; bit += 97 {
		b := append([]byte(nil), whole...)
		b[bit/8] ^= 1 << (bit % 8)
		unpickle(b) // an error or not, never a panic
	}
	for _, lie := range []string{"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.", "\x80\x04\x8e\x00\x00\x00\x00\x00\x01\x00\x00a.", "\x80\x02T\xff\xff\xff\x7fa.", "\x80\x02X\xff\xff\xff\xffa.", "\x80\x02c", "\x80\x02cos\nsystem\n(S'x'\ntR.", "\x80\x05\x97."} {
		if _, err := unpickle([]byte(lie)); err == nil {
			t.Errorf("%q was read", lie)
		}
	}
}
