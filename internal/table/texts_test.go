package table

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

type textRow struct {
	ID   string    `parquet:"id" json:"id"`
	Body string    `parquet:"body" json:"body"`
	Hits []textHit `parquet:"hits,list" json:"hits"`
	Last string    `parquet:"last" json:"last"`
}

type textHit struct {
	Title string `parquet:"title" json:"title"`
	Link  string `parquet:"link" json:"link"`
}

func textBytes(r *textRow) int {
	n := len(r.ID) + len(r.Body) + len(r.Last)
	for _, h := range r.Hits {
		n += len(h.Title) + len(h.Link)
	}
	return n
}

// textRows have empty lists and texts, many in a row, texts longer than a page, and
// bytes that do not compress.
func textRows(n int) []textRow {
	out := make([]textRow, n)
	for i := range out {
		sum := sha256.Sum256([]byte(fmt.Sprint(i)))
		r := textRow{ID: fmt.Sprint("id", i), Body: strings.Repeat(fmt.Sprintf("%x ä ", sum), i%29), Last: fmt.Sprintf("%x", sum[:i%5])}
		for k := range i % 7 {
			r.Hits = append(r.Hits, textHit{Title: fmt.Sprint("title ", i*k), Link: strings.Repeat("/", i%3)})
		}
		if i%500 < 200 {
			r.Hits = nil
		}
		if i%300 == 1 {
			r.Body = strings.Repeat(r.Body, 2*pageBytes/max(1, len(r.Body)))
			r.Hits = append(r.Hits, textHit{Title: r.Body})
		}
		out[i] = r
	}
	return out
}

func encodeTextRows(t *testing.T, list []textRow, step int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := NewTexts(&b, textBytes)
	w.limit, w.most = 64<<10, 512<<10
	for n := len(list); len(list) > 0; list = list[min(step, len(list)):] {
		if err := w.Write(list[:min(step, len(list))]...); err != nil {
			t.Fatal(n, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTexts(t *testing.T) {
	for _, n := range []int{0, 1, 9, 2000} {
		want := textRows(n)
		path := save(t, encodeTextRows(t, want, 64))
		got, err := ReadAll[textRow](path)
		if k, kerr := Rows(path); err != nil || kerr != nil || int(k) != n || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Fatalf("%d rows: %v, %v, %d back", n, err, kerr, len(got))
		}
	}
	data := encodeTextRows(t, textRows(2000), 64)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(5))
	for _, cores := range []int{1, 2, 5} {
		runtime.GOMAXPROCS(cores)
		if again := encodeTextRows(t, textRows(2000), 17*cores); !bytes.Equal(data, again) {
			t.Fatalf("other bytes with %d cores", cores)
		}
	}
}

// TestTextsAreAsTheLibrarys compares what the footer says with the library's own
// writing of the same rows, and finds rows by the offsets of pages.
func TestTextsAreAsTheLibrarys(t *testing.T) {
	rows := textRows(2000)
	open := func(data []byte) *parquet.File {
		f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	ours, theirs := open(encodeTextRows(t, rows, 64)), open(encode(t, rows))
	if a, b := ours.Metadata(), theirs.Metadata(); !reflect.DeepEqual(a.Schema, b.Schema) || !reflect.DeepEqual(a.ColumnOrders, b.ColumnOrders) || a.CreatedBy != b.CreatedBy || a.NumRows != b.NumRows || len(a.RowGroups) < 3 {
		t.Errorf("%d row groups; ours\n%+v\ntheirs\n%+v", len(a.RowGroups), a.Schema, b.Schema)
	}
	totals := func(f *parquet.File) (out [5][2]int64) {
		for _, g := range f.Metadata().RowGroups {
			for i, c := range g.Columns {
				out[i][0] += c.MetaData.NumValues
				out[i][1] += c.MetaData.Statistics.NullCount
				if c.MetaData.Codec == format.Snappy && (c.ColumnIndexOffset != 0 || c.OffsetIndexOffset == 0) {
					t.Errorf("column %v: indexes at %d and %d", c.MetaData.PathInSchema, c.ColumnIndexOffset, c.OffsetIndexOffset)
				}
			}
		}
		return out
	}
	if a, b := totals(ours), totals(theirs); a != b {
		t.Errorf("values and nulls %v, the library's %v", a, b)
	}
	r := parquet.NewGenericReader[textRow](ours)
	defer r.Close()
	for _, at := range []int{1999, 3, 700, 1301} {
		got := make([]textRow, 1)
		if err := r.SeekToRow(int64(at)); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(got); err != nil && err != io.EOF || fmt.Sprint(got[0]) != fmt.Sprint(rows[at]) {
			t.Errorf("row %d: %v, %.80q", at, err, got)
		}
	}
}

// repeatingRows have a list with few texts, one text, and, in the second half, texts
// that do not repeat: their pages follow those with places in the dictionary.
func repeatingRows(n int) []textRow {
	out := make([]textRow, n)
	for i := range out {
		for k := range i % 9 {
			sum := sha256.Sum256([]byte(fmt.Sprint((i*k)%40, i/(n/2)*i*k)))
			out[i].Hits = append(out[i].Hits, textHit{Title: fmt.Sprintf("%x", sum), Link: "the same"})
		}
	}
	return out
}

func TestTextsThatRepeat(t *testing.T) {
	rows := repeatingRows(12000)
	data := encodeTextRows(t, rows, 64)
	path := save(t, data)
	if got, err := ReadAll[textRow](path); err != nil || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", rows) {
		t.Fatal(err, len(got))
	}
	f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for _, g := range f.Metadata().RowGroups {
		for _, s := range g.Columns[2].MetaData.EncodingStats {
			kinds[fmt.Sprint(len(g.Columns[2].MetaData.EncodingStats), s.PageType, s.Encoding)] = true
		}
		if m := g.Columns[3].MetaData; m.TotalUncompressedSize*10 > m.NumValues*int64(len("the same")) || m.DictionaryPageOffset == 0 {
			t.Errorf("one text takes %d bytes for %d values", m.TotalUncompressedSize, m.NumValues)
		}
	}
	if len(kinds) != 6 { // only plain; a dictionary and its places; and plain pages behind them
		t.Errorf("pages are of %v", kinds)
	}
	r := parquet.NewGenericReader[textRow](f)
	defer r.Close()
	for _, at := range []int{11999, 3, 6001, 5000} {
		got := make([]textRow, 1)
		if err := r.SeekToRow(int64(at)); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(got); err != nil && err != io.EOF || fmt.Sprint(got[0]) != fmt.Sprint(rows[at]) {
			t.Errorf("row %d: %v, %.80q", at, err, got)
		}
	}
}

// TestTextsInPython lets pyarrow read the file, check the sums of its pages, and
// give the rows back.
func TestTextsInPython(t *testing.T) {
	py := os.Getenv("SEARCHLOOP_PYTHON")
	if py == "" {
		py = "python3"
	}
	if exec.Command(py, "-c", "import pyarrow.parquet").Run() != nil {
		t.Skip("needs Python with pyarrow (SEARCHLOOP_PYTHON names the interpreter)")
	}
	rows := slices.Concat(textRows(2000), repeatingRows(6000))
	path := save(t, encodeTextRows(t, rows, 64))
	text, err := exec.Command(py, "-c", `import json, sys, pyarrow.parquet as pq
json.dump(pq.read_table(sys.argv[1], page_checksum_verification=True).to_pylist(), sys.stdout)`, path).Output()
	if err != nil {
		t.Fatal(err)
	}
	var got []textRow
	if err := json.Unmarshal(text, &got); err != nil || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", rows) {
		t.Fatalf("%v, %d rows", err, len(got))
	}
}

func TestTextsDamaged(t *testing.T) {
	rows := textRows(100)
	data := encodeTextRows(t, rows, 64)
	first := bytes.Index(data, []byte("id7")) // of the first page's values
	for _, i := range []int{first, len(data) / 3, len(data) / 2} {
		bad := bytes.Clone(data)
		bad[i] ^= 1
		if got, err := ReadAll[textRow](save(t, bad)); err == nil {
			t.Errorf("byte %d: no error, %d rows", i, len(got))
		}
	}
}

func TestTextsRefuses(t *testing.T) {
	type number struct {
		N int64 `parquet:"n"`
	}
	type common struct {
		Kind string `parquet:"kind,optional"`
	}
	if err := NewTexts(io.Discard, func(*number) int { return 8 }).Close(); err == nil || !strings.Contains(err.Error(), "int64 is neither text") {
		t.Error(err)
	}
	if err := NewTexts(io.Discard, func(*common) int { return 8 }).Write(common{}); err == nil || !strings.Contains(err.Error(), "not written here") {
		t.Error(err)
	}
}

// full takes so many bytes and then fails.
type full int

func (f *full) Write(p []byte) (int, error) {
	if *f -= full(len(p)); *f < 0 {
		return 0, fmt.Errorf("no space")
	}
	return len(p), nil
}

func TestTextsDiskFull(t *testing.T) {
	for _, space := range []full{2, 1 << 10} {
		w := NewTexts(&space, textBytes)
		w.limit, w.most = 64<<10, 256<<10
		err := w.Write(textRows(2000)...)
		if err == nil {
			err = w.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "no space") || w.Close() == nil {
			t.Fatal(err)
		}
	}
}
