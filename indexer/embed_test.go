package indexer_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"searchloop/indexer"
	"searchloop/indexer/encoder"
	"searchloop/indexer/flat"
	"searchloop/indexer/vectors"
	"searchloop/internal/atomicfile"
	"searchloop/internal/device"
	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/tensor"
)

// files reads all data parts of a dataset.
func files(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	m, err := manifest.Open(dir)
	must(t, err)
	must(t, m.Verify(dir))
	out := map[string][]byte{}
	for _, p := range m.Parts {
		data, err := os.ReadFile(filepath.Join(dir, p.Name))
		must(t, err)
		out[p.Name] = data
	}
	return out
}

func same(t testing.TB, what string, got, want map[string][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d files, want %d", what, len(got), len(want))
	}
	for name, w := range want {
		if !bytes.Equal(got[name], w) {
			t.Errorf("%s: %s has other bytes", what, name)
		}
	}
}

var dyingTurn sync.Mutex // encoders on a device are called from many goroutines

// dying is a context that is cancelled after it was asked n times: it stops an
// embed job between two forward passes, as a kill does.
type dying struct {
	context.Context
	n int
}

func (d *dying) Err() error {
	dyingTurn.Lock()
	defer dyingTurn.Unlock()
	if d.n--; d.n < 0 {
		return context.Canceled
	}
	return nil
}

// However often and wherever embedding is cut off, what is finished is not done
// again and the files end up as those of a quiet run.
func TestEmbedResumes(t *testing.T) {
	rows := facts(500)
	quiet := build(t, t.TempDir(), rows, 32, 2)
	want := files(t, quiet.vectors)
	for _, after := range []int{0, 1, 3} {
		out := filepath.Join(t.TempDir(), "vectors")
		o := indexer.EmbedOptions{Encoder: quiet.encoder, Passages: quiet.passages, Out: out}
		tries := 0
		for {
			tries++
			err := indexer.Embed(&dying{context.Background(), after}, newRun(t, 2), o)
			if err == nil {
				break
			}
			if fail.KindOf(err) != fail.Interrupted {
				t.Fatal(err)
			}
			if _, err := manifest.Open(out); err == nil {
				t.Fatal("an unfinished dataset has a manifest")
			}
			if tries > 20 {
				t.Fatal("no progress")
			}
			if after == 0 { // nothing can ever be embedded: go on without dying
				after = 100
			}
		}
		if after < 100 && tries < 3 {
			t.Errorf("died only %d times", tries-1)
		}
		same(t, "resumed", files(t, out), want)
		m, err := manifest.Open(out)
		must(t, err)
		if after < 100 && m.Counts.Reused == 0 {
			t.Errorf("nothing was reused: %+v", m.Counts)
		}
		if m.Counts.In != 500 || m.Counts.OK != 500 {
			t.Errorf("counts %+v", m.Counts)
		}
	}
}

// onDevice is the passes of a device, computed by the processor.
func onDevice() *device.GPU {
	return &device.GPU{Shared: tensor.Shared{Encoding: tensor.CPU.(tensor.Encoding)}, Name: "test"}
}

// On a device many batches are under way at once: the files are in the order of the
// rows and near those of the processor, a job that is cut off ends with the same bytes,
// and the vectors of one device are not taken for another's.
func TestEmbedOnDevice(t *testing.T) {
	d := build(t, t.TempDir(), facts(700), 32, 2)
	ctx := context.Background()
	o := indexer.EmbedOptions{Encoder: d.encoder, Passages: d.passages, Out: filepath.Join(t.TempDir(), "vectors"), GPU: onDevice()}
	must(t, indexer.Embed(ctx, newRun(t, 2), o))
	want, host := files(t, o.Out), files(t, d.vectors)
	for name, data := range host {
		if len(want[name]) != len(data) {
			t.Errorf("%s has %d bytes, the processor's %d", name, len(want[name]), len(data))
		}
	}
	m, err := manifest.Open(o.Out)
	must(t, err)
	if !strings.Contains(string(m.Meta), `"device":"test"`) && !strings.Contains(string(m.Meta), `"device": "test"`) {
		t.Errorf("the manifest names no device: %s", m.Meta)
	}
	o.Out = filepath.Join(t.TempDir(), "vectors")
	if err := indexer.Embed(&dying{ctx, 3}, newRun(t, 2), o); fail.KindOf(err) != fail.Interrupted {
		t.Fatalf("cut off: %v", err)
	}
	must(t, indexer.Embed(ctx, newRun(t, 2), o))
	same(t, "cut off and resumed", files(t, o.Out), want)

	o.GPU = nil
	must(t, indexer.Embed(ctx, newRun(t, 2), o))
	same(t, "made anew on the processor", files(t, o.Out), host)
	o.Encoder, o.GPU = "http://127.0.0.1:1", onDevice()
	if err := indexer.Embed(ctx, newRun(t, 2), o); fail.KindOf(err) != fail.Usage || !strings.Contains(err.Error(), "a server has its own") {
		t.Errorf("a server and a device: %v", err)
	}
}

// A stop asks politely: the batch in hand is finished and the next run goes on.
func TestEmbedStops(t *testing.T) {
	d := build(t, t.TempDir(), facts(300), 32, 1)
	out := filepath.Join(t.TempDir(), "vectors")
	o := indexer.EmbedOptions{Encoder: d.encoder, Passages: d.passages, Out: out}
	r := newRun(t, 1)
	r.Stop()
	if err := indexer.Embed(context.Background(), r, o); fail.KindOf(err) != fail.Interrupted {
		t.Fatalf("stopped: %v", err)
	}
	must(t, indexer.Embed(context.Background(), newRun(t, 1), o))
	same(t, "after a stop", files(t, out), files(t, d.vectors))
}

// A rerun with equal inputs does nothing; a changed setting makes the vectors stale.
func TestEmbedAgain(t *testing.T) {
	d := build(t, t.TempDir(), facts(60), 32, 1)
	ctx := context.Background()
	o := indexer.EmbedOptions{Encoder: d.encoder, Passages: d.passages, Out: d.vectors}
	before := files(t, d.vectors)
	path := filepath.Join(d.vectors, manifest.File)
	st, err := os.Stat(path)
	must(t, err)
	must(t, indexer.Embed(ctx, newRun(t, 1), o))
	if again, err := os.Stat(path); err != nil || !again.ModTime().Equal(st.ModTime()) {
		t.Errorf("the manifest was written again (%v)", err)
	}
	prefix := "text: "
	o.Override.PassagePrefix = &prefix
	must(t, indexer.Embed(ctx, newRun(t, 1), o))
	after := files(t, d.vectors)
	if bytes.Equal(before["part-00000-of-00001.arrow"], after["part-00000-of-00001.arrow"]) {
		t.Error("another prefix gave the same vectors")
	}
	// The index of the old vectors is stale and is built anew; it then searches with the new prefix's space.
	must(t, indexer.Build(ctx, newRun(t, 2), indexer.BuildOptions{Vectors: d.vectors, Passages: d.passages, Out: d.index}))
	if p := open(t, d.index).Describe().Space.PassagePrefix; p != prefix {
		t.Errorf("prefix %q", p)
	}
}

func TestEmbedRefuses(t *testing.T) {
	d := build(t, t.TempDir(), facts(60), 32, 1)
	ctx := context.Background()
	try := func(what, want string, o indexer.EmbedOptions) {
		t.Helper()
		o.Out = filepath.Join(t.TempDir(), "vectors")
		err := indexer.Embed(ctx, newRun(t, 1), o)
		if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	many := 1000
	try("no encoder", "config.json", indexer.EmbedOptions{Encoder: t.TempDir(), Passages: d.passages})
	try("no passages", "prep", indexer.EmbedOptions{Encoder: d.encoder, Passages: t.TempDir()})
	try("vectors as passages", "passages", indexer.EmbedOptions{Encoder: d.encoder, Passages: d.vectors})
	try("too many tokens", "1000", indexer.EmbedOptions{Encoder: d.encoder, Passages: d.passages, Override: encoder.Override{MaxTokens: &many}})
	// One flipped bit in a part whose size still fits.
	part := filepath.Join(d.passages, "part-00001-of-00002.parquet")
	data, err := os.ReadFile(part)
	must(t, err)
	data[len(data)/2] ^= 4
	must(t, os.WriteFile(part, data, 0o644))
	try("flipped bit", part, indexer.EmbedOptions{Encoder: d.encoder, Passages: d.passages})
}

// putVectors replaces a part of a vectors dataset.
func putVectors(t testing.TB, dir, name string, s vectors.Space, ids []string, vecs []float32) {
	t.Helper()
	var b bytes.Buffer
	w, err := vectors.NewWriter(&b, s, vectors.Float32)
	must(t, err)
	must(t, w.Write(ids, vecs))
	must(t, w.Close())
	must(t, atomicfile.WriteFile(filepath.Join(dir, name), b.Bytes()))
}

func TestBuildRefuses(t *testing.T) {
	rows := facts(20)
	var ids []string
	for _, p := range rows {
		ids = append(ids, p.ID)
	}
	swapped := append(slices.Clone(ids[10:]), "")[:10]
	swapped[2], swapped[3] = swapped[3], swapped[2]
	part := "part-00001-of-00002.arrow"
	for what, c := range map[string]struct {
		ids   []string
		dim   int
		other bool // of another encoder
		nan   bool
		rows  int64 // what the manifest says
		want  []string
	}{
		"another dimension":   {ids[10:], 64, false, false, 10, []string{part, "dimension 64 and 32", "embed"}},
		"another encoder":     {ids[10:], 32, true, false, 10, []string{part, "encoder", "embed"}},
		"swapped rows":        {swapped, 32, false, false, 10, []string{"row 13", "p13", "embed"}},
		"NaN":                 {ids[10:], 32, false, true, 10, []string{"NaN"}},
		"a row is missing":    {ids[10:19], 32, false, false, 9, []string{"19 vectors for 20 passages"}},
		"manifest that lies":  {ids[10:19], 32, false, false, 10, []string{part, "9 rows", "10"}},
		"one row too many":    {append(slices.Clone(ids[10:]), "x"), 32, false, false, 11, []string{"21 vectors for 20 passages"}},
		"too many, concealed": {append(slices.Clone(ids[10:]), "x"), 32, false, false, 10, []string{part, "11 rows"}},
	} {
		t.Run(what, func(t *testing.T) {
			d := build(t, t.TempDir(), rows, 32, 2)
			r, err := vectors.Open(filepath.Join(d.vectors, part))
			must(t, err)
			s := r.Space()
			must(t, r.Close())
			s.Dim = c.dim
			if c.other {
				s.Encoder = strings.Repeat("0", 64)
			}
			vecs := make([]float32, len(c.ids)*c.dim)
			for i := range vecs {
				vecs[i] = 1
			}
			putVectors(t, d.vectors, part, s, c.ids, vecs)
			if c.nan {
				spoil(t, filepath.Join(d.vectors, part))
			}
			reseal(t, d.vectors, func(m *manifest.Manifest) { m.Parts[1].Rows = c.rows })
			err = indexer.Build(context.Background(), newRun(t, 1), indexer.BuildOptions{Vectors: d.vectors, Passages: d.passages, Out: filepath.Join(t.TempDir(), "index")})
			if fail.KindOf(err) != fail.BadInput {
				t.Fatalf("%v", err)
			}
			for _, w := range append(c.want, "(") {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("message lacks %q: %v", w, err)
				}
			}
		})
	}
	d, other := build(t, t.TempDir(), rows, 32, 1), build(t, t.TempDir(), facts(20)[1:], 32, 1)
	err := indexer.Build(context.Background(), newRun(t, 1), indexer.BuildOptions{Vectors: d.vectors, Passages: other.passages, Out: filepath.Join(t.TempDir(), "index")})
	if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "other passages") {
		t.Errorf("vectors of other passages: %v", err)
	}
}

// Vectors are digested while they are read: a flipped bit that nobody could see is
// found in the last part too, damage is named before what it does to the numbers,
// and nothing of such an index is published.
func TestBuildFindsDamage(t *testing.T) {
	rows := facts(20)
	for what, c := range map[string]struct {
		part int
		with byte
	}{"first part": {0, 1}, "last part": {1, 1}, "a number becomes a NaN": {0, 0xff}} {
		d := build(t, t.TempDir(), rows, 32, 2)
		path := filepath.Join(d.vectors, fmt.Sprintf("part-%05d-of-00002.arrow", c.part))
		r, err := vectors.Open(path)
		must(t, err)
		var row []byte // the last one
		for b, err := range r.Batches() {
			must(t, err)
			row, err = binary.Append(nil, binary.LittleEndian, b.Vectors[len(b.Vectors)-32:])
			must(t, err)
		}
		must(t, r.Close())
		data, err := os.ReadFile(path)
		must(t, err)
		at := bytes.Index(data, row)
		if c.with == 1 {
			data[at] ^= 1
		} else {
			copy(data[at:], []byte{0xff, 0xff, 0xff, 0xff})
		}
		must(t, os.WriteFile(path, data, 0o644))
		out := filepath.Join(t.TempDir(), "index")
		err = indexer.Build(context.Background(), newRun(t, 1), indexer.BuildOptions{Vectors: d.vectors, Passages: d.passages, Out: out})
		if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "SHA-256") || !strings.Contains(err.Error(), filepath.Base(path)) {
			t.Errorf("%s: %v", what, err)
		}
		if made, _ := filepath.Glob(filepath.Join(out, "*.index")); len(made) > 0 {
			t.Errorf("%s: %v was published", what, made)
		}
	}
}

// spoil puts a NaN over a 1 in the file.
func spoil(t testing.TB, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	ones := bytes.Repeat([]byte{0, 0, 0x80, 0x3f}, 32)
	at := bytes.Index(data, ones)
	if at < 0 {
		t.Fatal("no vector of ones in the file")
	}
	copy(data[at+16:], []byte{0, 0, 0xc0, 0x7f})
	must(t, os.WriteFile(path, data, 0o644))
}

// An index of half floats is the same whether the vectors were rounded when they
// were stored or when they were indexed; other kinds are built from halves too.
func TestEmbedHalves(t *testing.T) {
	ctx := context.Background()
	d := build(t, t.TempDir(), facts(300), 32, 2)
	own := newTree(t.TempDir())
	o := indexer.EmbedOptions{Encoder: d.encoder, Passages: d.passages, Out: own.vectors, Half: true}
	must(t, indexer.Embed(ctx, newRun(t, 2), o))
	r, err := vectors.Open(filepath.Join(own.vectors, "part-00000-of-00002.arrow"))
	must(t, err)
	if r.Format() != vectors.Float16 {
		t.Errorf("format %v", r.Format())
	}
	must(t, r.Close())
	index := func(from, to string, format flat.Format) {
		t.Helper()
		must(t, indexer.Build(ctx, newRun(t, 3), indexer.BuildOptions{Vectors: from, Passages: d.passages, Out: to, Format: format}))
	}
	rounded := filepath.Join(t.TempDir(), "rounded")
	index(own.vectors, own.index, flat.FP16)
	index(d.vectors, rounded, flat.FP16)
	got, want := files(t, own.index), files(t, rounded)
	for name, data := range want {
		if strings.HasPrefix(name, "part-") && !bytes.Equal(got[name], data) {
			t.Errorf("%s has other bytes", name)
		}
	}
	wide := filepath.Join(t.TempDir(), "wide")
	index(own.vectors, wide, flat.Flat)
	queries := []string{"founder of vornavor", "river"}
	a, err := open(t, wide).Search(ctx, queries, 5)
	must(t, err)
	b, err := open(t, own.index).Search(ctx, queries, 5)
	must(t, err)
	if !reflect.DeepEqual(a, b) {
		t.Errorf("float32 of half floats: %v, half floats: %v", a, b)
	}
	// The format is one of the settings: another one makes the vectors stale.
	o.Half = false
	must(t, indexer.Embed(ctx, newRun(t, 2), o))
	same(t, "float32 again", files(t, own.vectors), files(t, d.vectors))
}
