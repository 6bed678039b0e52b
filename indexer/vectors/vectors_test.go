package vectors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"searchloop/internal/fail"
	"searchloop/internal/safetensors"
)

var space = Space{Encoder: strings.Repeat("ab", 32), Dim: 3, Pooling: "mean", Normalized: true, MaxTokens: 256, QueryPrefix: "query: ", PassagePrefix: "passage: "}

func rows(n, dim int) (ids []string, vecs []float32) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("p%d — é", i))
		for c := range dim {
			vecs = append(vecs, float32(i)+float32(c)/4)
		}
	}
	return ids, vecs
}

// encode writes the rows in calls of step rows.
func encode(t testing.TB, s Space, ids []string, vecs []float32, step int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, s, Float32)
	if err != nil {
		t.Fatal(err)
	}
	for lo := 0; lo < len(ids); lo += step {
		hi := min(lo+step, len(ids))
		if err := w.Write(ids[lo:hi], vecs[lo*s.Dim:hi*s.Dim]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if w.Rows() != int64(len(ids)) {
		t.Fatalf("%d rows written of %d", w.Rows(), len(ids))
	}
	return b.Bytes()
}

func save(t testing.TB, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.arrow")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func decode(path string) (s Space, ids []string, vecs []float32, err error) {
	r, err := Open(path)
	if err != nil {
		return s, nil, nil, err
	}
	defer r.Close()
	for b, err := range r.Batches() {
		if err != nil {
			return s, nil, nil, err
		}
		ids, vecs = append(ids, b.IDs...), append(vecs, b.Vectors...)
	}
	return r.Space(), ids, vecs, nil
}

func TestRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 1023, 1024, 1025, 2500} {
		ids, vecs := rows(n, 3)
		s, gotIDs, gotVecs, err := decode(save(t, encode(t, space, ids, vecs, 7)))
		if err != nil {
			t.Fatal(err)
		}
		if s != space || !slices.Equal(gotIDs, ids) || !slices.Equal(gotVecs, vecs) {
			t.Fatalf("%d rows came back different (space %+v)", n, s)
		}
	}
}

// The bytes must not depend on how the rows were divided over writes: a resumed
// job divides them differently.
func TestSameRowsSameBytes(t *testing.T) {
	ids, vecs := rows(3000, 3)
	want := encode(t, space, ids, vecs, 3000)
	for _, step := range []int{1, 64, 1024, 1500} {
		if !bytes.Equal(encode(t, space, ids, vecs, step), want) {
			t.Errorf("writing %d rows a time gives other bytes", step)
		}
	}
}

func TestDamagedFiles(t *testing.T) {
	ids, vecs := rows(50, 3)
	good := encode(t, space, ids, vecs, 50)
	check := func(name string, data []byte) {
		path := save(t, data)
		_, gotIDs, gotVecs, err := decode(path)
		if err == nil {
			// A flipped bit inside a number or an id, or one that hides all batches, is for
			// the manifest to find: it has the digest and the number of rows.
			if n := len(gotIDs); (n != 50 && n != 0) || len(gotVecs) != 3*n {
				t.Errorf("%s: %d rows without an error", name, len(gotIDs))
			}
			return
		}
		if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n := 0; n < len(good); n += 5 {
		check(fmt.Sprintf("cut at %d", n), good[:n])
	}
	for at := 0; at < len(good); at += 3 {
		c := bytes.Clone(good)
		c[at] ^= 0xff
		check(fmt.Sprintf("byte %d flipped", at), c)
	}
}

// Files of other programs: right types are read, wrong ones named.
func TestForeignColumns(t *testing.T) {
	keys, values := space.metadata()
	meta := arrow.NewMetadata(keys, values)
	list := arrow.FixedSizeListOf(3, arrow.PrimitiveTypes.Float32)
	id := arrow.Field{Name: "id", Type: arrow.BinaryTypes.String}
	for name, c := range map[string]struct {
		fields []arrow.Field
		meta   *arrow.Metadata
		want   string
	}{
		"no metadata":     {[]arrow.Field{id, {Name: "vector", Type: list}}, nil, "searchloop.schema"},
		"other dimension": {[]arrow.Field{id, {Name: "vector", Type: arrow.FixedSizeListOf(4, arrow.PrimitiveTypes.Float32)}}, &meta, "dimension 4"},
		"doubles":         {[]arrow.Field{id, {Name: "vector", Type: arrow.FixedSizeListOf(3, arrow.PrimitiveTypes.Float64)}}, &meta, "not a fixed-size list of float32"},
		"variable list":   {[]arrow.Field{id, {Name: "vector", Type: arrow.ListOf(arrow.PrimitiveTypes.Float32)}}, &meta, "not a fixed-size list"},
		"number ids":      {[]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "vector", Type: list}}, &meta, "not utf8"},
		"other names":     {[]arrow.Field{id, {Name: "embedding", Type: list}}, &meta, "not id and vector"},
	} {
		var b bytes.Buffer
		w, err := ipc.NewFileWriter(&position{w: &b}, ipc.WithSchema(arrow.NewSchema(c.fields, c.meta)))
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(save(t, b.Bytes())); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNullsAreRefused(t *testing.T) {
	var b bytes.Buffer
	sc := schema(space, Float32)
	w, err := ipc.NewFileWriter(&position{w: &b}, ipc.WithSchema(sc))
	if err != nil {
		t.Fatal(err)
	}
	rb := array.NewRecordBuilder(memory.DefaultAllocator, sc)
	rb.Field(0).(*array.StringBuilder).AppendValues([]string{"a", "b"}, nil)
	list := rb.Field(1).(*array.FixedSizeListBuilder)
	list.Append(true)
	list.ValueBuilder().(*array.Float32Builder).AppendValues([]float32{1, 2, 3}, nil)
	list.AppendNull()
	rec := rb.NewRecord()
	if err := w.Write(rec); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := decode(save(t, b.Bytes())); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "null") {
		t.Fatal(err)
	}
}

func TestWriterRefusesNaN(t *testing.T) {
	w, err := NewWriter(new(bytes.Buffer), space, Float32)
	if err != nil {
		t.Fatal(err)
	}
	err = w.Write([]string{"a", "b"}, []float32{1, 2, 3, 4, float32(math.NaN()), 6})
	if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "row 2") || !strings.Contains(err.Error(), "sample b") {
		t.Fatal(err)
	}
}

func TestSpaceDiff(t *testing.T) {
	if d := space.Diff(space); d != "" {
		t.Errorf("equal spaces differ: %s", d)
	}
	o := space
	o.Encoder, o.Dim, o.QueryPrefix = strings.Repeat("cd", 32), 4, ""
	d := space.Diff(o)
	for _, part := range []string{"abababababab and cdcdcdcdcdcd", "dimension 3 and 4", `"query: " and ""`} {
		if !strings.Contains(d, part) {
			t.Errorf("%q lacks %q", d, part)
		}
	}
	// Digests that differ only after the part that is shown must still differ.
	o = space
	o.Encoder = space.Encoder[:60] + "0000"
	if space.Diff(o) == "" {
		t.Error("different encoders compare equal")
	}
}

// Half floats come back as the nearest ones to what was written, to the bit, and
// as they are stored.
func TestHalves(t *testing.T) {
	s := space
	s.Dim = 8
	ids := []string{"a", "b"}
	vecs := []float32{0, 1, -1.0009765625, 0.1, 65504, 6.1e-5, 5.96e-8, 2.9e-8, 0.33325, 1.00048828125, 1.00146484375, -0.7, 3e-6, 1234.5, 2049, 2051}
	var b bytes.Buffer
	w, err := NewWriter(&b, s, Float16)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(ids, vecs); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Open(save(t, b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Format() != Float16 || r.Space() != s {
		t.Errorf("format %v, space %+v", r.Format(), r.Space())
	}
	for got, err := range r.Batches() {
		if err != nil || !slices.Equal(got.IDs, ids) {
			t.Fatal(got.IDs, err)
		}
		for i, v := range vecs {
			if want := safetensors.ToF16(v); got.Halves[i] != want || got.Vectors[i] != safetensors.FromF16(want) {
				t.Errorf("%g is read as %#04x, %g; want %#04x", v, got.Halves[i], got.Vectors[i], want)
			}
		}
	}
	err = w.Write([]string{"c"}, []float32{0, 0, 0, 0, 0, 0, 0, 65520})
	if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "row 3") || !strings.Contains(err.Error(), "fp32") {
		t.Errorf("too large: %v", err)
	}
}

// Batches are read ahead into memory that is used again, and whoever stops early
// leaves nothing behind.
func TestReadingAhead(t *testing.T) {
	wide := space
	wide.Dim = 256
	ids, vecs := rows(20*batchRows+5, wide.Dim)
	path := save(t, encode(t, wide, ids, vecs, 1000))
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	at := 0
	for b, err := range r.Batches() {
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // the next batch must not write over this one
		if n := len(b.IDs); !slices.Equal(b.IDs, ids[at:at+n]) || !slices.Equal(b.Vectors, vecs[at*wide.Dim:(at+n)*wide.Dim]) {
			t.Fatalf("rows from %d on came back different", at)
		}
		at += len(b.IDs)
	}
	runtime.ReadMemStats(&after)
	if at != len(ids) {
		t.Errorf("%d rows of %d", at, len(ids))
	}
	if used, batch := after.TotalAlloc-before.TotalAlloc, uint64(4*batchRows*wide.Dim); used > 8*batch {
		t.Errorf("%d bytes allocated for batches of %d", used, batch)
	}
	goroutines := runtime.NumGoroutine()
	for range 3 {
		for range r.Batches() {
			break
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if runtime.NumGoroutine() <= goroutines {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines, before %d", runtime.NumGoroutine(), goroutines)
}

// Python's pyarrow reads both formats.
func TestPyarrow(t *testing.T) {
	python := os.Getenv("SEARCHLOOP_PYTHON")
	if python == "" {
		python = "python3"
	}
	if exec.Command(python, "-c", "import pyarrow").Run() != nil {
		t.Skip("no pyarrow (SEARCHLOOP_PYTHON names a Python that has it)")
	}
	ids, vecs := rows(2500, 3)
	for i := range vecs {
		vecs[i] /= 2500
	}
	for _, f := range []Format{Float32, Float16} {
		var b bytes.Buffer
		w, err := NewWriter(&b, space, f)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Write(ids, vecs), w.Close()); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(python, "testdata/read.py", save(t, b.Bytes())).Output()
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Type, Dtype string
			IDs         []string
			Bits        []uint32
		}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatal(err)
		}
		if want := map[Format]string{Float32: "float32", Float16: "float16"}[f]; got.Dtype != want || !slices.Equal(got.IDs, ids) || len(got.Bits) != len(vecs) {
			t.Fatalf("%v: dtype %s, %d ids, %d numbers", f, got.Dtype, len(got.IDs), len(got.Bits))
		}
		for i, v := range vecs {
			want := math.Float32bits(v)
			if f == Float16 {
				want = uint32(safetensors.ToF16(v))
			}
			if got.Bits[i] != want {
				t.Fatalf("%v: number %d is %#x, want %#x", f, i, got.Bits[i], want)
			}
		}
	}
}
