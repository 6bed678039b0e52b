package qwenvl

import (
	"hash/fnv"
	"math"
	"strings"

	"searchloop/internal/tensor"
)

// Init is InitOn the CPU.
func Init(cfg Config, seed uint64) *Model { return InitOn(tensor.CPU, cfg, seed) }

// InitOn makes a model of cfg with random weights: matrices normal with standard
// deviation InitStd (0.02 when zero), norms one, biases zero. The same cfg and
// seed give the same bits on every machine: no function whose rounding may
// differ is used. A parameter's values depend on its name and shape alone, not
// on what else the model has.
//
// A cfg that cannot be a model panics; ParseConfig refuses such with an error.
func InitOn(be tensor.Backend, cfg Config, seed uint64) *Model {
	if cfg.RMSEps == 0 {
		cfg.RMSEps = 1e-6
	}
	if cfg.InitStd == 0 {
		cfg.InitStd = 0.02
	}
	if cfg.DType == "" {
		cfg.DType = "F32"
	}
	if cfg.MaxPositions == 0 {
		cfg.MaxPositions = 32768
	}
	if cfg.HasVision() {
		if cfg.Vision.RopeTheta == 0 {
			cfg.Vision.RopeTheta = 10000
		}
		if cfg.Vision.Channels == 0 {
			cfg.Vision.Channels = 3
		}
		if cfg.Vision.Out == 0 {
			cfg.Vision.Out = cfg.Hidden
		}
	} else {
		cfg.ImagePadID, cfg.VideoPadID, cfg.VisionStartID, cfg.VisionEndID = -1, -1, -1, -1
	}
	if err := cfg.check(); err != nil {
		panic("qwenvl: " + err.Error())
	}
	m := build(be, cfg)
	for _, p := range m.params {
		p.dtype = cfg.DType
		x := make([]float32, p.W.Len())
		switch {
		case len(p.Shape) > 1:
			fillNormal(x, cfg.InitStd, seed, p.Name)
		case strings.HasSuffix(p.Name, ".weight"):
			for i := range x {
				x[i] = 1
			}
		}
		m.be.Upload(p.W, x)
	}
	m.source = source{config: hubConfig(cfg), meta: map[string]string{"format": "pt"}}
	return m
}

// fillNormal draws from the sum of twelve uniform numbers of 16 bits: mean 0,
// variance 1, normal to within a few parts in a thousand up to three standard
// deviations, and exact in integers.
func fillNormal(x []float32, std float64, seed uint64, name string) {
	h := fnv.New64a()
	h.Write([]byte(name))
	state := h.Sum64() ^ seed*0x9e3779b97f4a7c15
	for i := range x {
		sum := int64(0)
		for range 3 {
			u := splitMix(&state)
			sum += int64(u&0xffff) + int64(u>>16&0xffff) + int64(u>>32&0xffff) + int64(u>>48)
		}
		// 12 draws have the mean 12·65535/2 and the variance (65536²-1).
		x[i] = float32(float64(sum-6*65535) * (std / 65536))
	}
}

// splitMix is the generator of Steele, Lea and Flood (2014).
func splitMix(state *uint64) uint64 {
	*state += 0x9e3779b97f4a7c15
	z := *state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// frequencies are theta^(-2j/dim) for j < dim/2, rounded where the reference
// rounds.
func frequencies(theta float64, dim int) []float32 {
	f := make([]float32, dim/2)
	for j := range f {
		f[j] = 1 / float32(math.Pow(theta, float64(float32(2*j)/float32(dim))))
	}
	return f
}
