package train

import (
	"encoding/json"
	"log/slog"
	"maps"
	"slices"

	"searchloop/internal/chat"
	"searchloop/rollout/trajectory"
)

// Stats describe the rows that a run was given: stats.json of a checkpoint.
type Stats struct {
	Rows     int64            `json:"rows"`
	Status   map[string]int64 `json:"status"`
	Refused  map[string]int64 `json:"refused"` // by reason; the rows are in rejects.jsonl
	Unscored int64            `json:"unscored"`
	// Rows left out by the recipe.
	TruncatedDropped int64 `json:"truncated_dropped"`
	TruncatedMasked  int64 `json:"truncated_masked,omitempty"` // in the statistics, not in the loss
	Overlong         int64 `json:"overlong,omitempty"`         // rows whose length cost them reward
	IncorrectDropped int64 `json:"incorrect_dropped"`
	EqualDropped     int64 `json:"equal_dropped"` // of groups without variance
	JudgedOnly       int64 `json:"judged_without_rollout"`
	TrainedRows      int64 `json:"trained_rows"`

	Groups       int64 `json:"groups"`
	SingleGroups int64 `json:"single_groups"` // of one row: advantage 0
	EqualGroups  int64 `json:"equal_groups"`  // all rewards equal: advantage 0

	Reward     Summary             `json:"reward"` // of rows that count in a group
	Components map[string]*Summary `json:"components"`
	Advantage  Summary             `json:"advantage"` // of trained rows
	Correct    int64               `json:"correct"`   // of scored rows
	Scored     int64               `json:"scored"`

	Tokens        Summary             `json:"tokens"`         // a row
	TrainedTokens Summary             `json:"trained_tokens"` // a trained row
	Images        Summary             `json:"images"`
	Turns         Summary             `json:"turns"` // of the policy
	Calls         map[string]*Summary `json:"calls"` // by tool, over rows that call it
	CallErrors    int64               `json:"call_errors"`
	Answered      int64               `json:"answered"`
}

func newStats() *Stats {
	return &Stats{Status: map[string]int64{}, Refused: map[string]int64{}, Components: map[string]*Summary{}, Calls: map[string]*Summary{}}
}

func (s *Stats) row(r *trajectory.Row) {
	s.Rows++
	s.Status[r.Status]++
	if r.HasAnswer {
		s.Answered++
	}
	turns, calls := 0, map[string]int{}
	for i := range r.Turns {
		switch t := &r.Turns[i]; {
		case t.Role == "assistant":
			turns++
			if t.Call != "" {
				calls[t.Call]++
			}
		case t.Observation() && t.Error != "":
			s.CallErrors++
		}
	}
	s.Turns.add(float64(turns))
	for tool, n := range calls {
		entry(s.Calls, tool).add(float64(n))
	}
}

// example counts a conversation from a file.
func (s *Stats) example(d *dialogue) {
	s.Rows++
	s.Status[trajectory.OK]++
	turns := 0
	for i := range d.turns {
		if d.turns[i].role == chat.Assistant {
			turns++
		}
	}
	s.Turns.add(float64(turns))
}

// size counts a row's tokens and images: as sampled, or as rendered.
func (s *Stats) size(tokens, images int) {
	s.Tokens.add(float64(tokens))
	s.Images.add(float64(images))
}

func (s *Stats) judged(j *trajectory.Judged) {
	if !j.Scored {
		return
	}
	s.Scored++
	if j.Correct {
		s.Correct++
	}
	for _, c := range j.Components {
		entry(s.Components, c.Name).add(c.Value)
	}
}

// warnRefused says once for each reason how many rows it cost.
func warnRefused(log *slog.Logger, s *Stats) {
	for _, reason := range slices.Sorted(maps.Keys(s.Refused)) {
		log.Warn("rows refused", "because", reason, "rows", s.Refused[reason], "of", s.Rows)
	}
}

func entry(m map[string]*Summary, key string) *Summary {
	e := m[key]
	if e == nil {
		e = new(Summary)
		m[key] = e
	}
	return e
}

// Summary collects n, mean, standard deviation (unbiased), least and greatest of
// a column. The zero value is empty.
type Summary struct{ moments }

// MarshalJSON writes the five numbers.
func (s *Summary) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		N    int64  `json:"n"`
		Mean Number `json:"mean"`
		Std  Number `json:"std"`
		Min  Number `json:"min"`
		Max  Number `json:"max"`
	}{int64(s.n), Number(s.mean()), Number(s.std()), Number(s.min), Number(s.max)})
}
