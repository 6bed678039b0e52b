package table

import (
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// own is the file's schema under the names that Go structs have: the parts of a
// list are called list and element, whatever the writer called them (item,
// array_element, bag), and a column without type, in which everything is null, is
// called so that no column of a struct meets it. changed says whether it differs.
func own(s *parquet.Schema) (out *parquet.Schema, changed bool) {
	v := &view{}
	fields := v.fields(s, false)
	if !v.changed {
		return s, false
	}
	return parquet.NewSchema(s.Name(), &viewNode{s, fields}), true
}

// nullMark ends the name of a column without type.
const nullMark = "\x00null"

type view struct{ changed bool }

// viewNode is a node with other fields.
type viewNode struct {
	parquet.Node
	fields []parquet.Field
}

func (n *viewNode) Fields() []parquet.Field { return n.fields }

// viewField is a field with another name and other fields.
type viewField struct {
	parquet.Field
	name   string
	fields []parquet.Field
}

func (f *viewField) Name() string            { return f.name }
func (f *viewField) Fields() []parquet.Field { return f.fields }

// fields renames what is below node; list says that node is the repeated group of a list.
func (v *view) fields(node parquet.Node, list bool) []parquet.Field {
	if node.Leaf() {
		return nil
	}
	var out []parquet.Field
	isList := standardList(node)
	for _, f := range node.Fields() {
		name := f.Name()
		switch {
		case isList:
			name = "list"
		case list:
			name = "element"
		case f.Leaf() && untyped(f):
			name += nullMark
		}
		if name != f.Name() {
			v.changed = true
		}
		out = append(out, &viewField{f, name, v.fields(f, isList)})
	}
	return out
}

// standardList says whether node is a list of the usual three levels.
func standardList(node parquet.Node) bool {
	if node.Leaf() || len(node.Fields()) != 1 {
		return false
	}
	if lt := node.Type().LogicalType(); lt == nil {
		return false
	} else if _, ok := lt.Value.(*format.ListType); !ok {
		return false
	}
	inner := node.Fields()[0]
	return inner.Repeated() && !inner.Leaf() && len(inner.Fields()) == 1
}

func untyped(f parquet.Field) bool {
	lt := f.Type().LogicalType()
	if lt == nil {
		return false
	}
	_, ok := lt.Value.(*format.NullType)
	return ok
}
