package train

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
)

// MetricsName is the file with one Line for each optimizer step.
const MetricsName = "metrics.jsonl"

// Line is one optimizer step. It holds nothing that depends on the clock: equal
// runs write equal bytes (seconds and rates are in timings.jsonl).
type Line struct {
	Step     int64  `json:"step"` // from 1
	Steps    int64  `json:"steps"`
	Pass     int    `json:"pass"` // times the data had been used before, from 0
	Loss     Number `json:"loss"`
	LR       Number `json:"lr"`
	GradNorm Number `json:"grad_norm"` // before clipping; null when it was no number
	Skipped  bool   `json:"skipped"`   // no update was made, because of that
	Rows     int64  `json:"rows"`
	Tokens   int64  `json:"tokens"`         // of all rows
	Trained  int64  `json:"trained_tokens"` // of these, in the loss
	Packs    int    `json:"packs"`
	Fill     Number `json:"pack_fill"`    // share of the packs' budget that holds tokens
	Balance  Number `json:"pack_balance"` // mean cost of a pack by that of the dearest
	Entropy  Number `json:"entropy"`      // mean over trained tokens
	Device   string `json:"device"`       // that computed it: cpu or cuda
	DType    string `json:"dtype"`        // of weights and activations there

	*Update // GRPO only
}

// Update is the part of a Line that only a policy update has. Shares and means
// are over trained tokens unless they say otherwise.
type Update struct {
	PolicyLoss Number `json:"policy_loss"`
	KLLoss     Number `json:"kl_loss"` // coefficient · KL, as in the loss
	KL         Number `json:"kl"`      // mean of the estimator; 0 without a reference
	RatioMean  Number `json:"ratio_mean"`
	RatioMin   Number `json:"ratio_min"`
	RatioMax   Number `json:"ratio_max"`
	Clipped    Number `json:"clip_fraction"` // share held back by any bound; the sum of the next three
	ClipHigh   Number `json:"clip_high"`
	ClipLow    Number `json:"clip_low"`
	ClipDual   Number `json:"clip_dual"`
	PPOKL      Number `json:"ppo_kl"` // mean of old-new

	AdvantageMean Number `json:"advantage_mean"` // over rows, as the next five
	AdvantageMin  Number `json:"advantage_min"`
	AdvantageMax  Number `json:"advantage_max"`
	RewardMean    Number `json:"reward_mean"`
	RewardStd     Number `json:"reward_std"`
	TrainedMean   Number `json:"trained_per_row"`

	// Correction is what the rollout correction did; only with one.
	Correction *Corrected `json:"correction,omitempty"`

	// Mismatch compares the trainer's log-probs before the first update with the
	// sampled ones; on the first line only.
	Mismatch *Mismatch `json:"mismatch,omitempty"`
}

// Number is a float64 that JSON can hold: what is no number becomes null.
type Number float64

// MarshalJSON writes the shortest form that reads back as the same number.
func (n Number) MarshalJSON() ([]byte, error) {
	f := float64(n)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, f, 'g', -1, 64), nil
}

// metricsLog appends lines to a file.
type metricsLog struct {
	f    *os.File
	path string
	size int64
}

// openMetrics begins the file, or continues it after its first size bytes.
func openMetrics(dir string, size int64) (*metricsLog, error) {
	path := filepath.Join(dir, MetricsName)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fail.Wrap(fail.Disk, "open metrics", path, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fail.Wrap(fail.Disk, "open metrics", path, err)
	}
	if err = f.Truncate(size); err == nil {
		_, err = f.Seek(size, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, fail.Wrap(fail.Disk, "open metrics", path, err)
	}
	return &metricsLog{f: f, path: path, size: size}, nil
}

func (l *metricsLog) add(line *Line) error {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(line); err != nil {
		return fail.Wrap(fail.Bug, "write metrics", l.path, err)
	}
	n, err := l.f.Write(b.Bytes())
	l.size += int64(n)
	return fail.Wrap(fail.Disk, "write metrics", l.path, err)
}

// sync makes what was added durable.
func (l *metricsLog) sync() error {
	if err := l.f.Sync(); err != nil {
		return fail.Wrap(fail.Disk, "write metrics", l.path, err)
	}
	return atomicfile.SyncDir(filepath.Dir(l.path))
}

func (l *metricsLog) close() { l.f.Close() }
