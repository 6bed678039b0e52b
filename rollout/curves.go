package rollout

import (
	"searchloop/internal/board"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/rollout/trajectory"
)

// curves are the means and shares of a summary, as they are shown over epochs.
func (s *Summary) curves() map[string]any {
	n, calls := float64(max(s.Trajectories, 1)), 0
	by := map[string]float64{}
	for tool, k := range s.Calls {
		by[tool] = float64(k) / n
		calls += k
	}
	return map[string]any{"trajectories": s.Trajectories, "ok": float64(s.OK) / n, "truncated": float64(s.Truncated) / n, "failed": float64(s.Failed) / n,
		"answered": float64(s.Answered) / n, "turns_mean": float64(s.Turns) / n, "tokens_mean": float64(s.Tokens) / n, "calls_mean": by,
		"tool_error_ratio": float64(s.ToolErrors) / float64(max(calls, 1))}
}

// show shows a finished dataset as one step, that of its epoch. Rows that other
// processes made are read for it.
func (s *Summary) show(r *job.Run, o *Options, digest string, m *manifest.Manifest) error {
	if !board.Wanted(o.TensorBoard) {
		return nil
	}
	all := s
	if int64(s.Trajectories) != m.Rows() {
		all = new(Summary)
		for row, err := range trajectory.Rollouts(o.Out) {
			if err != nil {
				return err
			}
			all.add(&row)
		}
	}
	curves := all.curves()
	if u := m.Usage; u != nil {
		curves["dollars"], curves["requests"] = u.Cost, u.Requests
	}
	board.Show(board.Options{Job: "rollout", Dataset: o.Out, ID: digest, Dir: o.TensorBoard, Step: int64(o.Epoch), Log: r.Log}, curves)
	return nil
}
