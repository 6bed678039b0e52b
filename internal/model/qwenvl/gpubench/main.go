//go:build cuda

// Command gpubench measures the GPU back end beside PyTorch on the same card in the
// same run: whole updates against transformers, attention, products and copies
// against torch. Medians; every figure is of random values.
//
//	go run -tags cuda ./internal/model/qwenvl/gpubench --python python3 --out build/bench-gpu.json
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"

	"searchloop/internal/bench"
	gpu "searchloop/internal/cuda"
	"searchloop/internal/fail"
	"searchloop/internal/model/qwenvl"
	"searchloop/internal/tensor"
	"searchloop/internal/tensor/cuda"
)

var (
	python = flag.String("python", "", "Python with torch and transformers, for the peers")
	script = flag.String("script", "internal/model/qwenvl/gpubench/peer.py", "the peers' program")
	out    = flag.String("out", "build/bench-gpu.json", "file of the figures")
	only   = flag.String("only", "", "measure what this pattern matches")
)

func main() {
	flag.Parse()
	err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(fail.ExitCode(err))
}

// peak is what an H100 or H200 does in bfloat16, for the share of it.
const peak = 989e12

func run() (err error) {
	defer gpu.Guard(&err)
	runtime.GOMAXPROCS(runtime.NumCPU())
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fail.Wrap(fail.Usage, "read --only", *only, err)
	}
	be, err := cuda.New(0)
	if err != nil {
		return err
	}
	d := be.Device()
	m := &meter{be: be, pattern: pattern, note: fmt.Sprintf("%s, compute capability %d.%d", d.Name, d.Major, d.Minor)}
	m.products()
	m.attention()
	m.head()
	if err := m.updates(); err != nil {
		return err
	}
	m.peers()
	if err := bench.Write(*out, m.rows); err != nil {
		return err
	}
	if err := bench.Table(os.Stdout, m.rows); err != nil {
		return err
	}
	for _, r := range m.rows {
		if r.Below() {
			err = errors.Join(err, fail.New(fail.Bound, "measure", r.Name, "%.3g times the peer; %.3g is promised", r.Ratio(), r.Bound))
		}
	}
	return err
}

// meter collects rows.
type meter struct {
	be      *cuda.Backend
	pattern *regexp.Regexp
	rows    []bench.Row
	note    string
}

func (m *meter) wanted(name string) bool { return m.pattern.MatchString(name) }

func (m *meter) add(name, unit string, ours, bound float64, note string) {
	m.rows = append(m.rows, bench.Row{Name: name, Unit: unit, Ours: ours, Bound: bound, Note: note})
	fmt.Fprintf(os.Stderr, "%s: %.4g %s\n", name, ours, unit)
}

// median of n runs of f by the device's clock, after two that are not counted.
func (m *meter) median(n int, f func()) float64 {
	f()
	f()
	times := make([]float64, n)
	for i := range times {
		times[i] = m.be.Device().Time(f)
	}
	slices.Sort(times)
	return times[n/2]
}

// noise is a tensor of normal numbers, of which a million are different.
func (m *meter) noise(n int) *tensor.Tensor {
	x := make([]float32, min(n, 1<<20))
	for i := range x {
		x[i] = float32(rand.NormFloat64() / 2)
	}
	t := m.be.Alloc(n)
	for i := 0; i < n; i += len(x) {
		k := min(len(x), n-i)
		m.be.Upload(t.View(i, k), x[:k])
	}
	return t
}

func (m *meter) free(ts ...*tensor.Tensor) {
	for _, t := range ts {
		m.be.Free(t)
	}
}

func (m *meter) products() {
	if m.wanted("copy") {
		const n = 1 << 31
		x, y := m.noise(n), m.be.Alloc(n)
		m.add("copy of 4 GiB", "GB/s", 4*float64(n)/m.median(9, func() { m.be.Copy(y, x) })/1e9, 0, "bytes read and written")
		m.free(x, y)
	}
	for _, s := range [][3]int{{16384, 4096, 4096}, {16384, 4096, 24576}, {16384, 2560, 19456}, {16384, 9728, 2560}, {8192, 2560, 151936}} {
		name := fmt.Sprintf("product %dx%dx%d", s[0], s[1], s[2])
		if !m.wanted(name) {
			continue
		}
		x, w, y := m.noise(s[0]*s[1]), m.noise(s[1]*s[2]), m.be.Alloc(s[0]*s[2])
		t := m.median(9, func() { m.be.Linear(y, x, w, nil, s[0], s[1], s[2], false) })
		m.add(name, "TFLOP/s", 2*float64(s[0])*float64(s[1])*float64(s[2])/t/1e12, 0, "rows, in, out; bfloat16")
		m.free(x, w, y)
	}
}

// attention is causal, 32 heads over 8, head dimension 128, of one sequence. The
// operations counted are those of two products forward and five backward, half of
// each masked.
func (m *meter) attention() {
	h := tensor.Heads{Heads: 32, KVHeads: 8, Dim: 128, Scale: float32(1 / math.Sqrt(128)), Causal: true}
	for _, n := range []int{2048, 8192, 32768} {
		name := fmt.Sprintf("attention %d ", n)
		if !m.wanted(name+"forward") && !m.wanted(name+"backward") {
			continue
		}
		qd, kd := h.Heads*h.Dim, h.KVHeads*h.Dim
		q, k, v, dout, o := m.noise(n*qd), m.noise(n*kd), m.noise(n*kd), m.noise(n*qd), m.be.Alloc(n*qd)
		dq, dk, dv, lse := m.be.Alloc(n*qd), m.be.Alloc(n*kd), m.be.Alloc(n*kd), m.be.AllocFull(n*h.Heads)
		row := func(t *tensor.Tensor, s int) tensor.Rows { return tensor.Rows{T: t, Stride: s} }
		cu := m.be.UploadInts([]int32{0, int32(n)})
		flop := 2 * float64(n) * float64(n) * float64(qd)
		t := m.median(9, func() { m.be.Attention(o, lse, row(q, qd), row(k, kd), row(v, kd), cu, nil, h) })
		m.add(name+"forward", "TFLOP/s", flop/t/1e12, 0, "causal, 32/8 heads of 128")
		t = m.median(5, func() {
			m.be.AttentionBackward(row(dq, qd), row(dk, kd), row(dv, kd), dout, o, lse, row(q, qd), row(k, kd), row(v, kd), cu, nil, h)
		})
		m.add(name+"backward", "TFLOP/s", 2.5*flop/t/1e12, 0, "causal, 32/8 heads of 128")
		m.free(q, k, v, dout, o, dq, dk, dv, lse)
	}
}

// head is log-prob, entropy and gradient of 32,768 tokens over a vocabulary of
// 151,936, chunk by chunk as a pass does it. Three products are counted, though ours
// makes the logits twice.
func (m *meter) head() {
	const n, dim, vocab = 32768, 2560, 151936
	name := fmt.Sprintf("head %dx%dx%d", n, dim, vocab)
	if !m.wanted(name) {
		return
	}
	be := m.be
	x, w, dx, dw := m.noise(n*dim), m.noise(vocab*dim), be.Alloc(n*dim), be.AllocFull(vocab*dim)
	stat := make([]*tensor.Tensor, 5) // log-prob, entropy, lse and the two slopes
	for i := range stat {
		stat[i] = be.AllocFull(n)
	}
	targets := make([]int32, n)
	for i := range targets {
		targets[i] = rand.Int32N(vocab)
	}
	slope := make([]float32, n)
	for i := range slope {
		slope[i] = -1.0 / n
	}
	be.Upload(stat[3], slope)
	ids := be.UploadInts(targets)
	chunk := qwenvl.HeadChunk(be, vocab, n)
	before, _ := be.Device().Used()
	z := be.AllocFull(chunk * vocab)
	each := func(f func(from, rows int, ids *tensor.Ints)) {
		for from := 0; from < n; from += chunk {
			rows := min(chunk, n-from)
			f(from, rows, be.UploadInts(ids.Host()[from:from+rows]))
		}
	}
	t := m.median(5, func() {
		each(func(from, rows int, ids *tensor.Ints) {
			be.HeadChunk(stat[0].View(from, rows), stat[1].View(from, rows), stat[2].View(from, rows), x.View(from*dim, rows*dim), w, ids, 1, z.View(0, rows*vocab), rows, dim, vocab)
		})
		each(func(from, rows int, ids *tensor.Ints) {
			be.HeadChunkBackward(dx.View(from*dim, rows*dim), dw, x.View(from*dim, rows*dim), w, ids, stat[3].View(from, rows), stat[4].View(from, rows),
				stat[1].View(from, rows), stat[2].View(from, rows), 1, z.View(0, rows*vocab), rows, dim, vocab, true)
		})
	})
	_, after := be.Device().Used()
	m.add(name, "TFLOP/s", 6*n*dim*vocab/t/1e12, 0, "rows, in, vocabulary; log-prob, entropy and gradient")
	m.add(name+", scratch", "GiB", float64(after-before)/(1<<30), 0, "beside inputs and gradients; at most 1 is promised")
	m.free(append(stat, x, w, dx, dw, z)...)
}

// shapes of Qwen3.
var (
	small = qwenvl.Config{Vocab: 151936, Hidden: 1024, Intermediate: 3072, Layers: 28, Heads: 16, KVHeads: 8, HeadDim: 128, RopeTheta: 1e6, Tied: true, DType: "BF16"}
	large = qwenvl.Config{Vocab: 151936, Hidden: 2560, Intermediate: 9728, Layers: 36, Heads: 32, KVHeads: 8, HeadDim: 128, RopeTheta: 5e6, Tied: true, DType: "BF16"}
)

func (m *meter) updates() error {
	for _, s := range []struct {
		name    string
		cfg     qwenvl.Config
		seqs, n int
		r       qwenvl.Recompute
		bound   float64
	}{{"0.6B", small, 8, 2048, qwenvl.RecomputeNone, 1.5}, {"0.6B", small, 2, 8192, qwenvl.RecomputeNone, 1.5}, {"4B", large, 8, 2048, qwenvl.RecomputeNone, 1.3}, {"4B", large, 1, 16384, qwenvl.RecomputeNone, 1.3}} {
		name := fmt.Sprintf("update %s %dx%d", s.name, s.seqs, s.n)
		if !m.wanted(name) {
			continue
		}
		if err := m.update(name, s.cfg, s.seqs, s.n, s.r, s.bound); err != nil {
			return err
		}
	}
	return nil
}

// update is forward, log-probs of every token, backward and AdamW.
func (m *meter) update(name string, cfg qwenvl.Config, seqs, n int, r qwenvl.Recompute, bound float64) error {
	be, d := m.be, m.be.Device()
	d.Used()
	b := &qwenvl.Batch{CuSeqlens: []int32{0}}
	var rows, targets []int32
	for range seqs {
		for i := range n {
			if i > 0 {
				rows, targets = append(rows, int32(len(b.Tokens)-1)), append(targets, rand.Int32N(150000))
			}
			b.Tokens = append(b.Tokens, rand.Int32N(150000))
			for a := range b.Positions {
				b.Positions[a] = append(b.Positions[a], int32(i))
			}
		}
		b.CuSeqlens = append(b.CuSeqlens, int32(len(b.Tokens)))
	}
	slope := make([]float32, len(rows))
	for i := range slope {
		slope[i] = -1 / float32(len(rows))
	}
	mem, err := qwenvl.Plan(be, cfg, r, b, rows, targets)
	if err != nil {
		return err
	}
	model := qwenvl.InitOn(be, cfg, 1)
	defer model.Free()
	model.SetRecompute(r)
	model.Reserve(mem)
	var states []tensor.Moments
	var grads []*tensor.Tensor
	for _, p := range model.Params() {
		states, grads = append(states, be.NewMoments(p.W, p.G, tensor.Keeping{Master: tensor.MasterSplit})), append(grads, p.G)
	}
	step := int64(0)
	t := m.median(5, func() {
		step++
		model.ZeroGrad()
		p, e := model.Forward(b)
		if e != nil {
			err = e
			return
		}
		p.Score(rows, targets, 1)
		p.Backward(rows, targets, 1, slope, nil)
		p.Release()
		be.SquaredSums(grads)
		for _, s := range states {
			s.Step(tensor.Update{T: step, LR: 1e-6, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Scale: 1})
		}
	})
	for _, s := range states {
		s.Free()
	}
	if err != nil {
		return err
	}
	_, held := d.Used()
	mfu := 100 * float64(seqs) * cfg.Cost().Row(n, nil, 0) / t / peak
	m.add(name, "tokens/s", float64(seqs*n)/t, bound, fmt.Sprintf("recompute none, MFU %.1f %%", mfu))
	half := 0.0 // of the peer's, where that recomputes no more than we do
	if cfg.Hidden == small.Hidden {
		half = 2
	}
	m.add(name+", memory", "GiB", float64(held)/(1<<30), half, "float32 masters included")
	return nil
}

// peers fills in what torch and transformers need for the same.
func (m *meter) peers() {
	why := bench.Missing(*python, "torch", "transformers")
	found := map[string]struct {
		Value float64
		Peer  string
	}{}
	if why == "" {
		var names []string
		for _, r := range m.rows {
			names = append(names, r.Name)
		}
		cmd := exec.Command(*python, append([]string{*script}, names...)...)
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		if err != nil {
			why = "peer not measured: " + err.Error()
		}
		for line := range bytes.Lines(text) {
			var v struct {
				Name  string
				Value float64
				Peer  string
			}
			if json.Unmarshal(line, &v) == nil {
				found[v.Name] = struct {
					Value float64
					Peer  string
				}{v.Value, v.Peer}
			}
		}
	}
	for i := range m.rows {
		r := &m.rows[i]
		if p, ok := found[r.Name]; ok && p.Value > 0 {
			r.Peer, r.PeerName = p.Value, p.Peer
		} else if why != "" {
			r.Note += "; " + why
		} else {
			r.Note += "; peer not measured: it does not fit or does not run"
		}
		r.Note += "; " + m.note
	}
}
