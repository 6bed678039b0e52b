package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A tail gives each record once it is whole, in order, whatever else happens to the
// file: torn ends, a writer that cuts them off, a journal of other parameters.
func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w", "j")
	tail := NewTail(path)
	defer tail.Close()
	next := func(want string) {
		t.Helper()
		got := ""
		for {
			key, payload, ok, err := tail.Next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			got += fmt.Sprintf("%s=%s ", key, payload)
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	next("") // no journal yet
	j := open(t, path)
	next("")
	put(t, j, "a", "1")
	put(t, j, "b", "\xf5REC")
	next("a=1 b=\xf5REC ")
	next("")
	// Half a record: nothing, until the rest is there.
	rec := record("c", []byte("3"))
	write := func(b []byte, at int64) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
	}
	for n := range len(rec) {
		write(rec[:n], j.end)
		next("")
	}
	// The writer is killed, and its successor cuts the torn end off and goes on.
	again := open(t, path)
	put(t, again, "d", "4")
	next("d=4 ")
	// Other parameters: another journal, from its beginning; and the old one comes back.
	other, err := Open(path, "another")
	if err != nil {
		t.Fatal(err)
	}
	put(t, other, "e", "5")
	next("e=5 ")
	other.Close()
	open(t, path)
	next("a=1 b=\xf5REC d=4 ")
	os.Remove(path)
	next("")
}
