package rollout

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"

	"searchloop/internal/fail"
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

// verdict is an error when not one trajectory came through, and warns when some
// did not.
func (s *Summary) verdict(log *slog.Logger, out string) error {
	if s.Failed == 0 {
		return nil
	}
	reason := slices.MinFunc(slices.Collect(maps.Keys(s.failures)), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.failures[b], s.failures[a]), cmp.Compare(a, b))
	})
	if s.Failed < s.Trajectories {
		log.Warn("some trajectories failed; they count as wrong", "failed", s.Failed, "of", s.Trajectories, "most_often", reason, "remedy", remedy)
		return nil
	}
	return fail.WithHint(fail.New(fail.Bound, "roll out", out, "all %d trajectories failed; most often: %s", s.Failed, reason), remedy)
}
