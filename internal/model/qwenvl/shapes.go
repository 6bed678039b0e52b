package qwenvl

// Qwen3VL8B is the shape of Qwen3-VL-8B-Instruct (its config.json on the Hub):
// what plans and benchmarks are made for.
func Qwen3VL8B() Config {
	return Config{
		Vocab: 151936, Hidden: 4096, Intermediate: 12288, Layers: 36, Heads: 32, KVHeads: 8, HeadDim: 128, MaxPositions: 262144, RMSEps: 1e-6,
		RopeTheta: 5e6, MRopeSection: [3]int{24, 20, 20}, DType: "BF16", InitStd: 0.02,
		ImagePadID: 151655, VideoPadID: 151656, VisionStartID: 151652, VisionEndID: 151653, PatchSize: 16, MergeSize: 2, TemporalPatch: 2,
		Vision: VisionConfig{Depth: 27, Hidden: 1152, Intermediate: 4304, Heads: 16, Channels: 3, Out: 4096, PositionSide: 48, Deepstack: []int{8, 16, 24}, RopeTheta: 10000},
	}
}
