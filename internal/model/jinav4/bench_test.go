package jinav4

import (
	"slices"
	"testing"
	"time"

	"searchloop/internal/model/qwenvl"
	"searchloop/internal/tensor"
)

// published is the shape of jina-embeddings-v4, that of Qwen2.5-VL-3B, with fewer
// layers and blocks and a smaller vocabulary.
func published(vocab, layers, blocks int) qwenvl.Config {
	c := qwenvl.Config{
		Family: qwenvl.Qwen2, Vocab: vocab, Hidden: 2048, Intermediate: 11008, Layers: layers, Heads: 16, KVHeads: 2, HeadDim: 128,
		MaxPositions: 128000, RMSEps: 1e-6, RopeTheta: 1e6, MRopeSection: [3]int{16, 24, 24}, Tied: true,
		ImagePadID: int32(vocab) - 1, VideoPadID: int32(vocab) - 2, VisionStartID: int32(vocab) - 3, VisionEndID: int32(vocab) - 4,
		PatchSize: 14, MergeSize: 2, TemporalPatch: 2,
		Vision: qwenvl.VisionConfig{Depth: blocks, Hidden: 1280, Intermediate: 3420, Heads: 16, Channels: 3, Out: 2048, RopeTheta: 10000, Window: 4},
	}
	for i := 7; i < blocks; i += 8 {
		c.Vision.Full = append(c.Vision.Full, i)
	}
	return c
}

const (
	allLayers = 36
	allBlocks = 32
)

// BenchmarkPublished times a share of the published model's layers on the processor:
// 1,020 tokens of texts, and an image of the most pixels that the published settings
// allow. tokens/s and images/s are those of the whole model.
func BenchmarkPublished(b *testing.B) {
	const layers, blocks = 2, 8
	cfg := published(1024, layers, blocks)
	be := &tensor.Shared{Encoding: tensor.CPU.(tensor.Encoding)}
	m := &Model{be: be, m: qwenvl.Init(cfg, 1), cfg: cfg, max: mostTokens}
	b.Run("texts", func(b *testing.B) {
		seqs := make([][]int32, 6)
		for i := range seqs {
			for j := range 170 {
				seqs[i] = append(seqs[i], int32(i*170+j)%1000)
			}
		}
		for b.Loop() {
			if _, err := m.Encode(seqs); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(seqs)*170*b.N)/b.Elapsed().Seconds()*layers/allLayers, "tokens/s")
	})
	b.Run("image", func(b *testing.B) {
		s := qwenvl.Sequence{Grid: [3]int32{1, 48, 64}, Patches: make([]float32, 48*64*cfg.PatchDim()), From: 2}
		for i := range s.Patches {
			s.Patches[i] = float32(i%255)/128 - 1
		}
		s.Tokens = slices.Concat([]int32{1, 2, cfg.VisionStartID}, slices.Repeat([]int32{cfg.ImagePadID}, 768), []int32{cfg.VisionEndID})
		s.To = len(s.Tokens)
		text := slices.Clone(s.Tokens)
		for i := range text {
			text[i] = int32(i) % 1000
		}
		for b.Loop() {
			if _, err := m.encode(nil, []qwenvl.Sequence{s}); err != nil {
				b.Fatal(err)
			}
		}
		both := b.Elapsed().Seconds() / float64(b.N)
		b.StopTimer()
		start := time.Now()
		if _, err := m.Encode([][]int32{text}); err != nil {
			b.Fatal(err)
		}
		decoder := time.Since(start).Seconds()
		b.ReportMetric(1/(decoder*allLayers/layers+(both-decoder)*allBlocks/blocks), "images/s")
	})
}
