package corpus

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"searchloop/corpus/record"
	"searchloop/internal/fail"
	"searchloop/internal/recipe"
)

// mapping makes questions of the rows of tables.
type mapping struct {
	recipe.Mapping
	decode func(column, text string) (string, error) // undoes what the source did to texts
	name   func(id string) string                    // makes an id of what the ID column holds
}

// mapFormat is the format whose mapping comes from flags or a file.
const mapFormat = "map"

// mappingFields names the parts of a mapping as flags and files do.
func mappingFields(m *recipe.Mapping) map[string]*[]string {
	return map[string]*[]string{
		"id": &m.ID, "question": &m.Question, "options": &m.Options, "answers": &m.Answers, "candidates": &m.Candidates, "images": &m.Images,
		"split": &m.Split, "category": &m.Category, "data_source": &m.DataSource, "ability": &m.Ability, "meta": &m.Meta,
	}
}

// loadMapping reads a mapping from a YAML file, "" being an empty one, and lays
// settings of the form field=column,column and keep rules of the form
// column=value,value over it.
func loadMapping(file string, set, keep []string) (recipe.Mapping, error) {
	var m recipe.Mapping
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return m, fail.Wrap(fail.BadInput, "read mapping", file, err)
		}
		// A benchmark's file holds one among other things.
		var in struct{ Mapping map[string]any }
		if yaml.Unmarshal(text, &in) == nil && in.Mapping != nil {
			if text, err = yaml.Marshal(in.Mapping); err != nil {
				return m, fail.Wrap(fail.BadInput, "read mapping", file, err)
			}
		}
		if err := yaml.UnmarshalWithOptions(text, &m, yaml.Strict()); err != nil {
			return m, fail.Wrap(fail.BadInput, "read mapping", file, err)
		}
	}
	fields := mappingFields(&m)
	for _, s := range set {
		name, columns, _ := strings.Cut(s, "=")
		to := fields[name]
		if to == nil || columns == "" {
			e := fail.New(fail.Usage, "prep", "", "--map %s is not of the form FIELD=COLUMN,COLUMN", s)
			if columns != "" {
				e = fail.New(fail.Usage, "prep", "", "--map %s: there is no field %q", s, name)
			}
			e.Hint = "fields are id, question, options, answers, candidates, images, split, category, data_source, ability, meta"
			return m, e
		}
		*to = strings.Split(columns, ",")
	}
	for _, s := range keep {
		column, values, ok := strings.Cut(s, "=")
		if !ok || column == "" {
			return m, fail.New(fail.Usage, "prep", "", "--keep %s is not of the form COLUMN=VALUE,VALUE", s)
		}
		if m.Keep == nil {
			m.Keep = map[string][]string{}
		}
		m.Keep[column] = strings.Split(values, ",")
	}
	if err := m.Check(); err != nil {
		e := &fail.Error{Kind: fail.Usage, Op: "prep", Path: file, Err: err}
		e.Hint = "give --map question=COLUMN --map answers=COLUMN, or a file with --map-file"
		return m, e
	}
	return m, nil
}

// rows reads tables (Parquet, Arrow, CSV, JSON) as the mapping says.
func (m mapping) rows(in Input) iter.Seq2[Row[Sample], error] {
	return func(yield func(Row[Sample], error) bool) {
		total := int64(0)
		for _, path := range in.Files {
			for row, err := range rowsOf(path, roots(m.Question), roots(m.Answers)) {
				if err != nil {
					yield(Row[Sample]{}, err)
					return
				}
				total++
				if row.Err != nil {
					if !yield(bad[Sample](path, row.N, "", row.Err), nil) {
						return
					}
					continue
				}
				keep, err := m.keeps(row.Get)
				if err != nil {
					yield(Row[Sample]{}, err)
					return
				}
				if !keep {
					continue
				}
				id, err := row.Get.text(m.ID...)
				switch {
				case err != nil:
					yield(Row[Sample]{}, err)
					return
				case id != "" && m.name != nil:
					id = m.IDPrefix + m.name(id)
				case id != "":
					id = m.IDPrefix + id
				case m.IDPrefix != "":
					id = fmt.Sprint(m.IDPrefix, total-1)
				default:
					id = numbered(path, row.N)
				}
				if !yield(Row[Sample]{Path: path, N: row.N, ID: id, Load: func() (Sample, error) { return m.sample(row.Get) }}, nil) {
					return
				}
			}
		}
	}
}

// roots are the top-level columns of dotted ones, and the dotted ones
// themselves, because a column's name may hold a dot.
func roots(columns []string) []string {
	var out []string
	for _, c := range columns {
		root, _, _ := strings.Cut(c, ".")
		out = append(out, c, root)
	}
	return out
}

func (m mapping) keeps(get cells) (bool, error) {
	for column, values := range m.Keep {
		v, err := get.text(column)
		if err != nil || !slices.Contains(values, v) {
			return false, err
		}
	}
	return true, nil
}

func (m mapping) sample(get cells) (Sample, error) {
	s := Sample{}
	text, err := m.text(get, m.Question)
	if err != nil {
		return s, err
	}
	s.Text, s.Shown = bareText(text)
	if s.Truth, err = m.answers(get, m.Answers); err != nil {
		return s, err
	}
	if s.Candidates, err = m.answers(get, m.Candidates); err != nil {
		return s, err
	}
	if err := m.choose(get, &s); err != nil {
		return s, err
	}
	for _, c := range m.Images {
		cell, err := get.first(c)
		if err != nil {
			return s, err
		}
		pics, err := picturesOf(cell)
		if err != nil {
			return s, fmt.Errorf("%s: %w", c, err)
		}
		s.Images = append(s.Images, pics...)
	}
	for _, f := range []struct {
		to      *string
		columns []string
	}{{&s.Split, m.Split}, {&s.Category, m.Category}, {&s.DataSource, m.DataSource}, {&s.Ability, m.Ability}} {
		if *f.to, err = m.text(get, f.columns); err != nil {
			return s, err
		}
	}
	s.DataSource, s.Split = pick(s.DataSource, m.DataSourceIs), pick(s.Split, m.SplitIs)
	for _, c := range m.Meta {
		v, err := get.first(c)
		if err != nil {
			return s, err
		}
		if v.IsNull() {
			continue
		}
		if m.decode != nil && v.Kind() == record.Text {
			t, err := m.decode(c, v.String())
			if err != nil {
				return s, fmt.Errorf("%s: %w", c, err)
			}
			v = record.TextOf(t)
		}
		s.Meta = s.Meta.With(c, v)
	}
	return s, nil
}

// text is the first of the columns that is not null, decoded.
func (m mapping) text(get cells, columns []string) (string, error) {
	for _, c := range columns {
		v, err := get.first(c)
		if err != nil {
			return "", err
		}
		if v.IsNull() {
			continue
		}
		t, ok := v.AsText()
		if !ok {
			return "", fmt.Errorf("%s is %s, not text", c, v.Kind())
		}
		if m.decode != nil {
			if t, err = m.decode(c, t); err != nil {
				return "", fmt.Errorf("%s: %w", c, err)
			}
		}
		return strings.TrimSpace(t), nil
	}
	return "", nil
}

func (m mapping) answers(get cells, columns []string) ([]string, error) {
	for _, c := range columns {
		v, err := get.first(c)
		if err != nil {
			return nil, err
		}
		if v.IsNull() {
			continue
		}
		var list []string
		if v.Kind() == record.Text && !listText(v.String()) {
			list = []string{v.String()}
		} else if v.Kind() == record.Struct {
			list, err = truthOf(v)
		} else {
			list, err = ParseCandidates(v)
		}
		for i := range list {
			if m.decode != nil && err == nil {
				list[i], err = m.decode(c, list[i])
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c, err)
		}
		return unique(list), nil
	}
	return nil, nil
}

// listText says whether a text is meant to be a list. An answer in brackets
// without quotation marks is an answer.
func listText(s string) bool {
	s = strings.TrimSpace(s)
	return s == "[]" || strings.HasPrefix(s, "[") && strings.ContainsAny(s, `'"`)
}

// choose lists the options below the question, lettered where they are not, and
// takes the text of the right one for the answer, its letter for a candidate.
func (m mapping) choose(get cells, s *Sample) error {
	options, err := m.answers(get, m.Options)
	if err != nil || len(options) == 0 {
		return err
	}
	if len(options) > 26 {
		return fmt.Errorf("%d options", len(options))
	}
	if len(s.Truth) == 0 {
		return errors.New("the answer is empty")
	}
	if m.AnswerIs == "index" {
		i, err := strconv.Atoi(s.Truth[0])
		if err != nil || i < 0 || i >= len(options) {
			return fmt.Errorf("the answer %q is no place among %d options", s.Truth[0], len(options))
		}
		s.Truth[0] = string(rune('A' + i))
	}
	s.Text += "\n"
	var right []string
	for i, o := range options {
		letter := string(rune('A' + i))
		line := o
		if _, text := chosen([]string{o}, letter); text == "" {
			line = letter + ". " + o
		}
		s.Text += "\n" + line
		if _, text := chosen([]string{line}, letter); s.Truth[0] == letter || s.Truth[0] == o || s.Truth[0] == text {
			right = []string{text, line, letter}
		}
	}
	if right == nil {
		return fmt.Errorf("the answer %q names none of the options", s.Truth[0])
	}
	s.Candidates = unique(append(append(s.Truth[1:], s.Candidates...), right...))
	s.Truth = right[:1]
	s.Candidates = slices.DeleteFunc(s.Candidates, func(c string) bool { return c == right[0] })
	return nil
}
