package judge

import (
	"encoding/json"
	"fmt"

	"searchloop/corpus/record"
	"searchloop/internal/fail"
	"searchloop/rollout/trajectory"
)

// Agreement is how a judged dataset agrees with labels given by people.
type Agreement struct {
	Labels  int     `json:"labels"`  // in the file
	Counted int     `json:"counted"` // of rows with a verdict
	Table   Table   `json:"table"`   // [label][verdict], 1 is correct
	Agree   float64 `json:"agree"`   // share of the counted
	Kappa   float64 `json:"kappa"`   // 0 when there is none
}

// Agree holds the judged dataset in dir against a file of JSON lines
// {"id": row, "correct": true or false}. A row labelled twice or not in the dataset
// is bad input: the file belongs to other rollouts.
func Agree(dir, labels string) (*Agreement, error) {
	want := map[string]bool{}
	for line, err := range record.Lines(labels) {
		if err != nil {
			return nil, err
		}
		var l struct {
			ID      string `json:"id"`
			Correct *bool  `json:"correct"`
		}
		err = line.Err
		if err == nil {
			err = json.Unmarshal(line.Data, &l)
		}
		if _, twice := want[l.ID]; err == nil && (l.ID == "" || l.Correct == nil || twice) {
			err = fmt.Errorf("want an id that was not there before, and correct")
		}
		if err != nil {
			return nil, &fail.Error{Kind: fail.BadInput, Op: "read labels", Path: labels, Row: int64(line.N), Sample: l.ID, Err: err}
		}
		want[l.ID] = *l.Correct
	}
	a := &Agreement{Labels: len(want)}
	for j, err := range trajectory.Judgements(dir) {
		if err != nil {
			return nil, err
		}
		label, ok := want[j.ID]
		delete(want, j.ID)
		if ok && (j.Verdict == trajectory.Correct || j.Verdict == trajectory.Incorrect || j.Verdict == trajectory.NoAnswer && j.Status != trajectory.Failed) {
			a.Table.Add(label, j.Correct)
			a.Counted++
		}
	}
	for id := range want {
		return nil, &fail.Error{Kind: fail.BadInput, Op: "read labels", Path: labels, Sample: id, Err: fmt.Errorf("%d labels are of rows that are not in %s", len(want), dir)}
	}
	if a.Counted > 0 {
		a.Agree = float64(a.Table[0][0]+a.Table[1][1]) / float64(a.Counted)
	}
	if k := a.Table.Kappa(); k == k {
		a.Kappa = k
	}
	return a, nil
}
