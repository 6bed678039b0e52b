package rollout

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"

	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/rollout/trajectory"
)

// Summary is what a run found, over the shards that it made. It is the job's
// result with --json.
type Summary struct {
	Trajectories int            `json:"trajectories"`
	OK           int            `json:"ok"`
	Truncated    int            `json:"truncated"`
	Failed       int            `json:"failed"`
	Answered     int            `json:"answered"`
	Why          map[string]int `json:"why,omitempty"` // reasons of truncated and failed trajectories
	Turns        int            `json:"turns"`         // of the policy
	Tokens       int64          `json:"tokens"`        // sampled
	Calls        map[string]int `json:"calls,omitempty"`
	ToolErrors   int            `json:"tool_errors"`
	WithTokenIDs int            `json:"with_token_ids"`
	Retokenised  int            `json:"retokenised,omitempty"` // of these, with tokens made of the texts

	failures map[string]int // reasons of the failed ones alone
}

func (s *Summary) add(row *trajectory.Row) {
	if s.Why == nil {
		s.Why, s.Calls, s.failures = map[string]int{}, map[string]int{}, map[string]int{}
	}
	s.Trajectories++
	switch row.Status {
	case trajectory.OK:
		s.OK++
	case trajectory.Truncated:
		s.Truncated++
	default:
		s.Failed++
		s.failures[row.Why]++
	}
	if row.Why != "" {
		s.Why[row.Why]++
	}
	if row.HasAnswer {
		s.Answered++
	}
	if len(row.TokenIDs) > 0 {
		s.WithTokenIDs++
	}
	if row.TokenSource == trajectory.Retokenised {
		s.Retokenised++
	}
	for _, t := range row.Turns {
		switch {
		case t.Role == "assistant":
			s.Turns++
			s.Tokens += int64(t.Tokens)
		case t.Observation():
			if t.Call != "" {
				s.Calls[t.Call]++
			}
			if t.Error != "" {
				s.ToolErrors++
			}
		}
	}
}

// remedy is what helps against failed trajectories.
const remedy = "mend the cause and run again with --retry-failed"

// warn tells of the failed trajectories of this run.
func (s *Summary) warn(log *slog.Logger) {
	if s.Failed > 0 {
		log.Warn("some trajectories failed; they count as wrong", "failed", s.Failed, "of", s.Trajectories, "most_often", s.mostOften(), "remedy", remedy)
	}
}

// mostOften is the reason of most of the failed trajectories.
func (s *Summary) mostOften() string {
	return slices.MinFunc(slices.Collect(maps.Keys(s.failures)), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.failures[b], s.failures[a]), cmp.Compare(a, b))
	})
}

// bound is an error when not one trajectory of the finished dataset in dir came
// through; it reads the rows only to say why.
func bound(m *manifest.Manifest, dir string) error {
	if c := m.Counts; c.Failed == 0 || c.Failed < c.In {
		return nil
	}
	var s Summary
	for row, err := range trajectory.Rollouts(dir) {
		if err != nil {
			return err
		}
		s.add(&row)
	}
	return fail.WithHint(fail.New(fail.Bound, "roll out", dir, "all %d trajectories failed; most often: %s", s.Failed, s.mostOften()), remedy)
}
