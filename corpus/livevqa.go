package corpus

import (
	"errors"
	"fmt"
	"iter"
	"strings"

	"searchloop/corpus/record"
)

// liveVQAFormat reads the benchmark.json of LiveVQA: news photographs with one
// question about what is seen (level 1) and one that needs research (level 2).
var liveVQAFormat = Format{
	Name:      "livevqa",
	Doc:       "LiveVQA benchmark.json with its photographs in News_imgs: one question a row and level, options listed below it",
	Fields:    "id, img_path, level1_qa, level2_qa {question, options, Ground_Truth, Ground_Truth_List}; source, time",
	From:      "github.com/fumingyang2004/LIVEVQA: benchmark.json and the photographs",
	Split:     "test",
	Files:     map[string][]string{Questions: {"*.json"}},
	ImageDirs: []string{"News_imgs", "images"},
	Questions: func(in Input) iter.Seq2[Row[Sample], error] { return liveVQA(in, false) },
}

// liveVQAOpenFormat asks the same questions without their options, as search
// agents are evaluated.
var liveVQAOpenFormat = func() Format {
	f := liveVQAFormat
	f.Name = "livevqa-open"
	f.Doc = "LiveVQA benchmark.json as livevqa reads it, without the options: the answer is open"
	f.Questions = func(in Input) iter.Seq2[Row[Sample], error] { return liveVQA(in, true) }
	return f
}()

func liveVQA(in Input, open bool) iter.Seq2[Row[Sample], error] {
	return func(yield func(Row[Sample], error) bool) {
		for _, path := range in.Files {
			for item, err := range record.Items(path, "id") {
				if err != nil {
					yield(Row[Sample]{}, err)
					return
				}
				for _, row := range liveVQARows(path, item, open) {
					if !yield(row, nil) {
						return
					}
				}
			}
		}
	}
}

// liveVQALevels are the questions an entry may have.
var liveVQALevels = []string{"level1", "level2", "level3"}

func liveVQARows(path string, item record.Item, open bool) []Row[Sample] {
	one := func(id string, err error) []Row[Sample] {
		return []Row[Sample]{bad[Sample](path, item.N, id, err)}
	}
	if item.Err != nil {
		return one("", item.Err)
	}
	entry, err := record.ParseJSON(item.Raw)
	if err != nil {
		return one("", err)
	}
	id := strings.TrimSpace(entry.Get("id").String())
	if id == "" {
		return one("", errors.New("the entry has no id"))
	}
	var rows []Row[Sample]
	for _, level := range liveVQALevels {
		if qa := entry.Get(level + "_qa"); !qa.IsNull() {
			rows = append(rows, Row[Sample]{
				Path: path, N: item.N, ID: "livevqa_" + id + "_" + level,
				Load: func() (Sample, error) { return liveVQASample(entry, qa, level, open) },
			})
		}
	}
	if rows == nil {
		return one("livevqa_"+id, errors.New("the entry has no question: neither level1_qa nor level2_qa"))
	}
	return rows
}

// liveVQASample makes the question. With options its text is
//
//	<question>
//	<empty line>
//	A. <option>
//	B. <option>
//
// and the answers are the right option's text, the rest of Ground_Truth_List,
// the option as it is listed, and its letter. An open question has none of these.
func liveVQASample(entry, qa record.Value, level string, open bool) (Sample, error) {
	s := Sample{DataSource: "searchR1_LiveVQA", Category: level}
	s.Text = strings.TrimSpace(qa.Get("question").String())
	if s.Text == "" {
		return s, errors.New("the question is empty")
	}
	options, err := flatten(qa.Get("options"))
	if err != nil {
		return s, fmt.Errorf("options: %w", err)
	}
	list, err := flatten(qa.Get("Ground_Truth_List"))
	if err != nil {
		return s, fmt.Errorf("Ground_Truth_List: %w", err)
	}
	letter := strings.TrimSpace(qa.Get("Ground_Truth").String())
	if len(options) == 0 {
		s.Truth = unique(append([]string{letter}, list...))
	} else {
		option, text := chosen(options, letter)
		if option == "" {
			return s, fmt.Errorf("Ground_Truth %q names none of the options", letter)
		}
		s.Truth = []string{text}
		if open {
			s.Candidates = unique(list)
		} else {
			s.Text += "\n\n" + strings.Join(options, "\n")
			s.Candidates = unique(append(list, option, letter))
		}
	}
	name := qa.Get("img_path").String()
	if name == "" {
		name = entry.Get("img_path").String()
	}
	if name == "" {
		return s, errors.New("img_path is empty")
	}
	s.Images = []Picture{{Path: name}}
	for _, f := range []struct {
		from record.Value
		name string
	}{{qa, "question_type"}, {entry, "source"}, {entry, "time"}, {qa, "img_url"}} {
		if v := f.from.Get(f.name); !v.IsNull() {
			s.Meta = s.Meta.With(f.name, v)
		}
	}
	return s, nil
}

// chosen finds the option of a letter, and its text without the letter.
func chosen(options []string, letter string) (option, text string) {
	for _, o := range options {
		if rest, ok := strings.CutPrefix(o, letter); ok && letter != "" {
			if t := strings.TrimLeft(rest, ".):"); t != rest {
				return o, strings.TrimSpace(t)
			}
		}
	}
	return "", ""
}
