package table

import (
	"fmt"
	"testing"
)

type foreign struct {
	ID    string   `parquet:"id"`
	N     int64    `parquet:"n"`
	X     float64  `parquet:"x"`
	Tags  []string `parquet:"tags,list"`
	Turns []turn   `parquet:"turns,list"`
	Note  *string  `parquet:"note,optional"`
	Void  *string  `parquet:"void,optional"`
}

// Files that pyarrow wrote, with every naming of list elements, page version and
// kind of null. testdata/gen.py made them.
func TestPyarrowFiles(t *testing.T) {
	for _, name := range []string{"pyarrow", "pyarrow-item", "pyarrow-v2"} {
		i := 0
		for r, err := range Read[foreign]("testdata/" + name + ".parquet") {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			want := fmt.Sprintf("id%d %d %g", i, i, float64(i)/2)
			if got := fmt.Sprintf("%s %d %g", r.ID, r.N, r.X); got != want {
				t.Fatalf("%s row %d: %s, want %s", name, i, got, want)
			}
			tags := i % 3
			if i == 1 {
				tags = 0
			}
			if len(r.Tags) != tags || tags == 2 && r.Tags[1] != "täg1" {
				t.Errorf("%s row %d: tags %q", name, i, r.Tags)
			}
			if len(r.Turns) != 1 || r.Turns[0].Text != fmt.Sprint("t", i) || len(r.Turns[0].Images) != i%2 {
				t.Errorf("%s row %d: turns %+v", name, i, r.Turns)
			}
			if (r.Note != nil) != (i%2 == 0) || r.Note != nil && *r.Note != fmt.Sprint("note", i) {
				t.Errorf("%s row %d: note %v", name, i, r.Note)
			}
			if r.Void != nil {
				t.Errorf("%s row %d: void is %q", name, i, *r.Void)
			}
			i++
		}
		if i != 40 {
			t.Errorf("%s: %d rows", name, i)
		}
	}
}
