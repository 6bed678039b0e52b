package record

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
)

// CSV goes through the rows of a comma-separated file (RFC 4180; by tabs when
// the name says .tsv) whose first row names the columns. A row with another
// number of cells or a stray quote is unusable alone. Empty cells are null. Two
// columns of one name are an error.
func CSV(path string) iter.Seq2[TableRow, error] {
	return func(yield func(TableRow, error) bool) {
		in, err := Open(path)
		if err != nil {
			yield(TableRow{}, err)
			return
		}
		defer in.Close()
		bounded := &boundedReader{r: in}
		r := csv.NewReader(bounded)
		r.ReuseRecord = true
		if strings.Contains(strings.ToLower(path), ".tsv") {
			r.Comma = '\t'
		}
		head, err := r.Read()
		if err == io.EOF {
			return
		}
		if err != nil {
			yield(TableRow{}, readError(path, err))
			return
		}
		columns := make([]string, len(head))
		for i, h := range head {
			columns[i] = strings.TrimSpace(strings.Clone(h))
			if columns[i] != "" && slices.Contains(columns[:i], columns[i]) {
				yield(TableRow{}, readError(path, fmt.Errorf("two columns are named %q", columns[i])))
				return
			}
		}
		for n := int64(1); ; n++ {
			bounded.read = 0
			cells, err := r.Read()
			if err == io.EOF {
				return
			}
			row := TableRow{N: n, Columns: columns}
			var syntax *csv.ParseError
			if err != nil && !errors.As(err, &syntax) {
				yield(TableRow{}, readError(path, err))
				return
			}
			if row.Err = err; err == nil {
				row.get = func(i int) (Value, error) {
					if cells[i] == "" {
						return Value{}, nil
					}
					return TextOf(strings.Clone(cells[i])), nil
				}
			}
			if !yield(row, nil) {
				return
			}
		}
	}
}

// boundedReader ends reading when one row, which a missing quote can make of the
// whole file, goes beyond MaxLine.
type boundedReader struct {
	r    io.Reader
	read int
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.read > MaxLine {
		return 0, errors.New("a row is longer than 64 MiB: a quotation mark may be missing")
	}
	n, err := b.r.Read(p)
	b.read += n
	return n, err
}
