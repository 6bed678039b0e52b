//go:build cuda

package qwenvl

import (
	"testing"
	"time"

	"searchloop/internal/tensor"
	"searchloop/internal/tensor/cuda"
)

// fillFast gives the model weights that are neither zero nor equal, without drawing
// each: a block of random numbers, again and again.
func fillFast(be *cuda.Backend, m *Model) {
	block := make([]float32, min(1<<20, m.size))
	fillNormal(block, 0.02, 1, "block")
	first := m.w.View(0, len(block))
	be.Upload(first, block)
	for at := len(block); at < m.size; at += len(block) {
		n := min(len(block), m.size-at)
		be.Copy(m.w.View(at, n), first.View(0, n))
	}
	ones := make([]float32, 1<<16)
	for i := range ones {
		ones[i] = 1
	}
	for _, p := range m.params {
		if n := p.W.Len(); len(p.Shape) == 1 && n <= len(ones) {
			be.Upload(p.W, ones[:n])
		}
	}
}

// BenchmarkGPULong is Qwen3-VL-8B's shape on one sequence of 65,000 tokens of which
// the last 5,000 are scored: a step beside its plan, and the update of all weights.
// The optimizer's state does not fit beside gradients: it takes 82 GiB of host memory.
func BenchmarkGPULong(b *testing.B) {
	be, err := openGPU()
	if err != nil {
		b.Skip(err)
	}
	d := be.Device()
	d.Used()
	cfg := Qwen3VL8B()
	batch, rows, targets := longBatch(65000, 5000)
	mem, err := Plan(be, cfg, RecomputeFull, batch, rows, targets)
	if err != nil {
		b.Fatal(err)
	}
	free, total := d.Memory()
	b.Logf("planned: weights %.2f GiB, gradients %.2f, activations %.2f, of these head %.2f: %.2f; free %.2f of %.2f", gib(mem.Weights), gib(mem.Gradients),
		gib(mem.Activations), gib(mem.Head), gib(mem.Weights+mem.Gradients+mem.Activations), gib(free), gib(total))
	m := build(be, cfg)
	defer m.Free()
	fillFast(be, m)
	m.SetRecompute(RecomputeFull)
	m.Reserve(mem)
	m.ZeroGrad()
	slope := make([]float32, len(rows))
	for i := range slope {
		slope[i] = -1 / float32(len(rows))
	}
	var p *Pass
	var logp []float32
	forward := d.Time(func() { p, err = m.Forward(batch) })
	if err != nil {
		b.Fatal(err)
	}
	score := d.Time(func() { logp, _ = p.Score(rows, targets, 1) })
	backward := d.Time(func() { p.Backward(rows, targets, 1, slope, nil) })
	p.Release()
	_, peak := d.Used()
	for i, x := range logp {
		if !(x < 0) {
			b.Fatalf("log-prob %d is %g", i, x)
		}
	}
	seconds := forward + score + backward
	b.Logf("forward %.2f s, score %.2f, backward %.2f: %.0f tok/s, MFU %.1f %%; %.2f GiB held at most", forward, score, backward, 65000/seconds,
		100*cfg.Cost().Row(65000, nil, 0)/seconds/989e12, gib(peak))
	sums := be.SquaredSums([]*tensor.Tensor{m.g})
	if !(sums[0] > 0) {
		b.Errorf("the gradient's squares are %g", sums[0])
	}
	step := func(t int64, all ...tensor.Moments) float64 {
		return d.Time(func() {
			for _, s := range all {
				s.Step(tensor.Update{T: t, LR: 1e-6, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Scale: 1})
			}
		})
	}
	const n = 1 << 30
	s := be.NewMoments(m.w.View(0, n), m.g.View(0, n), tensor.Keeping{Master: tensor.MasterSplit})
	b.Logf("AdamW on the GPU, 2^30 weights: %.3f s, then %.3f", step(1, s), step(2, s))
	s.Free()
	began := time.Now()
	var all []tensor.Moments
	weights := 0
	for _, p := range m.Params() {
		weights += p.W.Len()
		all = append(all, be.NewMoments(p.W, p.G, tensor.Keeping{Master: tensor.MasterSplit, Offload: true}))
	}
	took := time.Since(began)
	first, second := step(1, all...), step(2, all...)
	b.Logf("AdamW offloaded, all %d weights, %.1f GiB of host memory taken in %.1f s: %.2f s, then %.2f", weights, gib(10*int64(weights)), took.Seconds(), first, second)
	b.Logf("step and update: %.0f tok/s, MFU %.1f %%", 65000/(seconds+second), 100*cfg.Cost().Row(65000, nil, 0)/(seconds+second)/989e12)
	_, peak = d.Used()
	b.Logf("%.2f GiB held on the GPU at most", gib(peak))
	for _, s := range all {
		s.Free()
	}
	b.ReportMetric(0, "ns/op")
}

func gib(n int64) float64 { return float64(n) / (1 << 30) }
