package bert

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"searchloop/internal/cuda"
	"searchloop/internal/fail"
	"searchloop/internal/safetensors"
	"searchloop/internal/tensor"
)

var onCPU = tensor.CPU.(tensor.Encoding)

// loadOn loads a folder into the memory of the CPU's back end, whose arithmetic is
// that of Encoder.
func loadOn(t *testing.T, dir, adapter string, rows int) *Device {
	t.Helper()
	d, err := LoadOn(&tensor.Shared{Encoding: onCPU}, dir, adapter, Options{Rows: rows})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// texts are n sequences of up to most tokens of a vocabulary.
func texts(r *rand.Rand, n, most, vocab int) [][]int32 {
	out := make([][]int32, n)
	for i := range out {
		out[i] = make([]int32, 1+r.IntN(most))
		for j := range out[i] {
			out[i][j] = 2 + r.Int32N(int32(vocab)-2)
		}
	}
	return out
}

// What passes by packs give is what the encoder gives, for every kind of model.
func TestDeviceAsEncoder(t *testing.T) {
	change := func(f func(c *config)) config { c := tiny(); f(&c); return c }
	cls := func(_ map[string]safetensors.Tensor, files map[string]string) {
		files["searchloop.json"] = `{"pooling": "cls", "normalize": false}`
	}
	for name, dir := range map[string]string{
		"bert":     write(t, tiny(), 1, nil),
		"first":    write(t, tiny(), 2, cls),
		"relu":     write(t, change(func(c *config) { c.Act = "relu" }), 3, nil),
		"gelu_new": write(t, change(func(c *config) { c.Act = "gelu_new" }), 4, nil),
		"xlm-r":    "testdata/xlmr",
		"jina":     "testdata/jina",
	} {
		e, err := Load(dir, "")
		if err != nil {
			t.Fatal(name, err)
		}
		r := rand.New(rand.NewPCG(1, 2))
		seqs := texts(r, 40, min(30, e.MaxTokens()), e.Vocab())
		if e.config.xlm() && len(seqs[7]) > 1 {
			seqs[7][1] = int32(e.config.Pad) // a padding token in the text
		}
		want, err := e.Encode(seqs)
		if err != nil {
			t.Fatal(name, err)
		}
		d := loadOn(t, dir, "", max(64, e.MaxTokens()))
		got, err := d.Encode(seqs)
		if err != nil {
			t.Fatal(name, err)
		}
		for i := range got {
			if diff := got[i] - want[i]; diff > 1e-5 || diff < -1e-5 {
				t.Fatalf("%s: number %d of vector %d is %v, the encoder's %v", name, i%e.Dim(), i/e.Dim(), got[i], want[i])
			}
		}
		if d.Dim() != e.Dim() || d.Vocab() != e.Vocab() || d.MaxTokens() != e.MaxTokens() {
			t.Errorf("%s: another shape", name)
		}
	}
}

// Many callers at once get their own vectors, and the bits of a call alone.
func TestDeviceJoinsCalls(t *testing.T) {
	d := loadOn(t, write(t, tiny(), 1, nil), "", 100)
	r := rand.New(rand.NewPCG(3, 4))
	seqs := texts(r, 60, 80, d.Vocab())
	var alone []float32
	for _, s := range seqs {
		v, err := d.Encode([][]int32{s})
		if err != nil {
			t.Fatal(err)
		}
		alone = append(alone, v...)
	}
	var wait sync.WaitGroup
	for lo := 0; lo < len(seqs); lo += 5 {
		wait.Go(func() {
			v, err := d.Encode(seqs[lo : lo+5])
			if err != nil || !slices.Equal(v, alone[lo*d.Dim():(lo+5)*d.Dim()]) {
				t.Errorf("call %d: other vectors than alone (%v)", lo/5, err)
			}
		})
	}
	wait.Wait()
	if v, err := d.Encode(nil); err != nil || len(v) != 0 {
		t.Errorf("nothing: %v, %v", v, err)
	}
}

// Products in 8 bits give nearly the same vectors, whatever company a text is in, and
// what is not served is refused.
func TestDeviceInEighths(t *testing.T) {
	for _, p := range []tensor.Products{tensor.E4M3Products, tensor.ByteProducts} {
		t.Run(p.String(), func(t *testing.T) { inEighths(t, p) })
	}
}

func inEighths(t *testing.T, p tensor.Products) {
	c := tiny()
	c.Hidden, c.Heads, c.Intermediate = 32, 4, 256
	dir := write(t, c, 1, nil)
	on := &tensor.Shared{Encoding: onCPU}
	d, err := LoadOn(on, dir, "", Options{Rows: 100, Products: p})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	seqs := texts(rand.New(rand.NewPCG(5, 6)), 30, 60, d.Vocab())
	got, err := d.Encode(seqs)
	if err != nil {
		t.Fatal(err)
	}
	exact, err := loadOn(t, dir, "", 100).Encode(seqs)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Equal(got, exact) {
		t.Error("nothing is rounded")
	}
	for i := 0; i < len(got); i += d.Dim() {
		var dot float32
		for j := i; j < i+d.Dim(); j++ {
			dot += got[j] * exact[j]
		}
		if want := map[tensor.Products]float32{tensor.E4M3Products: 0.99, tensor.ByteProducts: 0.9995}[p]; !(dot >= want) {
			t.Errorf("text %d: cosine %v", i/d.Dim(), dot)
		}
	}
	if alone, err := d.Encode(seqs[3:4]); err != nil || !slices.Equal(alone, got[3*d.Dim():4*d.Dim()]) {
		t.Errorf("other bits alone (%v)", err)
	}
	if _, err := LoadOn(on, write(t, tiny(), 1, nil), "", Options{Rows: 100, Products: p}); fail.KindOf(err) != fail.Usage || !strings.Contains(err.Error(), "of 16") {
		t.Errorf("widths of 24 and 40: %v", err)
	}
}

// failing is a back end that fails as a device does.
type failing struct{ tensor.Encoding }

func (failing) LinearAct(y, x, w, b *tensor.Tensor, rows, in, out int, act tensor.Act) {
	panic(&cuda.Fault{Err: fail.New(fail.Service, "multiply", "", "the GPU is gone")})
}

// A device that fails is an error of every call, and no call waits for ever.
func TestDeviceFails(t *testing.T) {
	d, err := LoadOn(&tensor.Shared{Encoding: failing{onCPU}}, write(t, tiny(), 1, nil), "", Options{Rows: 100})
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for range 10 {
		wait.Go(func() {
			if _, err := d.Encode(texts(rand.New(rand.NewPCG(1, 1)), 9, 40, d.Vocab())); fail.KindOf(err) != fail.Service {
				t.Errorf("error %v", err)
			}
		})
	}
	wait.Wait()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestDeviceRefuses(t *testing.T) {
	dir := write(t, tiny(), 1, nil)
	d := loadOn(t, dir, "", 100)
	if _, err := d.Encode([][]int32{{3}, {}}); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "0 tokens") {
		t.Errorf("an empty sequence: %v", err)
	}
	if _, err := d.Encode([][]int32{{3}, {50}}); fail.KindOf(err) != fail.BadInput {
		t.Errorf("an unknown id: %v", err)
	}
	if _, err := LoadOn(&tensor.Shared{Encoding: onCPU}, dir, "", Options{Rows: 50}); fail.KindOf(err) != fail.Usage || !strings.Contains(err.Error(), "packs of 50") {
		t.Errorf("packs smaller than a text: %v", err)
	}
	odd := tiny()
	odd.Hidden = 30
	if _, err := LoadOn(&tensor.Shared{Encoding: strict{onCPU}}, write(t, odd, 1, nil), "", Options{}); fail.KindOf(err) != fail.Usage || !strings.Contains(err.Error(), "multiples of 8") {
		t.Errorf("a width of 30: %v", err)
	}
	if _, err := LoadOn(&tensor.Shared{Encoding: onCPU}, t.TempDir(), "", Options{}); fail.KindOf(err) != fail.BadInput {
		t.Errorf("an empty folder: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := d.Encode([][]int32{{3}}); err == nil {
		t.Error("a closed encoder encodes")
	}
}

// strict is a back end with a GPU's demands.
type strict struct{ tensor.Encoding }

func (strict) Widths() int { return 8 }
