package tfevents

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The bytes are those that tensorboard 2.21.0 (RecordWriter of
// tensorboard.summary.writer) makes; testdata/golden.py
// wrote them.
func TestBytes(t *testing.T) {
	dir, at := t.TempDir(), time.Unix(1700000000, 5e8)
	w, err := Create(dir, 3, at)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Scalars(3, at, []Scalar{{"grpo/loss", -.25}, {"grpo/lr", 1e-6}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	found, _ := filepath.Glob(filepath.Join(dir, "*tfevents*"))
	if len(found) != 1 {
		t.Fatalf("files %v", found)
	}
	got, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/golden.hex")
	if err != nil {
		t.Fatal(err)
	}
	want, err := hex.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}

func TestCreateFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(file, 1, time.Unix(0, 0)); err == nil {
		t.Error("a file is taken for a folder")
	}
}
