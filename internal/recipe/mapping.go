package recipe

import "fmt"

// Mapping says which columns of a table make a question, so that a data set
// needs no code. A column is a name, or names joined by dots that lead into
// structs (extra_info.index). Where several are given the first that is not null
// counts, but for Images and Meta, which take all of them.
type Mapping struct {
	ID         []string `yaml:"id,omitempty"`
	IDPrefix   string   `yaml:"id_prefix,omitempty"`
	Question   []string `yaml:"question"`
	Options    []string `yaml:"options,omitempty"`   // of a multiple choice: listed below the question
	Answers    []string `yaml:"answers"`             // a text, a list, or such a list as text; the letter of an option when there are options
	AnswerIs   string   `yaml:"answer_is,omitempty"` // index: with options, the answer is the place of one, counted from 0
	Candidates []string `yaml:"candidates,omitempty"`
	Images     []string `yaml:"images,omitempty"`
	Split      []string `yaml:"split,omitempty"`
	Category   []string `yaml:"category,omitempty"`
	DataSource []string `yaml:"data_source,omitempty"`
	Ability    []string `yaml:"ability,omitempty"`
	Meta       []string `yaml:"meta,omitempty"` // kept as they are

	// Keep takes only the rows whose column has one of the values; the others are
	// none of the data set and not counted.
	Keep map[string][]string `yaml:"keep,omitempty"`

	// DataSourceIs and SplitIs are for rows that say none.
	DataSourceIs string `yaml:"data_source_is,omitempty"`
	SplitIs      string `yaml:"split_is,omitempty"`

	// For the list of formats; no row depends on them.
	Doc  string `yaml:"doc,omitempty" json:"-"`  // whose questions these are
	From string `yaml:"from,omitempty" json:"-"` // where people get the files
}

// Check refuses a mapping that makes no question.
func (m *Mapping) Check() error {
	switch {
	case len(m.Question) == 0:
		return fmt.Errorf("the mapping names no column of the question")
	case len(m.Answers) == 0:
		return fmt.Errorf("the mapping names no column of the answers")
	case m.AnswerIs != "" && m.AnswerIs != "index":
		return fmt.Errorf("answer_is is %q, want index or nothing", m.AnswerIs)
	case m.AnswerIs != "" && len(m.Options) == 0:
		return fmt.Errorf("answer_is needs options")
	}
	return nil
}
