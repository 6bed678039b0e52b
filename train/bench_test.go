package train

import (
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"searchloop/internal/job"
	"searchloop/internal/model/qwenvl"
	"searchloop/internal/recipe"
)

// BenchmarkDemoStep is one optimizer step of the demo's size: 2048 tokens, an
// image a row. model-share is the part of the time spent inside the model.
func BenchmarkDemoStep(b *testing.B) {
	cfg := qwenvl.Config{
		Vocab: 640, Hidden: 96, Intermediate: 240, Layers: 3, Heads: 4, KVHeads: 4, HeadDim: 24, RopeTheta: 1e4, MRopeSection: [3]int{4, 4, 4}, Tied: true,
		ImagePadID: 6, VideoPadID: 7, VisionStartID: 3, VisionEndID: 4, PatchSize: 16, MergeSize: 2, TemporalPatch: 2,
		Vision: qwenvl.VisionConfig{Depth: 1, Hidden: 48, Intermediate: 192, Heads: 2, PositionSide: 16, Deepstack: []int{0}},
	}
	timed := &timedPolicy{Policy: qwen{Model: qwenvl.Init(cfg, 1)}}
	rng := rand.New(rand.NewPCG(1, 2))
	var rows []*Sequence
	for range 32 {
		s := &Sequence{Temperature: 1, Images: []ImageRef{{ID: "x", Grid: [3]int32{1, 8, 8}, Offset: 20}}, Advantage: 1}
		for t := range 256 {
			id := int32(8 + rng.IntN(600))
			if t >= 20 && t < 36 {
				id = 6
			}
			s.Tokens = append(s.Tokens, id)
		}
		s.Spans, s.Trained = []Span{{60, 90}, {150, 180}, {230, 256}}, 86
		s.Old, s.Ref = make([]float32, 86), make([]float32, 86)
		s.Sampled = s.Old
		rows = append(rows, s)
	}
	images := OpenPictures(nil)
	images.keep(pictureKey{"x", [3]int32{1, 8, 8}}, make([]float32, 64*timed.Traits().PatchDim))
	o := recipe.Optimizer{LR: 1e-3, Schedule: "constant", Beta1: .9, Beta2: .98, Eps: 1e-8, ClipNorm: 1}
	for name, goal := range map[string]objective{
		"sft":  new(imitation),
		"grpo": &improvement{loss: &Loss{ClipLow: .2, ClipHigh: .28, DualClip: 3, KL: .001, Estimator: "k3"}, divisor: Denominator{Mode: TokenMean}},
	} {
		b.Run(name, func(b *testing.B) {
			var steps []Step
			for i := range b.N {
				steps = append(steps, Step{Packs: pack(rows, shuffled(32, 1, i)[:8], 2048)})
			}
			params := timed.Params()
			opt, err := NewAdamW(o, params)
			if err != nil {
				b.Fatal(err)
			}
			schedule, err := NewSchedule(o, int64(b.N))
			if err != nil {
				b.Fatal(err)
			}
			r := &run{kind: name, identity: "x", dir: b.TempDir(), policy: timed, params: params, opt: opt, schedule: schedule,
				rows: rows, steps: steps, budget: 2048, images: images, goal: goal, log: slog.New(slog.DiscardHandler)}
			quiet := job.NewRun("bench", job.Flags{ProgressMode: "none"}, discard{}, discard{})
			timed.inside = 0
			b.ResetTimer()
			if err := r.train(b.Context(), quiet); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(2048*float64(b.N)/b.Elapsed().Seconds(), "tok/s")
			b.ReportMetric(timed.inside.Seconds()/b.Elapsed().Seconds(), "model-share")
		})
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// timedPolicy adds up the time spent in a policy.
type timedPolicy struct {
	Policy
	inside time.Duration
}

type timedPass struct {
	Pass
	t *timedPolicy
}

func (t *timedPolicy) count(began time.Time) { t.inside += time.Since(began) }

func (t *timedPolicy) ZeroGrad() {
	defer t.count(time.Now())
	t.Policy.ZeroGrad()
}

func (t *timedPolicy) Forward(b *qwenvl.Batch) (Pass, error) {
	defer t.count(time.Now())
	p, err := t.Policy.Forward(b)
	return timedPass{p, t}, err
}

func (p timedPass) Score(rows, targets []int32, temperature float32) (logp, entropy []float32) {
	defer p.t.count(time.Now())
	return p.Pass.Score(rows, targets, temperature)
}

func (p timedPass) Backward(rows, targets []int32, temperature float32, dlogp, dentropy []float32) {
	defer p.t.count(time.Now())
	p.Pass.Backward(rows, targets, temperature, dlogp, dentropy)
}
