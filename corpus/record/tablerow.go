package record

// TableRow is one row of a file whose columns are the same for all rows. It is
// valid until the next one. Err is set when this row alone is unusable.
type TableRow struct {
	N       int64 // 1-based
	Columns []string
	Err     error
	get     func(column int) Value
}

// Get gives a column of the row; null when there is no such column.
func (r TableRow) Get(column string) Value {
	for i, c := range r.Columns {
		if c == column {
			return r.get(i)
		}
	}
	return Value{}
}
