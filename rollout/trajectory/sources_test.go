package trajectory

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"searchloop/internal/table"
)

func write[T any](t *testing.T, rows ...T) string {
	t.Helper()
	var b bytes.Buffer
	w := table.NewWriter[T](&b)
	if err := w.Write(rows...); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "part.parquet")
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// Rows of before there were sources still open, and sources come back as written.
func TestSourcesAreAnOptionalColumn(t *testing.T) {
	type oldTurn struct {
		Role   string   `parquet:"role,dict"`
		Text   string   `parquet:"text"`
		Images []string `parquet:"images,list"`
		Call   string   `parquet:"call,dict"`
		Args   string   `parquet:"args"`
		Error  string   `parquet:"error"`
		Tokens int32    `parquet:"tokens"`
		Finish string   `parquet:"finish,dict"`
	}
	type turns[T any] struct {
		Turns []T `parquet:"turns,list"`
	}
	old := write(t, turns[oldTurn]{[]oldTurn{{Role: "user", Text: "q"}, {Role: "tool", Text: "x"}}})
	rows, err := table.ReadAll[turns[Turn]](old)
	if err != nil || len(rows) != 1 || len(rows[0].Turns) != 2 || rows[0].Turns[1].Text != "x" || len(rows[0].Turns[1].Sources) != 0 {
		t.Errorf("%+v %v", rows, err)
	}
	want := turns[Turn]{[]Turn{{Role: "user"}, {Role: "tool", Text: "x", Sources: []Source{{"serper", "https://google.serper.dev/search", "2026-01-02T03:04:05Z", "ab"}, {Provider: "direct"}}}, {Role: "assistant"}}}
	rows, err = table.ReadAll[turns[Turn]](write(t, want))
	if err != nil || len(rows) != 1 || !reflect.DeepEqual(rows[0].Turns[1].Sources, want.Turns[1].Sources) || len(rows[0].Turns[0].Sources)+len(rows[0].Turns[2].Sources) != 0 {
		t.Errorf("%+v %v", rows, err)
	}
}
