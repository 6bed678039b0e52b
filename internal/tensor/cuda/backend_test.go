//go:build cuda

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"searchloop/internal/cuda"
	"searchloop/internal/fail"
	"searchloop/internal/tensor"
)

// gpu is the back end under test; without a GPU the tests say so and skip.
var gpu *Backend

func TestMain(m *testing.M) {
	var err error
	if gpu, err = New(0); err != nil {
		fmt.Println("no GPU to test on:", err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// pair is the same values on both back ends. The host's are rounded as the
// device's are, so that only arithmetic differs.
type pair struct{ host, dev *tensor.Tensor }

type bench struct {
	*testing.T
	rnd *rand.Rand
}

func newBench(t *testing.T) *bench { return &bench{t, rand.New(rand.NewPCG(rand.Uint64(), 1))} }

func round(x float32) float32 {
	u := math.Float32bits(x)
	return math.Float32frombits((u + 0x7fff + u>>16&1) &^ 0xffff)
}

// of makes a working tensor of the given values, full one in float32.
func (b *bench) of(x []float32) pair {
	for i := range x {
		x[i] = round(x[i])
	}
	p := pair{tensor.FromHost(x), gpu.Alloc(len(x))}
	gpu.Upload(p.dev, x)
	return p
}

func (b *bench) full(x []float32) pair {
	p := pair{tensor.FromHost(x), gpu.AllocFull(len(x))}
	gpu.Upload(p.dev, x)
	return p
}

func (b *bench) normal(n int, scale float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(b.rnd.NormFloat64() * scale)
	}
	return x
}

func (b *bench) rand(n int) pair     { return b.of(b.normal(n, 1)) }
func (b *bench) randFull(n int) pair { return b.full(b.normal(n, 1)) }

// poison makes results that a kernel has to overwrite.
func (b *bench) poison(n int) pair {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.NaN())
	}
	return b.of(x)
}
func (b *bench) poisonFull(n int) pair {
	p := b.full(make([]float32, n))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.NaN())
	}
	gpu.Upload(p.dev, x)
	return p
}

// check compares by ‖device-host‖/‖host‖.
func (b *bench) check(name string, p pair, most float64) {
	b.Helper()
	got := make([]float32, p.dev.Len())
	gpu.Download(got, p.dev)
	want := p.host.Host()
	var diff, norm float64
	for i := range got {
		d := float64(got[i]) - float64(want[i])
		diff += d * d
		norm += float64(want[i]) * float64(want[i])
	}
	e := math.Sqrt(diff / max(norm, 1e-30))
	if !(e <= most) {
		b.Errorf("%s: relative error %.2e, at most %.0e", name, e, most)
	} else if testing.Verbose() {
		b.Logf("%s: %.2e", name, e)
	}
}

const (
	once  = 4e-3 // one rounding to bfloat16, 2^-9 at most, and a little more
	often = 1e-2 // several roundings
	exact = 5e-6 // float32 sums
)

// both runs an operation on the CPU and on the GPU.
func both(f func(be tensor.Backend, of func(pair) *tensor.Tensor)) {
	f(tensor.CPU, func(p pair) *tensor.Tensor { return p.host })
	f(gpu, func(p pair) *tensor.Tensor { return p.dev })
}

func ints(be tensor.Backend, x []int32) *tensor.Ints { return be.UploadInts(x) }

func TestLinear(t *testing.T) {
	for _, s := range [][3]int{{1, 64, 128}, {37, 72, 8}, {513, 1176, 96}, {256, 2560, 4096}} {
		b := newBench(t)
		rows, in, out := s[0], s[1], s[2]
		x, w, bias, dy := b.rand(rows*in), b.rand(out*in), b.rand(out), b.rand(rows*out)
		y, acc, z := b.poison(rows*out), b.rand(rows*out), b.poisonFull(rows*out)
		dx, dw, db := b.poison(rows*in), b.randFull(out*in), b.randFull(out)
		both(func(be tensor.Backend, of func(pair) *tensor.Tensor) {
			be.Linear(of(y), of(x), of(w), of(bias), rows, in, out, false)
			be.Linear(of(acc), of(x), of(w), nil, rows, in, out, true)
			be.Linear(of(z), of(x), of(w), nil, rows, in, out, false)
			be.LinearBackward(of(dx), of(dw), of(db), of(dy), of(x), of(w), rows, in, out, false)
		})
		b.check(fmt.Sprint(s, " y"), y, once)
		b.check(fmt.Sprint(s, " acc"), acc, once)
		b.check(fmt.Sprint(s, " z"), z, exact)
		b.check(fmt.Sprint(s, " dx"), dx, once)
		b.check(fmt.Sprint(s, " dw"), dw, exact)
		b.check(fmt.Sprint(s, " db"), db, exact)
	}
}

func TestNorms(t *testing.T) {
	for _, s := range [][2]int{{1, 64}, {300, 1152}, {77, 4096}, {700, 5120}} {
		b := newBench(t)
		rows, dim := s[0], s[1]
		x, w, bias, dy := b.rand(rows*dim), b.rand(dim), b.rand(dim), b.rand(rows*dim)
		y, again, inv := b.poison(rows*dim), b.poison(rows*dim), b.poisonFull(rows)
		dx, dw := b.rand(rows*dim), b.randFull(dim)
		ly, lagain, stat := b.poison(rows*dim), b.poison(rows*dim), b.poisonFull(2*rows)
		ldx, ldw, ldb := b.rand(rows*dim), b.randFull(dim), b.randFull(dim)
		both(func(be tensor.Backend, of func(pair) *tensor.Tensor) {
			be.RMSNorm(of(y), of(inv), of(x), of(w), rows, dim, 1e-6)
			be.RMSNormAgain(of(again), of(inv), of(x), of(w), rows, dim)
			be.RMSNormBackward(of(dx), of(dw), of(dy), of(x), of(w), of(inv), rows, dim)
			be.LayerNorm(of(ly), of(stat), of(x), of(w), of(bias), rows, dim, 1e-6)
			be.LayerNormAgain(of(lagain), of(stat), of(x), of(w), of(bias), rows, dim)
			be.LayerNormBackward(of(ldx), of(ldw), of(ldb), of(dy), of(x), of(w), of(stat), rows, dim)
		})
		for _, c := range []struct {
			name string
			p    pair
			most float64
		}{{"rms", y, once}, {"rms again", again, once}, {"inv", inv, exact}, {"rms dx", dx, once}, {"rms dw", dw, exact},
			{"layer", ly, once}, {"layer again", lagain, once}, {"stat", stat, exact}, {"layer dx", ldx, once}, {"layer dw", ldw, exact}, {"layer db", ldb, exact}} {
			b.check(fmt.Sprint(s, " ", c.name), c.p, c.most)
		}
	}
}

func TestRope(t *testing.T) {
	for _, dim := range []int{16, 64, 72, 128} {
		b := newBench(t)
		const rows, heads, wide = 150, 5, 7
		pos := make([]int32, 3*rows)
		for i := range pos {
			pos[i] = b.rnd.Int32N(70000)
		}
		freq, axis := make([]float32, dim/2), make([]uint8, dim/2)
		for j := range freq {
			freq[j], axis[j] = float32(math.Pow(1e6, -2*float64(j)/float64(dim))), uint8(j%3)
		}
		cos, sin := b.poisonFull(rows*dim/2), b.poisonFull(rows*dim/2)
		x := b.rand(rows * wide * dim)
		w, dy, y, inv := b.rand(dim), b.rand(rows*heads*dim), b.poison(rows*heads*dim), b.poisonFull(rows*heads)
		dx, dw := b.rand(rows*wide*dim), b.randFull(dim)
		both(func(be tensor.Backend, of func(pair) *tensor.Tensor) {
			be.RopeTable(of(cos), of(sin), ints(be, pos), rows, freq, axis)
		})
		b.check("cos", cos, 1e-5)
		b.check("sin", sin, 1e-5)
		both(func(be tensor.Backend, of func(pair) *tensor.Tensor) {
			be.NormRope(of(y), of(inv), tensor.Rows{T: of(x), Off: 2 * dim, Stride: wide * dim}, of(w), of(cos), of(sin), rows, heads, dim, 1e-6)
			be.NormRopeBackward(tensor.Rows{T: of(dx), Off: dim, Stride: wide * dim}, of(dw), of(dy),
				tensor.Rows{T: of(x), Off: 2 * dim, Stride: wide * dim}, of(w), of(inv), of(cos), of(sin), rows, heads, dim)
			be.Rope(tensor.Rows{T: of(x), Off: 0, Stride: wide * dim}, of(cos), of(sin), rows, heads, dim, true)
		})
		b.check("norm rope", y, once)
		b.check("inv", inv, exact)
		b.check("dx", dx, once)
		b.check("dw", dw, 1e-5)
		b.check("rope", x, once)
	}
}

func TestElementwise(t *testing.T) {
	b := newBench(t)
	const rows, dim = 100, 344
	gu, dy, y, dgu := b.rand(rows*2*dim), b.rand(rows*dim), b.poison(rows*dim), b.poison(rows*2*dim)
	act := b.poison(rows * dim)
	x, g0, g1, d0, d1 := b.rand(rows*dim), b.poison(rows*dim), b.poison(rows*dim), b.poison(rows*dim), b.poison(rows*dim)
	sum, sumFull, other := b.rand(rows*dim), b.randFull(rows*dim), b.randFull(rows*dim)
	both(func(be tensor.Backend, of func(pair) *tensor.Tensor) {
		be.SwiGLU(of(y), of(gu), rows, dim)
		be.SwiGLUBackward(of(dgu), of(act), of(dy), of(gu), rows, dim)
		be.GELU(of(g0), of(x), rows, dim, false)
		be.GELU(of(g1), of(x), rows, dim, true)
		be.GELUBackward(of(d0), of(dy), of(x), rows, dim, false)
		be.GELUBackward(of(d1), of(dy), of(x), rows, dim, true)
		be.Add(of(sum), of(x))
		be.Add(of(sumFull), of(other))
	})
	for i, p := range []pair{y, act, dgu, g0, g1, d0, d1, sum} {
		b.check(fmt.Sprint("elementwise ", i), p, once)
	}
	b.check("add", sumFull, exact)
}

func TestRows(t *testing.T) {
	b := newBench(t)
	const n, dim, table = 400, 72, 50
	rows, once1 := make([]int32, n), make([]int32, table)
	for i := range rows {
		rows[i] = b.rnd.Int32N(table+1) - 1
	}
	for i, v := range b.rnd.Perm(table) {
		once1[i] = int32(v)
	}
	taps := make([]int32, 4*n)
	for i := range taps {
		taps[i] = b.rnd.Int32N(table)
	}
	x, y, src := b.rand(table*dim), b.poison(n*dim), b.rand(n*dim)
	grad, part, put, small := b.randFull(table*dim), b.rand(table*dim), b.rand(table*dim), b.rand(table*dim)
	dots := b.poisonFull(n)
	rows2 := make([]int32, n)
	for i := range rows2 {
		rows2[i] = b.rnd.Int32N(table)
	}
	weight, mixed, pos := b.randFull(4*n), b.rand(n*dim), b.randFull(table*dim)
	both(func(be tensor.Backend, of func(pair) *tensor.Tensor) {
		be.Gather(of(y), of(x), ints(be, rows), dim)
		be.ScatterAdd(of(grad), of(src), ints(be, rows), dim)
		be.ScatterAdd(of(part), of(small), ints(be, once1), dim)
		be.Scatter(of(put), of(small), ints(be, once1), dim)
		be.Mix(of(mixed), of(x), ints(be, taps), of(weight), n, dim)
		be.RowDots(of(dots), of(src), of(x), ints(be, rows2), dim)
		be.MixBackward(of(pos), of(src), ints(be, taps), of(weight), n, dim)
	})
	b.check("gather", y, 0)
	b.check("scatter add", grad, exact)
	b.check("scatter add bf16", part, once)
	b.check("scatter", put, 0)
	b.check("row dots", dots, exact)
	b.check("mix", mixed, once)
	b.check("mix backward", pos, exact)
}

func TestHead(t *testing.T) {
	for _, vocab := range []int{512, 5000} {
		b := newBench(t)
		const rows, dim = 50, 128
		x, w := b.rand(rows*dim), b.of(b.normal(vocab*dim, 0.3))
		targets := make([]int32, rows)
		for i := range targets {
			targets[i] = b.rnd.Int32N(int32(vocab))
		}
		dl, de := b.normal(rows, 1), b.normal(rows, 0.1)
		dl[3], de[3] = 0, 0
		dlogp, dent := b.full(dl), b.full(de)
		logp, ent, lse, z := b.poisonFull(rows), b.poisonFull(rows), b.poisonFull(rows), b.poisonFull(rows*vocab)
		dx, dw, dx2, dw2 := b.poison(rows*dim), b.randFull(vocab*dim), b.poison(rows*dim), b.randFull(vocab*dim)
		both(func(be tensor.Backend, of func(pair) *tensor.Tensor) {
			be.HeadChunk(of(logp), of(ent), of(lse), of(x), of(w), ints(be, targets), 1/0.7, of(z), rows, dim, vocab)
			be.HeadChunkBackward(of(dx), of(dw), of(x), of(w), ints(be, targets), of(dlogp), of(dent), of(ent), of(lse), 1/0.7, of(z), rows, dim, vocab, false)
			be.HeadChunkBackward(of(dx2), of(dw2), of(x), of(w), ints(be, targets), of(dlogp), of(dent), of(ent), of(lse), 1/0.7, of(z), rows, dim, vocab, true)
		})
		b.check("logp", logp, 1e-5)
		b.check("entropy", ent, 1e-4)
		b.check("lse", lse, 1e-5)
		for i, p := range []pair{dx, dw, dx2, dw2} {
			b.check(fmt.Sprint("head gradient ", i), p, once)
		}
	}
}

func TestAttention(t *testing.T) {
	testAttention(t)
	gpu.portable = true
	defer func() { gpu.portable = false }()
	testAttention(t) // of lists of its own: no layout from before is taken
}

func testAttention(t *testing.T) {
	for _, c := range []struct {
		h    tensor.Heads
		lens []int
		at   func(n int) []int32
	}{
		{tensor.Heads{Heads: 4, KVHeads: 2, Dim: 128, Causal: true}, []int{1, 63, 64, 65, 300}, nil},
		{tensor.Heads{Heads: 3, KVHeads: 3, Dim: 72}, []int{17, 256, 100}, nil},
		{tensor.Heads{Heads: 2, KVHeads: 2, Dim: 80}, []int{64, 48, 16}, nil},
		{tensor.Heads{Heads: 8, KVHeads: 1, Dim: 64, Causal: true}, []int{400, 5, 0, 90}, nil},
		{tensor.Heads{Heads: 2, KVHeads: 1, Dim: 96, Causal: true}, []int{130}, nil},
		{tensor.Heads{Heads: 2, KVHeads: 1, Dim: 16, Causal: true}, []int{70, 30}, nil},
		{tensor.Heads{Heads: 4, KVHeads: 2, Dim: 32, Causal: true}, []int{200, 40, 80}, func(n int) (at []int32) {
			for i := 7; i < n; i += 3 {
				if i < 200 || i >= 240 {
					at = append(at, int32(i))
				}
			}
			return at
		}},
		{tensor.Heads{Heads: 2, KVHeads: 2, Dim: 64}, []int{300, 0, 129, 7}, nil},
		{tensor.Heads{Heads: 4, KVHeads: 2, Dim: 128, Causal: true}, []int{200, 1300, 640}, nil},
		{tensor.Heads{Heads: 2, KVHeads: 1, Dim: 128}, []int{700, 130}, nil},
		{tensor.Heads{Heads: 6, KVHeads: 2, Dim: 128, Causal: true}, []int{500, 20, 260}, func(n int) (at []int32) {
			for i := 150; i < n; i += 2 {
				if i < 500 || i >= 520 {
					at = append(at, int32(i))
				}
			}
			return at
		}},
	} {
		b := newBench(t)
		h := c.h
		h.Scale = float32(1 / math.Sqrt(float64(h.Dim)))
		cu := []int32{0}
		for _, n := range c.lens {
			cu = append(cu, cu[len(cu)-1]+int32(n))
		}
		n := int(cu[len(cu)-1])
		asks, list := n, []int32(nil)
		if c.at != nil {
			list = c.at(n)
			asks = len(list)
		}
		qd, kd := h.Heads*h.Dim, h.KVHeads*h.Dim
		wide := qd + 2*kd
		kv, q, dout := b.rand(n*wide), b.rand(asks*qd), b.rand(asks*qd)
		out, lse := b.poison(asks*qd), b.poisonFull(asks*h.Heads)
		dq, dkv := b.poison(asks*qd), b.rand(n*wide)
		rows := func(p pair, of func(pair) *tensor.Tensor, off, stride int) tensor.Rows {
			return tensor.Rows{T: of(p), Off: off, Stride: stride}
		}
		both(func(be tensor.Backend, of func(pair) *tensor.Tensor) {
			var at *tensor.Ints
			if list != nil {
				at = ints(be, list)
			}
			be.Attention(of(out), of(lse), rows(q, of, 0, qd), rows(kv, of, qd, wide), rows(kv, of, qd+kd, wide), ints(be, cu), at, h)
		})
		b.check(fmt.Sprint(c.h, " out"), out, often)
		b.check(fmt.Sprint(c.h, " lse"), lse, 1e-4)
		both(func(be tensor.Backend, of func(pair) *tensor.Tensor) {
			var at *tensor.Ints
			if list != nil {
				at = ints(be, list)
			}
			be.AttentionBackward(rows(dq, of, 0, qd), rows(dkv, of, qd, wide), rows(dkv, of, qd+kd, wide), of(dout), of(out), of(lse),
				rows(q, of, 0, qd), rows(kv, of, qd, wide), rows(kv, of, qd+kd, wide), ints(be, cu), at, h)
		})
		b.check(fmt.Sprint(c.h, " dq"), dq, often)
		b.check(fmt.Sprint(c.h, " dk dv"), dkv, often)
	}
}

func TestCachedAttention(t *testing.T) {
	b := newBench(t)
	h := tensor.Heads{Heads: 4, KVHeads: 2, Dim: 64, Scale: 0.125, Causal: true}
	const layers = 2
	qd, kd := h.Heads*h.Dim, h.KVHeads*h.Dim
	lens, more := []int{70, 3, 150}, []int{1, 2, 64}
	pages := map[tensor.Backend][][]*tensor.Tensor{}
	both(func(be tensor.Backend, _ func(pair) *tensor.Tensor) {
		for i := range lens {
			var p []*tensor.Tensor
			for n := 0; n < lens[i]+more[i]; n += tensor.PageTokens {
				p = append(p, be.Alloc(be.PageFloats(layers, h)))
			}
			pages[be] = append(pages[be], p)
		}
	})
	step := func(start, n []int, ask int) {
		total, asks := 0, 0
		for i := range n {
			total += n[i]
			asks += min(ask, n[i])
		}
		q, k, v, out := b.rand(asks*qd), b.rand(total*kd), b.rand(total*kd), b.poison(asks*qd)
		both(func(be tensor.Backend, of func(pair) *tensor.Tensor) {
			var runs []tensor.Run
			row, askRow := 0, 0
			for i := range n {
				a := min(ask, n[i])
				runs = append(runs, tensor.Run{Pages: pages[be][i], Start: start[i], Row: row, N: n[i], AskRow: askRow, Ask: a})
				row += n[i]
				askRow += a
			}
			be.CachedAttention(of(out), tensor.Rows{T: of(q), Stride: qd}, tensor.Rows{T: of(k), Stride: kd}, tensor.Rows{T: of(v), Stride: kd}, runs, 1, h)
		})
		b.check("cached", out, often)
	}
	step([]int{0, 0, 0}, lens, 1000)
	step(lens, more, 1)
}

// What does not fit is an error with numbers, not the end of the program.
func TestTooLittleMemory(t *testing.T) {
	_, total := gpu.Device().Memory()
	err := func() (err error) {
		defer cuda.Guard(&err)
		gpu.AllocFull(int(total))
		return nil
	}()
	if fail.KindOf(err) != fail.Usage || !strings.Contains(err.Error(), "GiB are free") {
		t.Errorf("%v", err)
	}
	x := newBench(t).rand(8) // and it goes on
	gpu.Add(x.dev, x.dev)
}

func TestSameBitsTwice(t *testing.T) {
	for _, c := range []struct {
		h    tensor.Heads
		ends []int32
	}{
		{tensor.Heads{Heads: 4, KVHeads: 2, Dim: 64, Scale: 0.125, Causal: true}, []int32{0, 200, 500}},
		{tensor.Heads{Heads: 4, KVHeads: 2, Dim: 128, Scale: 0.09, Causal: true}, []int32{0, 3000, 3100, 5000}},
		{tensor.Heads{Heads: 2, KVHeads: 1, Dim: 128, Scale: 0.09}, []int32{0, 1000, 3000}},
	} {
		sameBitsTwice(t, c.h, c.ends)
	}
}

func sameBitsTwice(t *testing.T, h tensor.Heads, ends []int32) {
	b := newBench(t)
	n := int(ends[len(ends)-1])
	qd, kd := h.Heads*h.Dim, h.KVHeads*h.Dim
	q, k, v, dout, out := b.rand(n*qd), b.rand(n*kd), b.rand(n*kd), b.rand(n*qd), b.poison(n*qd)
	lse := b.poisonFull(n * h.Heads)
	var first []float32
	for range 3 {
		dq, dk, dv, dw := gpu.Alloc(n*qd), gpu.Alloc(n*kd), gpu.Alloc(n*kd), gpu.AllocFull(qd*qd)
		cu := gpu.UploadInts(ends)
		row := func(t *tensor.Tensor, s int) tensor.Rows { return tensor.Rows{T: t, Stride: s} }
		gpu.Attention(out.dev, lse.dev, row(q.dev, qd), row(k.dev, kd), row(v.dev, kd), cu, nil, h)
		gpu.AttentionBackward(row(dq, qd), row(dk, kd), row(dv, kd), dout.dev, out.dev, lse.dev, row(q.dev, qd), row(k.dev, kd), row(v.dev, kd), cu, nil, h)
		gpu.LinearBackward(nil, dw, nil, dq, out.dev, nil, n, qd, qd, false)
		var got []float32
		for _, x := range []*tensor.Tensor{dw, dq, dk, dv} {
			part := make([]float32, x.Len())
			gpu.Download(part, x)
			got = append(got, part...)
		}
		if first == nil {
			first = got
			continue
		}
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(first[i]) {
				t.Fatalf("%+v: value %d differs between two runs", h, i)
			}
		}
	}
}

// The split weight is a float32 weight: after many small steps its two halves
// are what a float32 would be.
func TestAdamW(t *testing.T) {
	b := newBench(t)
	const n = 200_003
	w, g := b.rand(n), b.randFull(n)
	a := gpu.NewMoments(w.dev, g.dev, tensor.Keeping{Master: tensor.MasterSplit})
	defer a.Free()
	want := make([]float64, n)
	m, v := make([]float64, n), make([]float64, n)
	for i, x := range w.host.Host() {
		want[i] = float64(x)
	}
	var sum float64
	for _, x := range g.host.Host() {
		sum += float64(x) * float64(x)
	}
	if got := gpu.SquaredSums([]*tensor.Tensor{g.dev})[0]; math.Abs(got-sum) > 1e-5*sum {
		t.Errorf("Σ g² = %g, want %g", got, sum)
	}
	for k := int64(1); k <= 50; k++ {
		a.Step(tensor.Update{T: k, LR: 1e-5, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Scale: 0.5})
		for i, x := range g.host.Host() {
			d := 0.5 * float64(x)
			m[i], v[i] = 0.9*m[i]+0.1*d, 0.95*v[i]+0.05*d*d
			want[i] -= 1e-5 * (m[i]/(1-math.Pow(0.9, float64(k)))/(math.Sqrt(v[i]/(1-math.Pow(0.95, float64(k))))+1e-8) + 0.1*want[i])
		}
	}
	got := make([]float32, n)
	gpu.Download(got, w.dev)
	moved := 0
	for i := range got {
		if d := math.Abs(float64(got[i]) - want[i]); d > math.Abs(want[i])/256+1e-9 {
			t.Fatalf("weight %d is %g, want %g", i, got[i], want[i])
		}
		if got[i] != w.host.Host()[i] {
			moved++
		}
	}
	// Steps of 1e-5 are far below half a unit of bfloat16 at 1: without the lower
	// halves hardly any weight would have moved.
	if moved < n/50 {
		t.Errorf("%d of %d weights moved", moved, n)
	}
}
