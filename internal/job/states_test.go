package job

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"searchloop/internal/manifest"
)

// Every state that a dataset folder can be found in, and what becomes of it: it is
// kept, completed or made again, and always ends as a quiet run would end.
func TestFolderStates(t *testing.T) {
	const args = "--shards=2"
	in, quiet := world(t)
	mustRun(t, "--in", in, "--out", quiet, args)
	want := tree(t, quiet)
	part, partManifest := "part-00001-of-00002.jsonl", "part-00001-of-00002.json"
	shard1 := strings.Count(read(t, quiet, part), "\n")
	if shard1 == 0 || shard1 == 10 {
		t.Fatal("the toy data is not split")
	}
	rm := func(names ...string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			for _, n := range names {
				if err := os.Remove(filepath.Join(dir, n)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	write := func(name, text string, first ...func(*testing.T, string)) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			for _, f := range first {
				f(t, dir)
			}
			path := filepath.Join(dir, name)
			os.MkdirAll(filepath.Dir(path), 0o755)
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	flip := func(t *testing.T, dir string) {
		text := []byte(read(t, dir, part))
		text[len(text)/2] ^= 4
		write(part, string(text))(t, dir)
	}
	for _, c := range []struct {
		name   string
		damage func(*testing.T, string)
		made   int      // rows made by the next run
		extra  []string // files that stay beside the data
	}{
		{"good", func(*testing.T, string) {}, 0, nil},
		{"manifest missing", rm("manifest.json"), 0, nil},
		{"manifest unreadable", write("manifest.json", "{"), 0, []string{".bad/manifest.json"}},
		{"manifest of nothing we know", write("manifest.json", `{"a":1}`), 0, []string{".bad/manifest.json"}},
		{"part missing", rm(part), shard1, nil},
		{"part missing, manifest too", rm(part, "manifest.json"), shard1, nil},
		{"part manifest missing", rm(partManifest, "manifest.json"), shard1, nil},
		{"part manifest missing beside a good manifest", rm(partManifest), 0, nil},
		{"part manifest unreadable", write(partManifest, "", rm("manifest.json")), shard1, []string{".bad/" + partManifest}},
		{"part longer", write(part, read(t, quiet, part)+"x"), shard1, nil},
		{"part damaged", func(t *testing.T, dir string) { flip(t, dir); rm("manifest.json")(t, dir) }, shard1, nil},
		{"extra file missing", rm("notes-00001-of-00002.txt"), shard1, nil},
		{"temporary file of a dead process", write(".part-00000-of-00002.jsonl.tmp-1-abc", "x", rm("manifest.json", partManifest)), shard1, nil},
		{"parts of another layout", func(t *testing.T, dir string) {
			rm("manifest.json", partManifest)(t, dir)
			write("part-00002-of-00003.jsonl", "x")(t, dir)
			write("rejects-00002-of-00003.jsonl", "x")(t, dir)
		}, shard1, nil},
		{"foreign files", func(t *testing.T, dir string) {
			rm("manifest.json", partManifest)(t, dir)
			write("README.md", "mine")(t, dir)
			write("train-00000-of-00003.parquet", "mine")(t, dir)
			write("sub/part-00000-of-00009.jsonl", "mine")(t, dir)
		}, shard1, []string{"README.md", "train-00000-of-00003.parquet", "sub/part-00000-of-00009.jsonl"}},
		{"nothing but parts", rm("manifest.json", partManifest, "part-00000-of-00002.json"), 10, nil},
		{"work folder left", write(".work/part-00000-of-00002.journal", "no journal", rm("manifest.json")), 0, nil},
		{"lock of a dead process", write(".work/part-00001-of-00002.lock", "otherhost:99\n", rm("manifest.json", partManifest)), shard1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, out := world(t)
			mustRun(t, "--in", in, "--out", out, args)
			c.damage(t, out)
			before := listing(t, out)
			if code, stdout, _ := exec(t, new(toy), "--in", in, "--out", out, args, "-n"); code != 0 {
				t.Fatalf("dry run: exit %d\n%s", code, stdout)
			}
			if after := listing(t, out); after != before {
				t.Fatalf("the dry run changed the folder:\n%s\nwas\n%s", after, before)
			}
			if run := mustRun(t, "--in", in, "--out", out, args); run.made != c.made {
				t.Errorf("made %d rows, want %d", run.made, c.made)
			}
			expect := map[string]string{}
			for k, v := range want {
				expect[k] = v
			}
			got := map[string]string{}
			for _, n := range c.extra {
				read(t, out, n)
				os.Remove(filepath.Join(out, n))
			}
			for k, v := range tree(t, out) {
				got[k] = v
			}
			if c.name == "part manifest missing beside a good manifest" {
				delete(expect, partManifest)
			}
			sameTree(t, expect, got)
		})
	}
}

// What a newer program made is not touched.
func TestNewerManifest(t *testing.T) {
	in, out := world(t)
	mustRun(t, "--in", in, "--out", out)
	os.WriteFile(manifest.Path(out), []byte(`{"manifest":99,"schema":"toy"}`), 0o644)
	before := listing(t, out)
	code, _, stderr := exec(t, new(toy), "--in", in, "--out", out, "--fresh")
	if code != 65 || !strings.Contains(stderr, "made by a newer version") || listing(t, out) != before {
		t.Fatalf("exit %d\n%s", code, stderr)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// listing is the names, sizes and times of all files, for "nothing changed".
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			t.Fatal(err)
		}
		info, err := d.Info()
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(p + " " + info.ModTime().String() + " " + info.Mode().String() + "\n")
		return nil
	})
	return b.String()
}

// A dataset of named files: stale ones go, what the caller wrote is sealed.
func TestSealFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ckpt")
	make := func(lr float64, names ...string) *Dataset {
		t.Helper()
		r := Testing(t)
		r.Shards = 4 // means nothing here
		d, err := r.Dataset(Spec{Dir: dir, Schema: "checkpoint", Version: 1, Params: map[string]any{"lr": lr}})
		if err != nil {
			t.Fatal(err)
		}
		if d.Complete() {
			return d
		}
		s, err := d.Begin(d.Todo()[0])
		if err != nil || s == nil {
			t.Fatal(s, err)
		}
		j, err := s.Journal()
		if err != nil {
			t.Fatal(err)
		}
		j.Append("step", []byte("1"))
		for _, n := range names {
			os.MkdirAll(filepath.Dir(filepath.Join(dir, n)), 0o755)
			if err := os.WriteFile(filepath.Join(dir, n), []byte(n), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.SealFiles(names, map[string]int{"step": 1}); err != nil {
			t.Fatal(err)
		}
		return d
	}
	make(1, "model.safetensors", "trainer/adam.bin")
	if !make(1).Complete() {
		t.Fatal("not complete")
	}
	make(2, "model.safetensors")
	if _, err := os.Stat(filepath.Join(dir, "trainer/adam.bin")); err == nil {
		t.Error("a file of the older spec is left")
	}
	m, err := manifest.Open(dir)
	if err != nil || len(m.Parts) != 1 || m.Verify(dir) != nil {
		t.Fatalf("%+v %v", m, err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".work")); err == nil {
		t.Error(".work is left")
	}
}

func TestRetryFailed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	do := func(retry bool, failed int64, text string) (previous string, todo int) {
		r := Testing(t)
		r.RetryFailed = retry
		d, err := r.Dataset(Spec{Dir: dir, Schema: "x", Version: 1, Ext: "txt"})
		if err != nil {
			t.Fatal(err)
		}
		for _, sh := range d.Todo() {
			todo++
			s, err := d.Begin(sh)
			if err != nil || s == nil {
				t.Fatal(s, err)
			}
			if p := s.Previous(); p != "" {
				b, err := os.ReadFile(p)
				if err != nil {
					t.Fatal(err)
				}
				previous = string(b)
				if _, err := manifest.Open(dir); err != nil {
					t.Error("the old dataset is gone before the new one is there")
				}
			}
			w, _ := s.Part()
			w.Write([]byte(text))
			if err := s.Commit(2, manifest.Counts{OK: 2 - failed, Failed: failed}); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Seal(nil); err != nil {
			t.Fatal(err)
		}
		return previous, todo
	}
	do(false, 1, "one good")
	if _, n := do(false, 1, "no"); n != 0 {
		t.Fatal("made again without being asked")
	}
	if p, n := do(true, 0, "both good"); p != "one good" || n != 1 {
		t.Fatalf("previous %q, %d shards", p, n)
	}
	if _, n := do(true, 0, "no"); n != 0 {
		t.Fatal("nothing failed, and yet it was made again")
	}
}

func TestLostRowsAreABug(t *testing.T) {
	r := Testing(t)
	dir := filepath.Join(t.TempDir(), "d")
	d, _ := r.Dataset(Spec{Dir: dir, Schema: "x", Version: 1, Ext: "txt"})
	s, _ := d.Begin(d.Todo()[0])
	w, _ := s.Part()
	w.Write([]byte("x"))
	s.Reject("in", 1, "", nil)
	if err := s.Commit(5, manifest.Counts{In: 7}); err == nil || !strings.Contains(err.Error(), "7 in, 5 out, 1 rejected") {
		t.Fatal(err)
	}
	s.Discard()
	files, _ := os.ReadDir(dir)
	if len(files) != 1 || files[0].Name() != ".work" {
		t.Fatalf("left %v", files)
	}
}

// A full disk is exit 74 with path and need, leaves nothing half, and a rerun with
// space completes. On a real file system of few pages, at every size.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a tmpfs needs root")
	}
	in, quiet := world(t)
	mustRun(t, "--in", in, "--out", quiet, "--rows=2000")
	want := tree(t, quiet)
	dir := t.TempDir()
	full, ok := 0, 0
	for pages := 1; pages <= 96 && ok < 3; pages += 1 + pages/8 {
		size := "size=" + strconv.Itoa(pages*4096)
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, size); err != nil {
			t.Skip("cannot mount a tmpfs: ", err)
		}
		func() {
			defer syscall.Unmount(dir, syscall.MNT_DETACH)
			out := filepath.Join(dir, "out")
			code, _, stderr := exec(t, new(toy), "--in", in, "--out", out, "--rows=2000")
			if code == 0 {
				ok++
			} else if full++; code != 74 || !strings.Contains(stderr, out) || !strings.Contains(stderr, "no space left") {
				t.Fatalf("%d pages: exit %d\n%s", pages, code, stderr)
			}
			if code != 0 {
				if m, err := manifest.Open(out); err == nil {
					t.Fatalf("%d pages: exit %d, and yet a manifest: %+v", pages, code, m)
				}
				if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=4m"); err != nil {
					t.Fatal(err)
				}
				mustRun(t, "--in", in, "--out", out, "--rows=2000")
			}
			sameTree(t, want, tree(t, out))
		}()
	}
	if full < 10 || ok == 0 {
		t.Errorf("%d runs on a full disk and %d others; the sizes do not fit the data", full, ok)
	}
}
