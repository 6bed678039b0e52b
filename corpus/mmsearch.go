package corpus

import (
	"errors"
	"iter"

	"searchloop/corpus/record"
)

// mmSearchFormat reads the end-to-end file of the MMSearch benchmark
// (CaraJ/MMSearch). Ids are numbered as MM-DeepResearch does, MMSearch_<row>
// with rows counted from 0 over all rows, so that its lens cache fits; questions
// without an image stay, and --require-image gives its subset of 171.
var mmSearchFormat = Format{
	Name:   "mmsearch",
	Doc:    "MMSearch end2end Parquet (CaraJ/MMSearch): query, query_image, gt_answer, alternative_gt_answers",
	Fields: "query, query_image, gt_answer; alternative_gt_answers, area, subfield, sample_id",
	From:   "huggingface.co/datasets/CaraJ/MMSearch: end2end.parquet",
	Split:  "test",
	Files:  map[string][]string{Questions: tableFiles},
	Questions: func(in Input) iter.Seq2[Row[Sample], error] {
		return func(yield func(Row[Sample], error) bool) {
			n := int64(0)
			for _, path := range in.Files {
				for row, err := range rowsOf(path, []string{"query"}, []string{"gt_answer"}) {
					if err != nil {
						yield(Row[Sample]{}, err)
						return
					}
					n++
					out := Row[Sample]{Path: path, N: row.N, ID: numbered("MMSearch", n), Err: row.Err}
					if row.Err == nil {
						out.Load = func() (Sample, error) { return mmSearchSample(row.Get) }
					}
					if !yield(out, nil) {
						return
					}
				}
			}
		}
	},
}

func mmSearchSample(get cells) (Sample, error) {
	s := Sample{DataSource: "searchR1_MMSearch"}
	query, err := get.text("query")
	if err != nil {
		return s, err
	}
	s.Text, s.Shown = bareText(query)
	answer, err := get.text("gt_answer")
	if err != nil {
		return s, err
	}
	s.Truth = unique([]string{answer})
	more, err := get("alternative_gt_answers")
	if err != nil {
		return s, err
	}
	if s.Candidates, err = ParseCandidates(more); err != nil {
		return s, err
	}
	cell, err := get("query_image")
	if err != nil {
		return s, err
	}
	if s.Images, err = picturesOf(cell); err != nil {
		return s, err
	}
	if len(s.Images) > 1 {
		return s, errors.New("query_image holds more than one image")
	}
	if s.Category, err = get.text("area"); err != nil {
		return s, err
	}
	for _, name := range []string{"sample_id", "subfield", "timestamp"} {
		v, err := get(name)
		if err != nil {
			return s, err
		}
		if t, ok := v.AsText(); ok {
			s.Meta = s.Meta.With(name, record.TextOf(t))
		}
	}
	return s, nil
}
