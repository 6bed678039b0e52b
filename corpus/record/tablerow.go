package record

// TableRow is one row of a file whose columns are the same for all rows. It is
// valid until the next one. Err is set when this row alone is unusable.
type TableRow struct {
	N       int64 // 1-based
	Columns []string
	Err     error
	get     func(column int) (Value, error)
}

// Get gives a column of the row; null when there is no such column. The error
// says what is wrong with the file, not with the row alone.
func (r TableRow) Get(column string) (Value, error) {
	for i, c := range r.Columns {
		if c == column {
			return r.get(i)
		}
	}
	return Value{}, nil
}
