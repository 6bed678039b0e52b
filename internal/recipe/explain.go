package recipe

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

const keysPage = "the keys are listed in docs/recipes.md"

// explain puts a YAML error into one line for people: the line of the text it
// stands in (0: unknown), what is wrong, and what may be meant.
func explain(err error) (line int64, hint string, cause error) {
	var y yaml.Error
	if !errors.As(err, &y) {
		return 0, keysPage, err
	}
	if t := y.GetToken(); t != nil && t.Position != nil {
		line = int64(t.Position.Line)
	}
	text, _, _ := strings.Cut(y.GetMessage(), "\n")
	hint = keysPage
	var unknown *yaml.UnknownFieldError
	var kind *yaml.TypeError
	switch {
	case errors.As(err, &unknown):
		_, key, _ := strings.Cut(text, `"`)
		if near := nearest(strings.TrimSuffix(key, `"`)); near != "" {
			hint = "did you mean " + near + "? " + keysPage
		}
		text = strings.Replace(text, "unknown field", "unknown key", 1)
	case errors.As(err, &kind) && kind.Token != nil:
		key := ""
		if p := kind.Token.Prev; p != nil && p.Prev != nil { // the token before the value is its colon
			key = p.Prev.Value + " "
		}
		text = fmt.Sprintf("%sis %q, want %s", key, kind.Token.Value, want(kind.DstType))
	}
	return line, hint, errors.New(text)
}

// want names a Go type as a recipe's author knows it.
func want(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a text"
	case reflect.Slice:
		return "a list"
	}
	return "a section"
}

// nearest is the key of a recipe that key is most probably a slip of, or "".
func nearest(key string) string {
	best, least := "", 1+len(key)/3
	for _, k := range keys(reflect.TypeFor[Recipe](), nil) {
		if d := distance(key, k); d < least || d == least && best == "" {
			best, least = k, d
		}
	}
	return best
}

// keys lists the YAML names of all fields below t.
func keys(t reflect.Type, list []string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return list
	}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if name != "" && name != "-" && !slices.Contains(list, name) {
			list = append(list, name)
		}
		list = keys(t.Field(i).Type, list)
	}
	return list
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
