package job

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"searchloop/internal/manifest"
)

// In a folder where nothing is, a job begins before its inputs are digested; what
// it publishes has their digests.
func TestInputsAreDigestedBehind(t *testing.T) {
	dir, pipe := t.TempDir(), filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip("no named pipes here: ", err)
	}
	ds, sh := begun(t, Spec{Dir: dir, Schema: "x", Version: 1, Ext: "jsonl", Inputs: map[string]string{"slow": pipe}})
	if err := os.WriteFile(pipe, []byte("abc"), 0); err != nil { // waits for the reader
		t.Fatal(err)
	}
	if err := sh.Commit(1, manifest.Counts{}); err != nil {
		t.Fatal(err)
	}
	if err := ds.Seal(nil); err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Open(dir)
	if err != nil || m.Spec != ds.Digest() || m.Inputs[0].SHA256 != manifest.Hash([]byte("abc")) {
		t.Fatal(m, err)
	}
}

// An input that turns out unreadable fails the job before anything is published.
func TestUnreadableInput(t *testing.T) {
	const unreadable = "/proc/self/mem" // a regular file; its beginning is mapped nowhere
	if _, _, err := manifest.HashFile(unreadable); err == nil || os.IsNotExist(err) {
		t.Skip("no such file here")
	}
	dir := t.TempDir()
	_, sh := begun(t, Spec{Dir: dir, Schema: "x", Version: 1, Ext: "jsonl", Inputs: map[string]string{"bad": unreadable}})
	refused := func(err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "read input bad") {
			t.Error(err)
		}
	}
	refused(sh.Commit(1, manifest.Counts{}))
	_, err := sh.Journal()
	refused(err)
	sh.Discard()
	if names, _ := filepath.Glob(filepath.Join(dir, "[a-z]*")); len(names) > 0 {
		t.Error("published: ", names)
	}
	// With something in the folder to compare with, it is known at once.
	if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Testing(t).Dataset(Spec{Dir: dir, Schema: "x", Version: 1, Ext: "jsonl", Inputs: map[string]string{"bad": unreadable}})
	refused(err)
}

// begun is a dataset with a row in the part of its one shard.
func begun(t *testing.T, s Spec) (*Dataset, *Shard) {
	t.Helper()
	ds, err := Testing(t).Dataset(s)
	if err != nil {
		t.Fatal(err)
	}
	sh, err := ds.Begin(ds.Todo()[0])
	if err != nil {
		t.Fatal(err)
	}
	w, err := sh.Part()
	if err == nil {
		_, err = w.Write([]byte("{}\n"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return ds, sh
}
