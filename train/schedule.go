package train

import (
	"math"

	"searchloop/internal/fail"
	"searchloop/internal/recipe"
)

// Schedule is the learning rate over the planned steps of a run: a linear
// warm-up over a share of them, then constant, linear or cosine down to MinLR.
// The first step already learns, at LR/warm-up steps; the last one stands just
// above MinLR.
type Schedule struct {
	shape      string
	lr, minLR  float64
	warm, over int64
}

// NewSchedule plans for total steps.
func NewSchedule(o recipe.Optimizer, total int64) (Schedule, error) {
	bad := func(key, format string, args ...any) (Schedule, error) {
		return Schedule{}, fail.New(fail.Usage, "optimizer."+key, "", format, args...)
	}
	switch o.Schedule {
	case "constant", "linear", "cosine":
	default:
		return bad("schedule", "%q: want constant, linear or cosine", o.Schedule)
	}
	switch {
	case !(o.LR >= 0) || math.IsInf(o.LR, 0):
		return bad("lr", "%g: want 0 or more", o.LR)
	case !(o.MinLR >= 0 && o.MinLR <= o.LR):
		return bad("min_lr", "%g: want between 0 and lr %g", o.MinLR, o.LR)
	case !(o.Warmup >= 0 && o.Warmup < 1):
		return bad("warmup", "%g: want a share of the steps, at least 0 and below 1", o.Warmup)
	}
	return Schedule{shape: o.Schedule, lr: o.LR, minLR: o.MinLR, warm: int64(o.Warmup * float64(total)), over: total}, nil
}

// At is the rate of a step; steps count from 0.
func (s Schedule) At(step int64) float64 {
	if step < s.warm {
		return s.lr * float64(step+1) / float64(s.warm)
	}
	part := float64(step-s.warm) / float64(max(s.over-s.warm, 1))
	switch s.shape {
	case "linear":
		return s.minLR + (s.lr-s.minLR)*(1-part)
	case "cosine":
		return s.minLR + (s.lr-s.minLR)*(1+math.Cos(math.Pi*part))/2
	}
	return s.lr
}
