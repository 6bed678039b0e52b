package train

import (
	"time"

	"searchloop/internal/board"
)

// points are a line's numbers as they are shown: under the job's kind, and one level
// deeper what has parts (grpo/mismatch/abs_mean).
func points(kind string, line *Line, took time.Duration) ([]board.Point, error) {
	all, err := board.Points(kind, line)
	if err != nil {
		return nil, err
	}
	out := all[:0]
	for _, p := range all {
		if p.Tag != kind+"/step" && p.Tag != kind+"/steps" {
			out = append(out, p)
		}
	}
	return append(out, board.Point{Tag: kind + "/seconds", Value: took.Seconds()}, board.Point{Tag: kind + "/tokens_per_second", Value: float64(line.Tokens) / took.Seconds()}), nil
}
