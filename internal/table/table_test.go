package table

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"searchloop/internal/fail"
	"searchloop/internal/manifest"
)

type row struct {
	ID    string    `parquet:"id"`
	Kind  string    `parquet:"kind,dict"`
	N     int32     `parquet:"n"`
	Big   int64     `parquet:"big"`
	X     float64   `parquet:"x"`
	OK    bool      `parquet:"ok"`
	Tags  []string  `parquet:"tags,list"`
	Ids   []int32   `parquet:"ids,list"`
	Lp    []float32 `parquet:"lp,list"`
	Turns []turn    `parquet:"turns,list"`
	Note  *string   `parquet:"note,optional"`
	Raw   []byte    `parquet:"raw,optional"`
}

type turn struct {
	Role   string   `parquet:"role,dict"`
	Text   string   `parquet:"text"`
	Images []string `parquet:"images,list"`
}

func rows(n int) []row {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	out := make([]row, n)
	for i := range out {
		r := row{ID: fmt.Sprint("id", i), Kind: []string{"a", "b"}[i%2], N: int32(i), Big: int64(i) << 40, X: rng.NormFloat64(), OK: i%3 == 0}
		for k := range rng.IntN(4) {
			r.Tags = append(r.Tags, fmt.Sprint("täg", k))
			r.Ids = append(r.Ids, rng.Int32())
			r.Lp = append(r.Lp, rng.Float32())
			r.Turns = append(r.Turns, turn{Role: "user", Text: strings.Repeat("x", rng.IntN(50)), Images: make([]string, k%3)})
		}
		if i%4 == 0 {
			s := fmt.Sprint("note", i)
			r.Note, r.Raw = &s, []byte{byte(i), 0, 255}
		}
		out[i] = r
	}
	return out
}

func encode[T any](t testing.TB, list []T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter[T](&b)
	if err := w.Write(list...); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if w.Rows() != int64(len(list)) {
		t.Fatal(w.Rows())
	}
	return b.Bytes()
}

func save(t testing.TB, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f.parquet")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// same compares rows; an empty list and no list are the same in Parquet.
func same(a, b []row) bool {
	text := func(list []row) string {
		var s strings.Builder
		for _, r := range list {
			note := "-"
			if r.Note != nil {
				note = *r.Note
			}
			r.Note = nil
			fmt.Fprintf(&s, "%+v %s %q\n", r, note, r.Raw)
		}
		return s.String()
	}
	return text(a) == text(b)
}

func TestRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 31, 32, 33, 1000} {
		want := rows(n)
		data := encode(t, want)
		if again := encode(t, want); !bytes.Equal(data, again) {
			t.Fatal("equal rows gave other bytes")
		}
		path := save(t, data)
		got, err := ReadAll[row](path)
		if err != nil || !same(got, want) {
			t.Fatalf("%d rows: %v, %d back", n, err, len(got))
		}
		if k, err := Rows(path); err != nil || k != int64(n) {
			t.Fatal(k, err)
		}
	}
	path := save(t, encode(t, rows(100)))
	count := 0
	for range Read[row](path) {
		if count++; count == 40 {
			break
		}
	}
	if count != 40 {
		t.Fatal("cannot stop in the middle")
	}
}

func TestCutAnywhere(t *testing.T) {
	data := encode(t, rows(500))
	for i := range 65 {
		n := len(data) * i / 64
		if i == 64 {
			n = len(data) - 1
		}
		path := save(t, data[:n])
		_, err := ReadAll[row](path)
		if fail.ExitCode(err) != 65 || !strings.Contains(err.Error(), path) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
	for name, bad := range map[string][]byte{
		"text":   []byte("this is text, whatever its name says"),
		"magic":  []byte("PAR1PAR1"),
		"footer": append(bytes.Clone(data[:len(data)-8]), 0xff, 0xff, 0xff, 0x7f, 'P', 'A', 'R', '1'),
		"minus":  append(bytes.Clone(data[:len(data)-8]), 0xff, 0xff, 0xff, 0xff, 'P', 'A', 'R', '1'),
	} {
		if _, err := ReadAll[row](save(t, bad)); fail.ExitCode(err) != 65 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ReadAll[row](t.TempDir()); fail.ExitCode(err) != 65 || !strings.Contains(err.Error(), "folder") {
		t.Error(err)
	}
	if _, err := ReadAll[row]("/nothing/here"); fail.ExitCode(err) != 65 {
		t.Error(err)
	}
}

// A flipped bit never panics, never hangs and never takes much memory. What Read
// alone cannot see, ReadDataset does, every time.
func TestFlippedBits(t *testing.T) {
	dir := t.TempDir()
	data := encode(t, rows(200))
	name := "part-00000-of-00001.parquet"
	path := filepath.Join(dir, name)
	os.WriteFile(path, data, 0o644)
	p, err := manifest.PartOf(dir, name, 200, false)
	if err != nil {
		t.Fatal(err)
	}
	m := &manifest.Manifest{Schema: "toy", Version: 1, Parts: []manifest.Part{p}}
	if _, err := m.Write(manifest.Path(dir)); err != nil {
		t.Fatal(err)
	}
	good, err := collect(dir)
	if err != nil || !same(good, rows(200)) {
		t.Fatal("the undamaged dataset: ", err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	silent, caught := 0, 0
	var before, after runtime.MemStats
	for range 1000 {
		i, bit := rng.IntN(len(data)), rng.IntN(8)
		bad := bytes.Clone(data)
		bad[i] ^= 1 << bit
		os.WriteFile(path, bad, 0o644)
		runtime.ReadMemStats(&before)
		if _, err := ReadAll[row](path); err == nil {
			silent++
		} else if fail.ExitCode(err) != 65 {
			t.Fatalf("byte %d bit %d: %v", i, bit, err)
		}
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 1<<30 {
			t.Errorf("byte %d bit %d: %d bytes allocated for a file of %d", i, bit, used, len(data))
		}
		n := 0
		for _, err := range ReadDataset[row](dir) {
			if err == nil {
				n++
			} else if fail.ExitCode(err) == 65 && strings.Contains(err.Error(), path) {
				caught++
			}
		}
		if n > 0 {
			t.Fatalf("byte %d bit %d: %d rows of a damaged part were given out", i, bit, n)
		}
	}
	if caught != 1000 {
		t.Errorf("%d of 1000 flips caught", caught)
	}
	t.Logf("of 1000 flips Read alone accepted %d; ReadDataset none", silent)
}

func collect(dir string) ([]row, error) {
	var list []row
	for r, err := range ReadDataset[row](dir) {
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

func TestDatasetOfManyParts(t *testing.T) {
	dir := t.TempDir()
	m := &manifest.Manifest{Schema: "toy", Version: 1}
	want := rows(90)
	for i := range 3 {
		name := fmt.Sprintf("part-%05d-of-00003.parquet", i)
		os.WriteFile(filepath.Join(dir, name), encode(t, want[i*30:i*30+30]), 0o644)
		p, _ := manifest.PartOf(dir, name, 30, false)
		m.Parts = append(m.Parts, p)
	}
	os.WriteFile(filepath.Join(dir, "side.txt"), []byte("no Parquet"), 0o644)
	p, _ := manifest.PartOf(dir, "side.txt", 0, true)
	m.Parts = append(m.Parts, p)
	m.Write(manifest.Path(dir))
	for _, d := range []string{dir, manifest.Path(dir)} {
		if got, err := collect(d); err != nil || !same(got, want) {
			t.Fatal(err)
		}
	}
	m.Parts[1].Rows = 31
	m.Write(manifest.Path(dir))
	if _, err := collect(dir); err == nil || !strings.Contains(err.Error(), "30 rows, the manifest says 31") {
		t.Fatal(err)
	}
	os.Remove(manifest.Path(dir))
	if _, err := collect(dir); fail.ExitCode(err) != 65 || !strings.Contains(err.Error(), "unfinished") {
		t.Fatal(err)
	}
}

func TestColumns(t *testing.T) {
	type narrow struct {
		ID string `parquet:"id"`
		N  int32  `parquet:"n"`
	}
	type renamed struct {
		ID   string `parquet:"id"`
		Name string `parquet:"name"`
	}
	type nested struct {
		Turns []struct {
			Text  string `parquet:"text"`
			Score int32  `parquet:"score"`
		} `parquet:"turns,list"`
	}
	type typed struct {
		ID int64 `parquet:"id"`
	}
	type wider struct {
		ID   string  `parquet:"id"`
		N    int64   `parquet:"n"`
		More *string `parquet:"more,optional"`
	}
	path := save(t, encode(t, rows(40)))
	if got, err := ReadAll[narrow](path); err != nil || len(got) != 40 || got[7] != (narrow{"id7", 7}) {
		t.Fatal(err)
	}
	if got, err := ReadAll[wider](path); err != nil || got[39] != (wider{"id39", 39, nil}) {
		t.Fatal(err, got)
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{second(ReadAll[renamed](path)), `no column "name" (the file has id, kind`},
		{second(ReadAll[nested](path)), `no column "turns.list.element.score"`},
		{second(ReadAll[typed](path)), `column "id" is BYTE_ARRAY, want INT64`},
	} {
		if fail.ExitCode(c.err) != 65 || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%v, want %s", c.err, c.want)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// Rows belong to the caller: nothing that is read later changes them.
func TestRowsAreOwned(t *testing.T) {
	want := rows(300)
	path := save(t, encode(t, want))
	var kept []row
	for r, err := range Read[row](path) {
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, r)
	}
	runtime.GC()
	if !same(kept, want) {
		t.Fatal("rows changed after they were given out")
	}
}

// Neither writer nor reader holds the file: memory is a row group's, not the data's.
func TestMemoryDoesNotGrow(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 256 MB")
	}
	type blob struct {
		ID  int64  `parquet:"id"`
		Raw []byte `parquet:"raw"`
	}
	path := filepath.Join(t.TempDir(), "big.parquet")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rng := rand.NewChaCha8([32]byte{1})
	peak := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	w := NewWriter[blob](f)
	var most uint64
	raw := make([]byte, 256<<10)
	for i := range 1024 {
		rng.Read(raw)
		if err := w.Write(blob{int64(i), raw}); err != nil {
			t.Fatal(err)
		}
		if i%100 == 99 {
			most = max(most, peak())
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if most > 150<<20 {
		t.Errorf("the writer holds %d MB", most>>20)
	}
	n, most2 := 0, uint64(0)
	for b, err := range Read[blob](path) {
		if err != nil || b.ID != int64(n) || len(b.Raw) != len(raw) {
			t.Fatal(n, err)
		}
		if n++; n%200 == 0 {
			most2 = max(most2, peak())
		}
	}
	if n != 1024 || most2 > 100<<20 {
		t.Errorf("%d rows; the reader holds %d MB", n, most2>>20)
	}
	t.Logf("256 MB of data: writer at most %d MB, reader %d MB", most>>20, most2>>20)
}

type brokenDisk struct{ left int }

func (b *brokenDisk) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, &fail.Error{Kind: fail.Disk, Path: "/full/x", Err: errors.New("no space left on device")}
	}
	return len(p), nil
}

func TestWriterReportsTheDisk(t *testing.T) {
	whole := encode(t, rows(100))
	for n := 0; n < len(whole); n += 1 + len(whole)/50 {
		w := NewWriter[row](&brokenDisk{n})
		err := w.Write(rows(100)...)
		if err == nil {
			err = w.Close()
		}
		if fail.ExitCode(err) != 74 || !strings.Contains(err.Error(), "/full/x") {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
}

// Files that others wrote: list elements named item, a file without page CRCs, row
// groups of all sizes.
func TestForeignFiles(t *testing.T) {
	want := rows(50)
	var b bytes.Buffer
	w := parquet.NewGenericWriter[row](&b, parquet.Compression(&parquet.Snappy), parquet.MaxRowsPerRowGroup(7))
	w.Write(want)
	w.Close()
	if got, err := ReadAll[row](save(t, b.Bytes())); err != nil || !same(got, want) {
		t.Fatal(err)
	}
}
