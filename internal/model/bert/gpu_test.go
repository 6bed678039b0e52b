//go:build cuda

package bert

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"searchloop/internal/tensor"
	"searchloop/internal/tensor/cuda"
)

var openGPU = sync.OnceValues(func() (*cuda.Backend, error) { return cuda.New(0) })

func gpu(t testing.TB) *tensor.Shared {
	t.Helper()
	be, err := openGPU()
	if err != nil {
		t.Skip(err)
	}
	return &tensor.Shared{Encoding: be}
}

// cosine is the smallest of the vectors' cosines, and their mean.
func cosine(a, b []float32, dim int) (least, mean float64) {
	least = 1
	for i := 0; i < len(a); i += dim {
		var dot, aa, bb float64
		for j := i; j < i+dim; j++ {
			dot, aa, bb = dot+float64(a[j])*float64(b[j]), aa+float64(a[j])*float64(a[j]), bb+float64(b[j])*float64(b[j])
		}
		c := dot / math.Sqrt(aa*bb)
		least, mean = min(least, c), mean+c*float64(dim)/float64(len(a))
	}
	return least, mean
}

// The GPU's vectors have a cosine of 0.9999 to the CPU's: heads of 8, 32 and 64, mean
// and first token, absolute and rotary places.
func TestGPUAsCPU(t *testing.T) {
	on := gpu(t)
	shape := func(hidden, heads, inner, layers int) config {
		c := tiny()
		c.Vocab, c.Hidden, c.Heads, c.Intermediate, c.Layers, c.Positions = 1000, hidden, heads, inner, layers, 512
		return c
	}
	for name, dir := range map[string]string{
		"tiny":     write(t, tiny(), 1, nil),
		"small":    write(t, shape(384, 12, 1536, 6), 2, nil),
		"base":     write(t, shape(768, 12, 3072, 3), 3, nil),
		"xlm-r":    "testdata/xlmr",
		"jina":     "testdata/jina",
		"adapters": "testdata/hf",
	} {
		e, err := Load(dir, "")
		if err != nil {
			t.Fatal(name, err)
		}
		d, err := LoadOn(on, dir, "", Options{Rows: max(2048, e.MaxTokens())})
		if err != nil {
			t.Fatal(name, err)
		}
		seqs := texts(rand.New(rand.NewPCG(1, 2)), 50, min(200, e.MaxTokens()), e.Vocab())
		want, err := e.Encode(seqs)
		if err != nil {
			t.Fatal(name, err)
		}
		got, err := d.Encode(seqs)
		if err != nil {
			t.Fatal(name, err)
		}
		least, mean := cosine(got, want, e.Dim())
		t.Logf("%s: cosine at least %.6f, mean %.6f", name, least, mean)
		if !(least >= 0.9999) {
			t.Errorf("%s: cosine %v", name, least)
		}
		// A text alone, and all of them backwards, give the same bits.
		alone, err := d.Encode(seqs[7:8])
		if err != nil || !slices.Equal(alone, got[7*e.Dim():8*e.Dim()]) {
			t.Errorf("%s: a text alone has other bits (%v)", name, err)
		}
		back := slices.Clone(seqs)
		slices.Reverse(back)
		again, err := d.Encode(back)
		for i := range seqs {
			if n := len(seqs) - 1 - i; err != nil || !slices.Equal(again[n*e.Dim():(n+1)*e.Dim()], got[i*e.Dim():(i+1)*e.Dim()]) {
				t.Fatalf("%s: text %d has other bits in another pack (%v)", name, i, err)
			}
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Products in 8 bits on the GPU are those that the processor takes of the same rounded
// numbers: the vectors differ by bfloat16 and by what that rounds another way.
func TestGPUEighthsAsCPU(t *testing.T) {
	on := gpu(t)
	type bounds struct{ mean, least, toBFloat16 float64 } // the least are of a text of few tokens
	for p, want := range map[tensor.Products]bounds{tensor.E4M3Products: {0.9995, 0.995, 0.99}, tensor.ByteProducts: {0.9999, 0.9995, 0.9995}} {
		t.Run(p.String(), func(t *testing.T) {
			if p == tensor.E4M3Products && !on.HasEighths() || p == tensor.ByteProducts && !on.HasBytes() {
				t.Skip("the GPU has no such products")
			}
			c := tiny()
			c.Vocab, c.Hidden, c.Heads, c.Intermediate, c.Layers, c.Positions = 1000, 768, 12, 3072, 3, 512
			dir := write(t, c, 3, nil)
			seqs := texts(rand.New(rand.NewPCG(1, 2)), 40, 200, c.Vocab)
			var all [3][]float32
			for i, o := range []struct {
				on       tensor.Encoding
				products tensor.Products
			}{{on.Encoding, p}, {tensor.CPU.(tensor.Encoding), p}, {on.Encoding, tensor.OwnProducts}} {
				d, err := LoadOn(&tensor.Shared{Encoding: o.on}, dir, "", Options{Rows: 2048, Products: o.products})
				if err != nil {
					t.Fatal(err)
				}
				if all[i], err = d.Encode(seqs); err != nil {
					t.Fatal(err)
				}
				alone, err := d.Encode(seqs[5:6])
				if err != nil || !slices.Equal(alone, all[i][5*c.Hidden:6*c.Hidden]) {
					t.Errorf("other bits alone (%v)", err)
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
			least, mean := cosine(all[0], all[1], c.Hidden)
			t.Logf("to the processor: cosine at least %.6f, mean %.6f", least, mean)
			if !(mean >= want.mean) || !(least >= want.least) {
				t.Errorf("cosine %v, on average %v, to the processor's vectors in 8 bits", least, mean)
			}
			least, mean = cosine(all[0], all[2], c.Hidden)
			t.Logf("to bfloat16: cosine at least %.6f, mean %.6f", least, mean)
			if !(least >= want.toBFloat16) {
				t.Errorf("cosine %v to the vectors in bfloat16", least)
			}
		})
	}
}
