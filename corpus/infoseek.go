package corpus

import (
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"searchloop/corpus/record"
)

// infoSeekFormat reads InfoSeek as its authors publish it. Further files of the
// same folder complete the rows by data_id: *_qtype.jsonl says what kind of
// answer is asked for, *_withkb.jsonl which Wikidata entity the image shows.
var infoSeekFormat = Format{
	Name: "infoseek", DataSource: "mmsearch_r1/infoseek", Split: "val",
	Doc:       "InfoSeek JSON lines with answers of Wikidata: texts, numbers with their range, times; *_qtype and *_withkb complete the rows",
	Fields:    "data_id, image_id, question, answer, answer_eval, data_split; question_type; entity_id, entity_text",
	From:      "the JSON lines that github.com/edchengg/infoseek_eval names; images of OVEN (named <image_id>.jpg) under --image-root",
	Files:     map[string][]string{Questions: {"infoseek_*.jsonl", "infoseek_*.jsonl.gz"}},
	ImageDirs: []string{"images", "oven_images"},
	Questions: func(in Input) iter.Seq2[Row[Sample], error] {
		return func(yield func(Row[Sample], error) bool) {
			more, err := infoSeekMore(in.Files)
			if err != nil {
				yield(Row[Sample]{}, err)
				return
			}
			for _, path := range in.Files {
				if infoSeekSide(path) {
					continue
				}
				for row, err := range rowsOf(path) {
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
					id, err := row.Get.text("data_id")
					out := Row[Sample]{Path: path, N: row.N, ID: id, Load: func() (Sample, error) { return infoSeekSample(row.Get, more[id]) }}
					if !yield(out, err) || err != nil {
						return
					}
				}
			}
		}
	},
}

// infoSeekExtra is what the completing files say of a row.
type infoSeekExtra struct{ kind, entity, entityText string }

func infoSeekSide(path string) bool {
	return strings.Contains(path, "_qtype.") || strings.Contains(path, "_withkb.")
}

func infoSeekMore(files []string) (map[string]infoSeekExtra, error) {
	more := map[string]infoSeekExtra{}
	for _, path := range files {
		if !infoSeekSide(path) {
			continue
		}
		for row, err := range rowsOf(path) {
			if err != nil {
				return nil, err
			}
			if row.Err != nil {
				continue // the rows it would have completed do without
			}
			id, err := row.Get.text("data_id")
			if err != nil {
				return nil, err
			}
			x := more[id]
			for _, f := range []struct {
				to     *string
				column string
			}{{&x.kind, "question_type"}, {&x.entity, "entity_id"}, {&x.entityText, "entity_text"}} {
				v, err := row.Get.text(f.column)
				if err != nil {
					return nil, err
				}
				*f.to = pick(v, *f.to)
			}
			more[id] = x
		}
	}
	return more, nil
}

// infoSeekSample makes the question. answer_eval is a list of texts; for numbers
// it is {wikidata, range} or a list of one. The range goes into meta as two
// numbers, because no exact match of texts can tell that 98 lies in it; the
// number itself is an answer as it is written and without a fraction of zero.
func infoSeekSample(get cells, x infoSeekExtra) (Sample, error) {
	s := Sample{}
	var err error
	if s.Text, err = get.text("question"); err != nil {
		return s, err
	}
	s.Text, s.Shown = bareText(s.Text)
	answer, err := get("answer")
	if err != nil {
		return s, err
	}
	if s.Truth, err = truthOf(answer); err != nil {
		return s, fmt.Errorf("answer: %w", err)
	}
	eval, err := get("answer_eval")
	if err != nil {
		return s, err
	}
	numeric := false
	items := eval.Items()
	if eval.Kind() != record.List && !eval.IsNull() {
		items = []record.Value{eval}
	}
	for _, v := range items {
		if v.Kind() != record.Struct {
			t, err := flatten(v)
			if err != nil {
				return s, fmt.Errorf("answer_eval: %w", err)
			}
			s.Candidates = append(s.Candidates, t...)
			continue
		}
		numeric = true
		if err := infoSeekNumber(v, &s); err != nil {
			return s, fmt.Errorf("answer_eval: %w", err)
		}
	}
	s.Candidates = unique(s.Candidates)
	if len(s.Truth) == 0 && len(s.Candidates) > 0 {
		s.Truth = s.Candidates[:1]
	}
	kind, err := get.text("question_type")
	if err != nil {
		return s, err
	}
	if kind = pick(kind, x.kind); kind == "" && numeric {
		kind = "Numerical"
	}
	image, err := get.first("image", "images", "image_path")
	if err != nil {
		return s, err
	}
	if s.Images, err = picturesOf(image); err != nil {
		return s, err
	}
	name, err := get.text("image_id")
	if err != nil {
		return s, err
	}
	if len(s.Images) == 0 && name != "" {
		s.Images = []Picture{{Path: name, Exts: []string{".jpg", ".JPEG", ".jpeg", ".png", ".JPG"}}}
	}
	if s.Split, err = get.text("data_split", "split"); err != nil {
		return s, err
	}
	s.Category = strings.ToLower(kind)
	for _, f := range []struct{ name, text string }{{"image_id", name}, {"entity_id", x.entity}, {"entity_text", x.entityText}} {
		if f.text != "" {
			s.Meta = s.Meta.With(f.name, record.TextOf(f.text))
		}
	}
	return s, nil
}

// infoSeekNumber takes a number and the range in which an answer is right.
func infoSeekNumber(v record.Value, s *Sample) error {
	bounds := v.Get("range").Items()
	if len(bounds) < 2 {
		return errors.New("a number without a range")
	}
	for _, b := range bounds[:2] {
		if _, err := strconv.ParseFloat(b.String(), 64); err != nil {
			return fmt.Errorf("the range holds %q", b.String())
		}
	}
	if n := v.Get("wikidata").String(); n != "" {
		s.Candidates = append(s.Candidates, n, strings.TrimSuffix(n, ".0"))
	}
	s.Meta = s.Meta.With("range", record.ListOf(bounds[:2]))
	return nil
}
