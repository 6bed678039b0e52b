package corpus

import (
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"

	"searchloop/internal/fail"
)

// A verlColumn is a node of a schema as pandas and pyarrow make it: everything
// is optional, fields keep their order, lists have the levels list and element,
// and a column in which all is null has the NULL type.
type verlColumn struct {
	name   string
	kind   verlKind
	fields []verlColumn // of a struct; the one element of a list
}

type verlKind int

const (
	verlText verlKind = iota
	verlBytes
	verlBool
	verlInt
	verlNull
	verlStruct
	verlList
)

func texts(names ...string) []verlColumn {
	var out []verlColumn
	for _, n := range names {
		out = append(out, verlColumn{name: n})
	}
	return out
}

func structOf(name string, fields ...verlColumn) verlColumn {
	return verlColumn{name, verlStruct, fields}
}

func listOf(name string, element verlColumn) verlColumn {
	element.name = "element"
	return verlColumn{name, verlList, []verlColumn{element}}
}

// ordered is a group whose fields keep their order, unlike parquet.Group's.
type ordered struct {
	parquet.Group
	order []verlColumn
}

func (o *ordered) Fields() []parquet.Field {
	fields := o.Group.Fields()
	slices.SortFunc(fields, func(a, b parquet.Field) int { return o.at(a.Name()) - o.at(b.Name()) })
	return fields
}

func (o *ordered) at(name string) int {
	return slices.IndexFunc(o.order, func(c verlColumn) bool { return c.name == name })
}

func groupOf(columns []verlColumn) parquet.Node {
	g := &ordered{Group: parquet.Group{}, order: columns}
	for _, c := range columns {
		g.Group[c.name] = parquet.Optional(c.node())
	}
	return g
}

func (c verlColumn) node() parquet.Node {
	switch c.kind {
	case verlBytes:
		return parquet.Leaf(parquet.ByteArrayType)
	case verlBool:
		return parquet.Leaf(parquet.BooleanType)
	case verlInt:
		return parquet.Leaf(parquet.Int64Type)
	case verlNull:
		return parquet.Leaf(parquet.NullType)
	case verlStruct:
		return groupOf(c.fields)
	case verlList:
		return parquet.List(parquet.Optional(c.fields[0].node()))
	}
	return parquet.String()
}

// verlRow cuts one row into the values of its leaves (Dremel's levels).
type verlRow struct {
	row    parquet.Row
	column int
	bytes  int64
}

// add appends v, which is nil, string, []byte, bool, int64, or []any for the
// fields of a struct and the elements of a list. def is the level at which the
// parent is present.
func (r *verlRow) add(c verlColumn, v any, def, rep, depth int) {
	if v == nil {
		r.missing(c, def, rep)
		return
	}
	def++
	switch c.kind {
	case verlStruct:
		for i, f := range c.fields {
			r.add(f, v.([]any)[i], def, rep, depth)
		}
	case verlList:
		items := v.([]any)
		if len(items) == 0 {
			r.missing(c.fields[0], def, rep)
			return
		}
		first := r.column
		for i, x := range items {
			r.column = first
			if i > 0 {
				rep = depth + 1
			}
			r.add(c.fields[0], x, def+1, rep, depth+1)
		}
	default:
		r.leaf(v, def, rep)
	}
}

func (r *verlRow) missing(c verlColumn, def, rep int) {
	if len(c.fields) == 0 {
		r.leaf(nil, def, rep)
	}
	for _, f := range c.fields {
		r.missing(f, def, rep)
	}
}

func (r *verlRow) leaf(v any, def, rep int) {
	var x parquet.Value
	switch v := v.(type) {
	case string:
		x, r.bytes = parquet.ByteArrayValue([]byte(v)), r.bytes+int64(len(v))
	case []byte:
		x, r.bytes = parquet.ByteArrayValue(v), r.bytes+int64(len(v))
	case bool:
		x = parquet.BooleanValue(v)
	case int64:
		x = parquet.Int64Value(v)
	}
	r.row = append(r.row, x.Level(rep, def, r.column))
	r.column++
}

// verlWriter writes questions as rows of another system's schema.
type verlWriter struct {
	form  *verlForm
	w     *parquet.GenericWriter[any]
	n     int64
	bytes int64
}

// verlGroupBytes ends a row group: it bounds the memory of writer and reader.
const verlGroupBytes = 64 << 20

// newVerlWriter begins a part whose first row is number first of the source.
func newVerlWriter(form *verlForm, w io.Writer, first int64) *verlWriter {
	schema := parquet.NewSchema("schema", groupOf(form.columns))
	return &verlWriter{form: form, n: first, w: parquet.NewGenericWriter[any](w, schema, parquet.Compression(&parquet.Snappy),
		parquet.CreatedBy("searchloop", "1", ""), parquet.DataPageStatistics(false), skipBounds(schema))}
}

// skipBounds leaves out the least and greatest value of pages, which would write
// every image several times.
func skipBounds(schema *parquet.Schema) parquet.WriterOption {
	var all []parquet.WriterOption
	for _, path := range schema.Columns() {
		all = append(all, parquet.SkipPageBounds(path...))
	}
	return writerOptions(all)
}

type writerOptions []parquet.WriterOption

func (o writerOptions) ConfigureWriter(c *parquet.WriterConfig) {
	for _, x := range o {
		x.ConfigureWriter(c)
	}
}

func (v *verlWriter) Write(questions ...Question) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fail.New(fail.Bug, "write Parquet", "", "%v", fmt.Sprint(p))
		}
	}()
	for _, q := range questions {
		r := verlRow{}
		for i, x := range v.form.row(q, v.n) {
			r.add(v.form.columns[i], x, 0, 0, 0)
		}
		// The elements of a list of structs were cut one after the other.
		slices.SortStableFunc(r.row, func(a, b parquet.Value) int { return a.Column() - b.Column() })
		if _, err := v.w.WriteRows([]parquet.Row{r.row}); err != nil {
			return fail.Wrap(fail.Disk, "write Parquet", "", err)
		}
		v.n++
		if v.bytes += r.bytes; v.bytes >= verlGroupBytes {
			if err := v.w.Flush(); err != nil {
				return fail.Wrap(fail.Disk, "write Parquet", "", err)
			}
			v.bytes = 0
		}
	}
	return nil
}

func (v *verlWriter) Close() error { return fail.Wrap(fail.Disk, "write Parquet", "", v.w.Close()) }
