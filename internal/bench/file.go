package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
)

// Write publishes rows as a JSON list.
func Write(path string, rows []Row) error {
	text, err := json.MarshalIndent(rows, "", "  ")
	if err != nil { // a figure that is no number
		return fail.Wrap(fail.Bug, "write figures", path, err)
	}
	return atomicfile.WriteFile(path, append(text, '\n'))
}

// Read is the rows of a file; their ratios are worked out anew.
func Read(path string) ([]Row, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, "read figures", path, err)
	}
	var rows []Row
	if err := json.Unmarshal(text, &rows); err != nil {
		return nil, fail.Wrap(fail.BadInput, "read figures", path, err)
	}
	return rows, nil
}

// Merge is the rows of several files, in their order. A figure that two files
// claim is an error: one of them would be believed by chance.
func Merge(paths []string) ([]Row, error) {
	type figure struct{ name, unit, peer string }
	from := map[figure]string{}
	var all []Row
	for _, path := range paths {
		rows, err := Read(path)
		if err != nil {
			return nil, err
		}
		for i, r := range rows {
			f := figure{r.Name, r.Unit, r.PeerName}
			if other, twice := from[f]; twice {
				e := fail.New(fail.BadInput, "merge figures", path, "%q in %s against %q is in %s already", r.Name, r.Unit, r.PeerName, other)
				e.Row = int64(i + 1)
				return nil, e
			}
			from[f] = path
		}
		all = append(all, rows...)
	}
	return all, nil
}

// Table prints rows in columns; a ratio below its bound is marked.
func Table(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "name\tours\tunit\tpeer\tpeer's name\tratio\tbound\tnote")
	for _, r := range rows {
		ratio := number(r.Ratio())
		if r.Below() {
			ratio += " BELOW"
		}
		line := []string{r.Name, number(r.Ours), r.Unit, number(r.Peer), r.PeerName, ratio, number(r.Bound), r.Note}
		fmt.Fprintln(t, strings.Join(line, "\t"))
	}
	return t.Flush()
}

// number is a figure in four digits, or a dash for none.
func number(v float64) string {
	switch {
	case v == 0:
		return "-"
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.4g", v)
}
