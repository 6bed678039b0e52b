package judge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"searchloop/corpus/record"
	"searchloop/internal/fail"
	"searchloop/rollout/trajectory"
)

// Agreement is how far two of those who judge agree: a judge's model, exact_match,
// verdict (what the dataset says in the end) and labels (people).
type Agreement struct {
	A       string  `json:"a"`
	B       string  `json:"b"`
	Counted int     `json:"counted"` // rows of which both said yes or no
	Table   Table   `json:"table"`   // [A][B], 1 is correct
	Agree   float64 `json:"agree"`   // share of the counted
	Kappa   float64 `json:"kappa"`   // 0 when there is none
}

// Agree compares all who judged the dataset in dir with each other: every judge of
// which opinions are kept, with the others and with exact match, and all of them
// with a file of JSON lines {"id": row, "correct": true or false}, if labels names
// one. A row labelled twice or not in the dataset is bad input: the file belongs to
// other rollouts.
func Agree(dir, labels string) ([]Agreement, error) {
	want, err := readLabels(labels)
	if err != nil {
		return nil, err
	}
	tables := map[[2]string]*Table{}
	count := func(a, b string, x, y bool) {
		t := tables[[2]string{a, b}]
		if t == nil {
			t = new(Table)
			tables[[2]string{a, b}] = t
		}
		t.Add(x, y)
	}
	for j, err := range trajectory.Judgements(dir) {
		if err != nil {
			return nil, err
		}
		label, labelled := want[j.ID]
		delete(want, j.ID)
		if labelled && (j.Verdict == trajectory.Correct || j.Verdict == trajectory.Incorrect || j.Verdict == trajectory.NoAnswer && j.Status != trajectory.Failed) {
			count("labels", "verdict", label, j.Correct)
		}
		for i, o := range j.Opinions {
			if !decided(o.Verdict) {
				continue
			}
			said := o.Verdict == trajectory.Correct
			count("exact_match", o.Judge, j.By == "exact_match" && j.Correct, said)
			if labelled {
				count("labels", o.Judge, label, said)
			}
			for _, other := range j.Opinions[i+1:] {
				if decided(other.Verdict) {
					count(o.Judge, other.Judge, said, other.Verdict == trajectory.Correct)
				}
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		return nil, &fail.Error{Kind: fail.BadInput, Op: "read labels", Path: labels, Sample: id, Err: fmt.Errorf("%d labels are of rows that are not in %s", len(want), dir)}
	}
	var out []Agreement
	for pair, t := range tables {
		a := Agreement{A: pair[0], B: pair[1], Table: *t, Counted: t[0][0] + t[0][1] + t[1][0] + t[1][1]}
		a.Agree = float64(t[0][0]+t[1][1]) / float64(a.Counted)
		if k := t.Kappa(); k == k {
			a.Kappa = k
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(x, y Agreement) int { return cmp.Or(cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B)) })
	return out, nil
}

func readLabels(labels string) (map[string]bool, error) {
	want := map[string]bool{}
	if labels == "" {
		return want, nil
	}
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
	return want, nil
}
