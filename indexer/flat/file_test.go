package flat

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/fail"
)

// The vectors of testdata/tiny.index, by the formula of testdata/make.py.
func tiny() []float32 {
	v := make([]float32, 0, 37*8)
	for r := range 37 {
		for c := range 8 {
			v = append(v, float32((7*r+3*c)%17-8)/8)
		}
	}
	return v
}

func write(t testing.TB, dim int, v []float32) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.index")
	var b bytes.Buffer
	w, err := NewWriter(&b, dim, int64(len(v)/dim))
	if err == nil {
		err = w.Write(v)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// What faiss made of the vectors of tiny, by the name of the file.
var ofFaiss = map[string]Header{
	"tiny": {}, "flat-l2": {Metric: L2}, "fp16-ip": {Format: FP16}, "fp16-l2": {Format: FP16, Metric: L2},
	"sq8-ip": {Format: SQ8}, "sq8-l2": {Format: SQ8, Metric: L2},
}

func TestFilesOfPythonFaiss(t *testing.T) {
	for name, h := range ofFaiss {
		f, err := Open("testdata/" + name + ".index")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if f.Dim != 8 || f.Rows != 37 || f.Metric != h.Metric || f.Format != h.Format {
			t.Fatalf("%s: header %+v", name, f.Header)
		}
		if i, err := Info(f.Path); err != nil || i.Size() != f.Size() {
			t.Errorf("%s: info %+v, %v", name, i, err)
		}
		off := 0.0
		if h.Format == SQ8 {
			off = 2.0 / 255 * 0.501
		}
		want := tiny()
		for r := range f.Rows {
			for c, x := range f.Row(r) {
				if math.Abs(float64(x-want[int(r)*8+c])) > off {
					t.Fatalf("%s: row %d column %d: %v, want %v", name, r, c, x, want[int(r)*8+c])
				}
			}
		}
	}
}

// encoded is the file of head h that the writer makes of v.
func encoded(t testing.TB, h Header, v []float32) []byte {
	t.Helper()
	h.Rows = int64(len(v) / h.Dim)
	if h.Format == SQ8 {
		var r Ranges
		r.Add(v, h.Dim)
		h.Trained = r.Trained(h.Dim)
	}
	var b bytes.Buffer
	w, err := h.Writer(&b)
	if err == nil {
		err = w.Write(v)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestBytesOfPythonFaiss(t *testing.T) {
	for name, h := range ofFaiss {
		want, err := os.ReadFile("testdata/" + name + ".index")
		if err != nil {
			t.Fatal(err)
		}
		h.Dim = 8
		if got := encoded(t, h, tiny()); !bytes.Equal(got, want) {
			t.Errorf("%s: our file differs from faiss.write_index's\n got %x\nwant %x", name, got[:160], want[:160])
		}
	}
}

// What faiss answered, rank by rank. Equal scores may come in another order
// there, so each of its rows is checked to have the score of its rank.
func TestHitsOfPythonFaiss(t *testing.T) {
	for name := range ofFaiss {
		s, err := OpenSet([]string{"testdata/" + name + ".index"})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		all, err := s.Search(context.Background(), tiny()[:5*8], 37)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile("testdata/" + name + ".hits.txt")
		if err != nil {
			t.Fatal(err)
		}
		rank := make([]int, 5)
		for line := range strings.Lines(string(text)) {
			var q int
			var row int64
			var score float64
			if _, err := fmt.Sscan(line, &q, &row, &score); err != nil {
				t.Fatal(err)
			}
			if got := all[q][rank[q]].Score; math.Abs(float64(got)-score) > 1e-5 {
				t.Errorf("%s: query %d rank %d: score %v, faiss %v", name, q, rank[q], got, score)
			}
			for _, h := range all[q] {
				if h.Row == row && math.Abs(float64(h.Score)-score) > 1e-5 {
					t.Errorf("%s: query %d row %d: score %v, faiss %v", name, q, row, h.Score, score)
				}
			}
			rank[q]++
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	good, err := os.ReadFile("testdata/tiny.index")
	if err != nil {
		t.Fatal(err)
	}
	edit := func(at int, b string) []byte {
		c := bytes.Clone(good)
		copy(c[at:], b)
		return c
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":              {nil, "shorter than the header"},
		"header cut":         {good[:30], "shorter than the header"},
		"one byte short":     {good[:len(good)-1], "cut short"},
		"half":               {good[:len(good)/2], "cut short"},
		"header only":        {good[:HeaderSize], "cut short"},
		"one byte long":      {append(bytes.Clone(good), 0), "too long"},
		"wrong magic":        {edit(0, "PAR1"), `begins with "PAR1"`},
		"L2 index":           {edit(0, "IxF2"), "its metric is 0"},
		"IVF index":          {edit(0, "IwFl"), "IndexIVFFlat"},
		"dimension 0":        {edit(4, "\x00"), "dimension 0"},
		"dimension negative": {edit(7, "\xff"), "dimension -"},
		"dimension lies":     {edit(4, "\x10"), "but 296 numbers"},
		"rows negative":      {edit(15, "\x80"), "vectors"},
		"rows overflow":      {edit(14, "\xff\x7f"), "vectors"},
		"rows lie":           {edit(8, "\x24"), "but 296 numbers"},
		"untrained":          {edit(32, "\x00"), "not trained"},
		"metric L2":          {edit(33, "\x01"), "its metric is 1"},
		"quantizer":          {edit(0, "IxSQ"), "scalar quantizer of type 296"},
		"metric unknown":     {edit(33, "\x02"), "metric is 2"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bad.index")
			if err := os.WriteFile(path, c.data, 0o644); err != nil {
				t.Fatal(err)
			}
			f, err := Open(path)
			if err == nil {
				f.Close()
				t.Fatal("opened")
			}
			if fail.KindOf(err) != fail.BadInput {
				t.Errorf("kind %v: %v", fail.KindOf(err), err)
			}
			for _, part := range []string{path, c.want, "("} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("message lacks %q: %v", part, err)
				}
			}
		})
	}
	if _, err := Open(filepath.Join(t.TempDir(), "absent.index")); fail.KindOf(err) != fail.BadInput {
		t.Errorf("absent file: %v", err)
	}
	if _, err := Open(t.TempDir()); fail.KindOf(err) != fail.BadInput {
		t.Errorf("folder: %v", err)
	}
}

// No header of random bytes may be accepted with a size that is not its own.
func FuzzHeader(f *testing.F) {
	good, err := os.ReadFile("testdata/tiny.index")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good[:HeaderSize], int64(len(good)))
	sq, err := os.ReadFile("testdata/sq8-ip.index")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sq[:headBytes], int64(len(sq)))
	f.Fuzz(func(t *testing.T, head []byte, size int64) {
		head = head[:min(len(head), headBytes)]
		h, err := parseHeader("x", head, size)
		if err == nil && (h.Dim < 1 || h.Rows < 0 || h.Size() != size) {
			t.Fatalf("accepted %+v for %d bytes", h, size)
		}
	})
}

func TestWriterRefuses(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for name, c := range map[string]struct {
		rows int64
		v    []float32
		row  int64
	}{
		"NaN":      {2, []float32{1, 2, 3, nan}, 2},
		"infinity": {2, []float32{inf, 2, 3, 4}, 1},
		"too many": {1, []float32{1, 2, 3, 4}, 0},
		"too few":  {3, []float32{1, 2, 3, 4}, 0},
		"ragged":   {2, []float32{1, 2, 3}, 0},
	} {
		w, err := NewWriter(new(bytes.Buffer), 2, c.rows)
		if err != nil {
			t.Fatal(err)
		}
		if err = w.Write(c.v); err == nil {
			err = w.Close()
		}
		var e *fail.Error
		if fail.KindOf(err) != fail.BadInput {
			t.Errorf("%s: %v", name, err)
		} else if e = err.(*fail.Error); e.Row != c.row {
			t.Errorf("%s: row %d, want %d", name, e.Row, c.row)
		}
	}
}

func TestNotFinite(t *testing.T) {
	v := make([]float32, 5000)
	for i := range v {
		v[i] = float32(math.MaxFloat32)
	}
	if i := NotFinite(v); i != -1 {
		t.Fatalf("finite numbers: %d", i)
	}
	for _, at := range []int{0, 1, 1023, 1024, 4999} {
		for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			was := v[at]
			v[at] = float32(x)
			if i := NotFinite(v); i != at {
				t.Errorf("%v at %d: %d", x, at, i)
			}
			v[at] = was
		}
	}
}
