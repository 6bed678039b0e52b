package corpus

import (
	"fmt"
	"iter"
	"strings"

	"searchloop/corpus/record"
)

// jsonlFormat reads questions in the plain form that many data sets share, from
// JSON lines, a JSON list, or Parquet with the same columns. The first column
// that is not null counts.
var jsonlFormat = Format{
	Name:      "jsonl",
	Doc:       "plain questions: JSON lines, a JSON list or Parquet with question, answer(s), image(s), id (Vision-DeepResearch, FlashRAG)",
	Fields:    "question, answer or answers; id, images, candidate_answers, split, category, data_source",
	From:      "your own files",
	Split:     "train",
	Files:     map[string][]string{Questions: tableFiles},
	ImageDirs: []string{"images"},
	Questions: func(in Input) iter.Seq2[Row[Sample], error] {
		return func(yield func(Row[Sample], error) bool) {
			for _, path := range in.Files {
				for row, err := range rowsOf(path, questionColumns, answerColumns) {
					if err != nil {
						yield(Row[Sample]{}, err)
						return
					}
					if row.Err != nil {
						if !yield(bad[Sample](path, row.N, "", row.Err), nil) {
							return
						}
						continue
					}
					id, err := row.Get.text("id", "data_id", "_id", "qid", "question_id", "sample_id", "idx")
					if id == "" {
						id = numbered(path, row.N)
					}
					out := Row[Sample]{Path: path, N: row.N, ID: id, Load: func() (Sample, error) { return plainSample(path, row.Get) }}
					if !yield(out, err) || err != nil {
						return
					}
				}
			}
		}
	},
}

var (
	questionColumns = []string{"question", "query", "text", "prompt"}
	answerColumns   = []string{"answers", "answer", "golden_answers", "gt_answer", "ground_truth", "target"}
)

func plainSample(path string, get cells) (Sample, error) {
	s := Sample{}
	text, err := get.text(questionColumns...)
	if err != nil {
		return s, err
	}
	s.Text, s.Shown = bareText(text)
	truth, err := get.first(answerColumns...)
	if err != nil {
		return s, err
	}
	if truth.Kind() == record.Text && listText(truth.String()) {
		s.Truth, err = ParseCandidates(truth)
	} else {
		s.Truth, err = truthOf(truth)
	}
	if err != nil {
		return s, fmt.Errorf("answer: %w", err)
	}
	more, err := get.first("candidate_answers", "aliases", "alternative_gt_answers")
	if err != nil {
		return s, err
	}
	if s.Candidates, err = ParseCandidates(more); err != nil {
		return s, err
	}
	cell, err := get.first("images", "image", "image_path", "img_path")
	if err != nil {
		return s, err
	}
	if s.Images, err = picturesOf(cell); err != nil {
		return s, err
	}
	if s.Split, err = get.text("split"); err != nil {
		return s, err
	}
	if s.Category, err = get.text("category", "type"); err != nil {
		return s, err
	}
	if s.DataSource, err = get.text("data_source", "source"); s.DataSource == "" {
		s.DataSource = strings.TrimSuffix(numbered(path, 1), "_0")
	}
	return s, err
}
