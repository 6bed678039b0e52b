package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"searchloop/internal/fail"
)

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return strings.Join(list, " ")
}

func TestCommitAndDiscard(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	path := filepath.Join(dir, "x")
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(f, strings.NewReader("hello "))
	f.WriteString("world")
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal("visible before Commit")
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := f.Discard(); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); err == nil {
		t.Fatal("committed twice")
	}
	text, _ := os.ReadFile(path)
	if string(text) != "hello world" || names(t, dir) != "x" {
		t.Fatalf("%q, folder %s", text, names(t, dir))
	}
	g, _ := Create(path)
	g.Write([]byte("no"))
	g.Discard()
	if text, _ := os.ReadFile(path); string(text) != "hello world" || names(t, dir) != "x" {
		t.Fatalf("Discard left %s", names(t, dir))
	}
}

func TestWriteIfChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if wrote, err := WriteIfChanged(path, []byte("a")); !wrote || err != nil {
		t.Fatal(wrote, err)
	}
	old := time.Now().Add(-time.Hour)
	os.Chtimes(path, old, old)
	if wrote, err := WriteIfChanged(path, []byte("a")); wrote || err != nil {
		t.Fatal(wrote, err)
	}
	if i, _ := os.Stat(path); time.Since(i.ModTime()) < 50*time.Minute {
		t.Error("the time changed")
	}
	if wrote, err := WriteIfChanged(path, []byte("b")); !wrote || err != nil {
		t.Fatal(wrote, err)
	}
}

// Sweep takes what dead processes left and nothing that is being written.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	alive, _ := Create(path)
	defer alive.Discard()
	for _, n := range []string{".y.tmp-1-00", ".z.tmp-999999-ff", "ours.tmp-1-00", ".hidden"} {
		os.WriteFile(filepath.Join(dir, n), nil, 0o644)
	}
	os.Mkdir(filepath.Join(dir, ".d.tmp-1-00"), 0o755)
	if err := Sweep(dir); err != nil {
		t.Fatal(err)
	}
	got := names(t, dir)
	want := ".d.tmp-1-00 .hidden " + filepath.Base(alive.Name()) + " ours.tmp-1-00"
	if got != want {
		t.Fatalf("left %s, want %s", got, want)
	}
	if err := alive.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := Sweep(filepath.Join(dir, "missing")); err != nil {
		t.Fatal(err)
	}
}

// Writers and sweepers of one folder do not hurt each other.
func TestSweepRace(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var sweeps sync.WaitGroup
	sweeps.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := Sweep(dir); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for w := range 4 {
		wg.Go(func() {
			for i := range 40 {
				if err := WriteFile(filepath.Join(dir, strconv.Itoa(w)), []byte(strconv.Itoa(i))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	sweeps.Wait()
	if got := names(t, dir); got != "0 1 2 3" {
		t.Fatal(got)
	}
}

func TestErrorsNameThePath(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "file"), nil, 0o644)
	_, err := Create(filepath.Join(dir, "file", "x"))
	if fail.KindOf(err) != fail.Disk || !strings.Contains(err.Error(), filepath.Join(dir, "file")) {
		t.Fatal(err)
	}
	// Publishing over a folder cannot work: the data is kept and named.
	os.Mkdir(filepath.Join(dir, "folder"), 0o755)
	f, err := Create(filepath.Join(dir, "folder"))
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("precious")
	err = f.Commit()
	if fail.KindOf(err) != fail.Disk || !strings.Contains(err.Error(), f.Name()) {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(f.Name()); string(text) != "precious" {
		t.Fatal("the data is gone")
	}
	if err := Room(dir, 1<<60); fail.KindOf(err) != fail.Disk || err == nil {
		t.Fatal(err)
	}
	if err := Room(filepath.Join(dir, "not", "yet"), 1); err != nil {
		t.Fatal(err)
	}
}

func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if os.Geteuid() != 0 {
		t.Skip("mounting a tmpfs needs root")
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("cannot mount a tmpfs: ", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	path := filepath.Join(dir, "big")
	err := WriteFile(path, make([]byte, 2<<20))
	if fail.ExitCode(err) != 74 || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "at least 2097152 bytes") {
		t.Fatal(err)
	}
	if got := names(t, dir); got != "" {
		t.Fatal("left ", got)
	}
	if err := WriteFile(path, make([]byte, 1<<19)); err != nil {
		t.Fatal("space did not come back: ", err)
	}
}
