package qwenvl

import (
	"fmt"
	"testing"

	"searchloop/internal/bench"
)

// measure runs f and reports tokens a second, and processor time a token, which
// says the same on a machine that others use too.
func measure(b *testing.B, tokens int, f func()) {
	f() // takes memory
	f() // joins it
	b.ReportAllocs()
	before := bench.ProcessorTime()
	for b.Loop() {
		f()
	}
	n := float64(b.N * tokens)
	b.ReportMetric(n/b.Elapsed().Seconds(), "tokens/s")
	b.ReportMetric(float64((bench.ProcessorTime()-before).Nanoseconds())/n/1000, "cpu-µs/token")
}

// demoConfig is about the size of the model that the demonstration trains.
func demoConfig() Config {
	return Config{
		Vocab: 640, Hidden: 96, Intermediate: 256, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 32,
		RopeTheta: 5e6, MRopeSection: [3]int{6, 5, 5}, Tied: true,
		ImagePadID: 630, VideoPadID: 631, VisionStartID: 632, VisionEndID: 633,
		PatchSize: 16, MergeSize: 2, TemporalPatch: 2,
		Vision: VisionConfig{Channels: 3, Depth: 2, Hidden: 64, Intermediate: 128, Heads: 2, PositionSide: 16, Deepstack: []int{0}},
	}
}

// demoPack is a pack of seqs sequences of n tokens, each with one image of 8
// tokens when seen is set, and the rows that are scored: a third of them, as in
// a trajectory whose observations are long.
func demoPack(cfg Config, seqs, n int, seen bool) (b *Batch, rows, targets []int32) {
	b = &Batch{CuSeqlens: []int32{0}}
	state := uint64(1)
	for range seqs {
		base := len(b.Tokens)
		tokens := make([]int32, n)
		for i := range tokens {
			tokens[i] = int32(splitMix(&state) % 600)
		}
		var grids [][3]int32
		if seen {
			grids = [][3]int32{{1, 4, 8}}
			im := Image{Grid: grids[0], Patches: make([]float32, 32*cfg.PatchDim()), Offset: int32(base + 20)}
			fillNormal(im.Patches, 0.5, splitMix(&state), "patches")
			for i := range 8 {
				tokens[20+i] = cfg.ImagePadID
			}
			tokens[19], tokens[28] = cfg.VisionStartID, cfg.VisionEndID
			b.Images = append(b.Images, im)
		}
		pos, _, err := Positions(tokens, grids, cfg)
		if err != nil {
			panic(err)
		}
		for a := range pos {
			b.Positions[a] = append(b.Positions[a], pos[a]...)
		}
		b.Tokens = append(b.Tokens, tokens...)
		b.CuSeqlens = append(b.CuSeqlens, int32(len(b.Tokens)))
		for i := n * 2 / 3; i < n-1; i++ {
			rows = append(rows, int32(base+i))
			targets = append(targets, tokens[i+1])
		}
	}
	return b, rows, targets
}

// BenchmarkTrain is forward, score and backward of packs of about 2400 tokens.
func BenchmarkTrain(b *testing.B) {
	for _, c := range []struct {
		n    int
		seen bool
	}{{100, false}, {300, false}, {300, true}} {
		b.Run(fmt.Sprintf("len=%d/images=%v", c.n, c.seen), func(b *testing.B) {
			cfg := demoConfig()
			m := Init(cfg, 1)
			pack, rows, targets := demoPack(cfg, 2400/c.n, c.n, c.seen)
			dlogp := make([]float32, len(rows))
			for i := range dlogp {
				dlogp[i] = -1 / float32(len(rows))
			}
			measure(b, len(pack.Tokens), func() {
				m.ZeroGrad()
				p, err := m.Forward(pack)
				if err != nil {
					b.Fatal(err)
				}
				p.Score(rows, targets, 1)
				p.Backward(rows, targets, 1, dlogp, nil)
				p.Release()
			})
		})
	}
}

// BenchmarkScore is what a pass without gradient costs (old and reference
// log-probs).
func BenchmarkScore(b *testing.B) {
	cfg := demoConfig()
	m := Init(cfg, 1)
	pack, rows, targets := demoPack(cfg, 8, 300, true)
	measure(b, len(pack.Tokens), func() {
		p, err := m.Forward(pack)
		if err != nil {
			b.Fatal(err)
		}
		p.Score(rows, targets, 1)
		p.Release()
	})
}

// BenchmarkDecode is one token of each of many sequences of about 250 tokens.
func BenchmarkDecode(b *testing.B) {
	for _, seqs := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("sequences=%d", seqs), func(b *testing.B) {
			cfg := demoConfig()
			m := Init(cfg, 1)
			pack, _, _ := demoPack(cfg, 1, 200, false)
			prompt := m.NewCache(1 << 20)
			if _, err := m.Extend([]Step{{Cache: prompt, Tokens: pack.Tokens, Positions: pack.Positions}}); err != nil {
				b.Fatal(err)
			}
			steps := make([]Step, seqs)
			for i := range steps {
				steps[i] = Step{Cache: prompt.Fork(), Tokens: []int32{int32(i)}}
			}
			measure(b, seqs, func() {
				for i := range steps {
					s := &steps[i]
					if s.Cache.Len() >= 300 {
						s.Cache.Truncate(200)
					}
					at := []int32{int32(s.Cache.Len())}
					s.Positions = [3][]int32{at, at, at}
				}
				if _, err := m.Extend(steps); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

// BenchmarkPrefill is the prompts of 8 sequences of 300 tokens with an image.
func BenchmarkPrefill(b *testing.B) {
	cfg := demoConfig()
	m := Init(cfg, 1)
	pack, _, _ := demoPack(cfg, 8, 300, true)
	steps := cut(m, pack)
	measure(b, len(pack.Tokens), func() {
		if _, err := m.Extend(steps); err != nil {
			b.Fatal(err)
		}
		for i := range steps {
			steps[i].Cache.Release()
		}
	})
}

// cut makes a step of every sequence of a pack.
func cut(m *Model, b *Batch) []Step {
	steps := make([]Step, len(b.CuSeqlens)-1)
	for i := range steps {
		from, to := b.CuSeqlens[i], b.CuSeqlens[i+1]
		s := &steps[i]
		s.Cache, s.Tokens = m.NewCache(1<<20), b.Tokens[from:to]
		for a := range b.Positions {
			s.Positions[a] = b.Positions[a][from:to]
		}
		for _, im := range b.Images {
			if im.Offset >= from && im.Offset < to {
				im.Offset -= from
				s.Images = append(s.Images, im)
			}
		}
	}
	return steps
}
