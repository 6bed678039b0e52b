package corpus

import (
	"errors"
	"fmt"
	"strings"

	"searchloop/corpus/record"
)

// ParseCandidates reads a candidate_answers cell in any form that occurs in
// published files: null, a list column, or text that is a JSON array, Python's
// repr of a list, tuple or set, numpy's str or repr of an array (whose items
// have no commas between them), or one bare answer. Nulls are dropped, numbers
// kept as they are written, nested lists flattened, duplicates and empty texts
// removed; the order stays. An array that numpy shortened with "..." is an
// error, because answers are missing from it.
func ParseCandidates(v record.Value) ([]string, error) {
	switch v.Kind() {
	case record.Null:
		return nil, nil
	case record.List:
		return flatten(v)
	case record.Struct:
		return nil, errors.New("candidate answers are an object, not a list")
	}
	s, ok := v.AsText()
	if !ok {
		return nil, errors.New("candidate answers are bytes, not text")
	}
	s = strings.TrimSpace(s)
	switch s {
	case "", "None", "null", "nan", "NaN":
		return nil, nil
	}
	if j, err := record.ParseJSON([]byte(s)); err == nil && j.Kind() != record.Null {
		if j.Kind() == record.Struct {
			return nil, errors.New("candidate answers are an object, not a list")
		}
		return flatten(j)
	}
	list, err := parseRepr(s)
	if err == nil {
		return unique(list), nil
	}
	// Only a bracket says for sure that a list was meant: an answer may well
	// begin with a quotation mark or a parenthesis.
	if s[0] == '[' || strings.HasPrefix(s, "array(") {
		return nil, fmt.Errorf("candidate answers are neither JSON nor a Python or numpy list: %w", err)
	}
	return []string{s}, nil
}

// candidatesJSON writes candidates the one way in which our files hold them.
func candidatesJSON(list []string) string {
	vs := make([]record.Value, len(list))
	for i, s := range list {
		vs[i] = record.TextOf(s)
	}
	return string(record.ListOf(vs).AppendJSON(nil))
}

// flatten collects the texts of a value and of the lists in it.
func flatten(v record.Value) ([]string, error) {
	var out []string
	var walk func(record.Value) error
	walk = func(v record.Value) error {
		switch v.Kind() {
		case record.Null:
		case record.List:
			for _, x := range v.Items() {
				if err := walk(x); err != nil {
					return err
				}
			}
		default:
			s, ok := v.AsText()
			if !ok {
				return fmt.Errorf("%s stands where an answer is expected", v.Kind())
			}
			out = append(out, s)
		}
		return nil
	}
	if err := walk(v); err != nil {
		return nil, err
	}
	return unique(out), nil
}

// unique trims texts and drops empty and repeated ones, keeping the order.
func unique(list []string) []string {
	var out []string
	seen := make(map[string]bool, len(list))
	for _, s := range list {
		if s = strings.TrimSpace(s); s != "" && !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}
