package record

import (
	"math"
	"strconv"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// node is one level of a Parquet schema, with what is needed to put a row's
// values together again: the definition level at which it is present and the
// repetition level of its items (Melnik et al., Dremel, VLDB 2010).
type node struct {
	name     string
	optional bool
	repeated bool
	def, rep int
	leaves   []*leaf // of this node and below
	names    []string
	children []*node
	list     *node // the items, when this is a LIST group
	pairs    bool  // a MAP group
	text     bool
	null     bool
	unsigned bool
}

func nodeOf(c *parquet.Column, def, rep int) *node {
	n := &node{name: c.Name(), optional: c.Optional(), repeated: c.Repeated()}
	if n.optional || n.repeated {
		def++
	}
	if n.repeated {
		rep++
	}
	n.def, n.rep = def, rep
	var logical format.LogicalTypeValue
	if t := c.Type().LogicalType(); t != nil {
		logical = t.Value
	}
	if c.Leaf() {
		n.leaves = []*leaf{{column: c.Index()}}
		switch t := logical.(type) {
		case *format.StringType, *format.EnumType, *format.JsonType:
			n.text = true
		case *format.NullType:
			n.null = true
		case *format.IntType:
			n.unsigned = !t.IsSigned
		}
		return n
	}
	for _, child := range c.Columns() {
		m := nodeOf(child, def, rep)
		n.children = append(n.children, m)
		n.names = append(n.names, m.name)
		n.leaves = append(n.leaves, m.leaves...)
	}
	if len(n.children) != 1 || !n.children[0].repeated {
		return n
	}
	switch logical.(type) {
	case *format.MapType:
		n.pairs = true
	case *format.ListType:
		// Three levels: the repeated group only wraps the item. Two levels,
		// written by old programs: the repeated node is the item.
		n.list = n.children[0]
		if item := n.list; len(item.children) == 1 && item.name != "array" && item.name != n.name+"_tuple" {
			item.list = item.children[0]
		}
	}
	return n
}

// value assembles the node from the rows its leaves hold. It may be called once
// for every row.
func (n *node) value() Value {
	switch {
	case len(n.leaves) == 0: // a group without fields
		return Value{}
	case n.repeated:
		return ListOf(n.items())
	case n.optional && n.absent():
		return Value{}
	}
	return n.body()
}

func (n *node) items() []Value {
	if n.absent() {
		return nil
	}
	var out []Value
	for {
		out = append(out, n.body())
		if first := n.leaves[0]; first.pos >= len(first.row) || first.row[first.pos].RepetitionLevel() != n.rep {
			return out
		}
	}
}

// absent takes the placeholders of a missing node from its leaves.
func (n *node) absent() bool {
	if first := n.leaves[0]; first.row[first.pos].DefinitionLevel() >= n.def {
		return false
	}
	for _, l := range n.leaves {
		l.pos++
	}
	return true
}

func (n *node) body() Value {
	switch {
	case n.list != nil && n.repeated: // the wrapper of a list's item
		return n.list.value()
	case n.list != nil:
		return ListOf(n.list.items())
	case n.pairs:
		return keyed(n.children[0].items())
	case n.children == nil:
		l := n.leaves[0]
		v := l.row[l.pos]
		l.pos++
		return n.scalar(v)
	}
	out := Value{kind: Struct, names: n.names, list: make([]Value, len(n.children))}
	for i, child := range n.children {
		out.list[i] = child.value()
	}
	return out
}

// keyed makes a struct of a map's pairs.
func keyed(pairs []Value) Value {
	out := Value{kind: Struct}
	for _, p := range pairs {
		if len(p.list) == 2 {
			out.names, out.list = append(out.names, p.list[0].String()), append(out.list, p.list[1])
		}
	}
	return out
}

func (n *node) scalar(v parquet.Value) Value {
	if n.null || v.IsNull() {
		return Value{}
	}
	switch v.Kind() {
	case parquet.Boolean:
		return boolOf(v.Boolean())
	case parquet.Int32:
		if n.unsigned {
			return intOf(int64(uint32(v.Int32())))
		}
		return intOf(int64(v.Int32()))
	case parquet.Int64:
		if n.unsigned {
			return numberOf(strconv.FormatUint(uint64(v.Int64()), 10))
		}
		return intOf(v.Int64())
	case parquet.Float:
		return floatOf(float64(v.Float()), 32)
	case parquet.Double:
		return floatOf(v.Double(), 64)
	case parquet.ByteArray, parquet.FixedLenByteArray:
		if n.text {
			return TextOf(string(v.ByteArray()))
		}
		return BytesOf(v.ByteArray())
	}
	return TextOf(v.String())
}

// floatOf gives whole numbers without a fraction: pandas turns a column of
// integers into floats when one is missing. NaN is pandas' null.
func floatOf(f float64, bits int) Value {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return Value{}
	}
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return intOf(int64(f))
	}
	return numberOf(strconv.FormatFloat(f, 'g', -1, bits))
}
