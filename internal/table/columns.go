package table

import (
	"strings"

	"github.com/parquet-go/parquet-go"

	"searchloop/internal/fail"
)

// checkColumns compares the file's columns with those of T.
func checkColumns[T any](f *file) error {
	return guard(fail.BadInput, "read table", f.path, func() error {
		want := parquet.SchemaOf(new(T))
		have := f.Schema()
		for _, path := range want.Columns() {
			name := strings.Join(path, ".")
			w, _ := want.Lookup(path...)
			h, ok := have.Lookup(path...)
			if !ok {
				if optional(want, path) {
					continue
				}
				return fail.WithHint(fail.New(fail.BadInput, "read table", f.path, "no column %q", name), "the file has "+columnList(have))
			}
			if wk, hk := w.Node.Type().Kind(), h.Node.Type().Kind(); !convertible(hk, wk) {
				return fail.New(fail.BadInput, "read table", f.path, "column %q is %v, want %v", name, hk, wk)
			}
		}
		return nil
	})
}

// optional says whether some node on the way to the leaf may be null.
func optional(node parquet.Node, path []string) bool {
	for _, name := range path {
		var next parquet.Node
		for _, f := range node.Fields() {
			if f.Name() == name {
				next = f
			}
		}
		if next == nil {
			return false
		}
		if next.Optional() {
			return true
		}
		node = next
	}
	return false
}

func convertible(from, to parquet.Kind) bool {
	return from == to || from == parquet.Int32 && to == parquet.Int64 || from == parquet.Float && to == parquet.Double
}

// columnList names at most twenty columns, structs and lists by their first name.
func columnList(s *parquet.Schema) string {
	var names []string
	for _, path := range s.Columns() {
		name := strings.TrimSuffix(path[0], nullMark)
		if n := len(names); n > 0 && names[n-1] == name {
			continue
		}
		if len(names) == 20 {
			names = append(names, "…")
			break
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}
