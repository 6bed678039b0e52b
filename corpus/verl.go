package corpus

import (
	"errors"
	"fmt"
	"iter"
	"regexp"
	"strings"
	"unicode"

	"searchloop/corpus/record"
)

// verlFormat reads the rows that verl trains on, as MM-DeepResearch,
// MMSearch-R1 (FVQA, InfoSeek) and Search-R1 store them, and our own.
var verlFormat = Format{
	Name:      "verl",
	Doc:       "verl rows of MM-DeepResearch, MMSearch-R1 and Search-R1: Parquet or JSON lines with prompt, images, reward_model",
	Fields:    "prompt, images, reward_model; data_id, data_source, ability, agent_name, extra_info, category",
	From:      "MM-DeepResearch: training_data_rl.parquet, MMSearch_test.parquet; huggingface.co/datasets/lmms-lab/FVQA: fvqa_*.parquet, mmsearch_r1_infoseek_sub_2k.parquet",
	Split:     "train",
	Files:     map[string][]string{Questions: tableFiles},
	ImageDirs: []string{"images"},
	Questions: func(in Input) iter.Seq2[Row[Sample], error] {
		return func(yield func(Row[Sample], error) bool) {
			for _, path := range in.Files {
				v := verl{path: path}
				v.source, v.split = folderSource(path)
				for row, err := range rowsOf(path, []string{"prompt", "question"}, []string{"reward_model", "golden_answers", "answers", "answer"}) {
					if err != nil {
						yield(Row[Sample]{}, err)
						return
					}
					out, err := v.row(row)
					if !yield(out, err) || err != nil {
						return
					}
				}
			}
		}
	},
}

// verl reads one file. prefix is the instruction that stands before the
// question in the first row's prompt, found once.
type verl struct {
	path   string
	source string // data_source and split of rows that say none
	split  string
	prefix string
	begun  bool
}

func (v *verl) row(row rowCells) (Row[Sample], error) {
	if row.Err != nil {
		return bad[Sample](v.path, row.N, "", row.Err), nil
	}
	if !v.begun {
		prompt, err := userText(row.Get)
		if err != nil {
			return Row[Sample]{}, err
		}
		v.begun = true
		bare, err := bareRows(row.Get)
		if err != nil {
			return Row[Sample]{}, err
		}
		if i := strings.Index(prompt, questionMark); i >= 0 && !bare {
			v.prefix = prompt[:i+len(questionMark)]
		}
	}
	id, err := v.id(row)
	if err != nil {
		return Row[Sample]{}, err
	}
	return Row[Sample]{Path: v.path, N: row.N, ID: id, Load: func() (Sample, error) { return v.sample(row.Get) }}, nil
}

// id takes, in this order: data_id; a textual extra_info.index (both are what
// lens caches are keyed by); the id column; a numeric extra_info.index; the
// file's name and the row. Before a bare number or a split's name and a number
// comes the source's name, because Search-R1 numbers each source from 0.
func (v *verl) id(row rowCells) (string, error) {
	id, err := row.Get.text("data_id")
	if id != "" || err != nil {
		return id, err
	}
	extra, err := row.Get("extra_info")
	if err != nil {
		return "", err
	}
	index := strings.TrimSpace(extra.Get("index").String())
	if extra.Get("index").Kind() == record.Text && index != "" {
		return index, nil
	}
	id, err = row.Get.text("id")
	if err != nil {
		return "", err
	}
	own, err := row.Get("image_ids")
	if err != nil || id != "" && own.Kind() == record.List {
		return id, err // a row of our own
	}
	source, err := row.Get.text("data_source")
	source = pick(source, v.source)
	switch {
	case err != nil:
		return "", err
	case numberedID.MatchString(id):
		return idPart(source) + id, nil
	case id != "":
		return id, nil
	case index != "":
		return idPart(source) + idPart(extra.Get("split").String()) + index, nil
	}
	return numbered(v.path, row.N), nil
}

// numberedID is the form of Search-R1's ids, which start again in every source.
var numberedID = regexp.MustCompile(`^((train|dev|val|test)_)?[0-9]+$`)

// bareRows says whether a file has the rows of MMSearch-R1, in whose prompts
// there is nothing but the question.
func bareRows(get cells) (bool, error) {
	id, err := get.text("data_id")
	if err != nil {
		return false, err
	}
	extra, err := get("extra_info")
	return id != "" && extra.IsNull(), err
}

// idPart makes a name usable before an underscore.
func idPart(s string) string {
	if s == "" {
		return ""
	}
	return strings.Map(func(r rune) rune {
		if r == '/' || unicode.IsSpace(r) {
			return '_'
		}
		return r
	}, s) + "_"
}

func (v *verl) sample(get cells) (Sample, error) {
	var s Sample
	var err error
	if s.Text, s.Shown, err = v.question(get); err != nil {
		return s, err
	}
	reward, err := get("reward_model")
	if err != nil {
		return s, err
	}
	truth := reward.Get("ground_truth")
	if truth.IsNull() {
		if truth, err = get.first("golden_answers", "answers", "answer", "ground_truth"); err != nil {
			return s, err
		}
	}
	if s.Truth, err = truthOf(truth); err != nil {
		return s, fmt.Errorf("ground truth: %w", err)
	}
	candidates := reward.Get("candidate_answers")
	if candidates.IsNull() {
		if candidates, err = get("candidate_answers"); err != nil {
			return s, err
		}
	}
	if s.Candidates, err = ParseCandidates(candidates); err != nil {
		return s, err
	}
	cell, err := get.first("images", "image")
	if err != nil {
		return s, err
	}
	if s.Images, err = picturesOf(cell); err != nil {
		return s, err
	}
	extra, err := get("extra_info")
	if err != nil {
		return s, err
	}
	s.Split = extra.Get("split").String()
	for _, f := range []struct {
		to     *string
		column string
	}{{&s.DataSource, "data_source"}, {&s.Ability, "ability"}, {&s.AgentName, "agent_name"}, {&s.Category, "category"}} {
		if *f.to, err = get.text(f.column); err != nil {
			return s, err
		}
	}
	if s.Split == "" {
		s.Split, err = get.text("split")
	}
	s.Split, s.DataSource = pick(s.Split, v.split), pick(s.DataSource, v.source)
	if err != nil {
		return s, err
	}
	meta, err := get.text("meta") // ours, a JSON object
	if m, perr := record.ParseJSON([]byte(meta)); meta != "" && perr == nil && m.Kind() == record.Struct {
		s.Meta = m
	}
	return s, err
}

// questionMark ends the instruction in the prompts of MM-DeepResearch and Search-R1.
const questionMark = "Question:"

// question finds the bare question: the question column, extra_info.question,
// or the user message without the instruction of the file's first row. It also
// says how many images the user message shows.
func (v *verl) question(get cells) (text string, shown int, err error) {
	user, err := userText(get)
	if err != nil {
		return "", 0, err
	}
	_, shown = bareText(user)
	if text, err = get.text("question"); err != nil {
		return "", 0, err
	}
	if text == "" {
		extra, err := get("extra_info")
		if err != nil {
			return "", 0, err
		}
		text = extra.Get("question").String()
	}
	if text == "" {
		text = user
		if v.prefix != "" {
			text = strings.TrimPrefix(text, v.prefix)
		}
	}
	text, more := bareText(text)
	return text, max(shown, more), nil
}

// userText is the text of the last user message of the prompt column.
func userText(get cells) (string, error) {
	prompt, err := get("prompt")
	if err != nil {
		return "", err
	}
	if prompt.Kind() != record.List {
		return prompt.String(), nil
	}
	text := ""
	for _, m := range prompt.Items() {
		if role := m.Get("role").String(); role != "user" && role != "" {
			continue
		}
		if content := m.Get("content"); content.Kind() == record.List {
			text = ""
			for _, part := range content.Items() {
				text += part.Get("text").String()
			}
		} else {
			text = content.String()
		}
	}
	return text, nil
}

// truthOf reads a ground truth: a text, a list of texts, or a struct with one
// of these as target; also such a struct or list written as JSON text.
func truthOf(v record.Value) ([]string, error) {
	if s := v.String(); v.Kind() == record.Text && (strings.HasPrefix(s, `{"target"`) || strings.HasPrefix(s, `["`)) {
		if j, err := record.ParseJSON([]byte(s)); err == nil {
			v = j
		}
	}
	if v.Kind() == record.Struct {
		v = v.Get("target")
		if v.Kind() == record.Struct {
			return nil, errors.New("target is an object")
		}
	}
	if v.Kind() == record.Bytes {
		if _, ok := v.AsText(); !ok {
			return nil, errors.New("it is not text")
		}
	}
	return flatten(v)
}
