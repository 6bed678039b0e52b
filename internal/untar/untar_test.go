package untar

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"searchloop/internal/fail"
)

type entry struct {
	name, body, link string
	kind             byte
}

func archive(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if e.kind == 0 {
			e.kind = tar.TypeReg
		}
		h := &tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Mode: 0o644, Size: int64(len(e.body))}
		if e.kind != tar.TypeReg {
			h.Size = 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if e.kind == tar.TypeReg {
			io.WriteString(w, e.body)
		}
	}
	w.Close()
	return b.Bytes()
}

func gz(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	w.Close()
	return out.Bytes()
}

// unpack extracts into parent/root and returns all files below parent.
func unpack(t *testing.T, data []byte, lim Limits) (Stats, map[string]string, error) {
	t.Helper()
	parent := t.TempDir()
	os.WriteFile(filepath.Join(parent, "outside"), []byte("untouched"), 0o644)
	os.Mkdir(filepath.Join(parent, "root"), 0o755)
	root, err := os.OpenRoot(filepath.Join(parent, "root"))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	st, err := Extract(bytes.NewReader(data), root, lim, nil)
	found := map[string]string{}
	filepath.WalkDir(parent, func(p string, d fs.DirEntry, _ error) error {
		rel, _ := filepath.Rel(parent, p)
		if d.Type()&fs.ModeSymlink != 0 {
			t.Errorf("%s is a link", rel)
		} else if !d.IsDir() {
			text, _ := os.ReadFile(p)
			found[filepath.ToSlash(rel)] = string(text)
		}
		return nil
	})
	if found["outside"] != "untouched" {
		t.Errorf("a file outside the root changed: %q", found["outside"])
	}
	delete(found, "outside")
	for name := range found {
		if !strings.HasPrefix(name, "root/") {
			t.Errorf("%s was written outside the root", name)
		}
	}
	return st, found, err
}

func TestExtract(t *testing.T) {
	plain := archive(t, entry{name: "images/", kind: tar.TypeDir}, entry{name: "images/a.jpg", body: "A"}, entry{name: "./images/b.jpg", body: "BB"}, entry{name: "deep/er/c", body: ""})
	enc, _ := zstd.NewWriter(nil)
	for name, data := range map[string][]byte{"tar": plain, "gzip": gz(plain), "zstd": enc.EncodeAll(plain, nil)} {
		t.Run(name, func(t *testing.T) {
			st, found, err := unpack(t, data, Limits{})
			if err != nil || st.Files != 3 || st.Bytes != 3 || len(st.Skipped) != 0 {
				t.Fatalf("%+v %v", st, err)
			}
			if found["root/images/a.jpg"] != "A" || found["root/images/b.jpg"] != "BB" || len(found) != 3 {
				t.Fatalf("found %v", found)
			}
		})
	}
}

// Nothing an archive says may reach outside the root, and what is left out is counted.
func TestAttacks(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		name    string
		entries []entry
		reason  string
		count   int64
	}{
		{"parent", []entry{{name: "../outside", body: "evil"}}, SkipOutside, 1},
		{"parent inside", []entry{{name: "a/../../outside", body: "evil"}}, SkipOutside, 1},
		{"absolute", []entry{{name: "/tmp/evil", body: "evil"}}, SkipOutside, 1},
		{"backslash", []entry{{name: `..\outside`, body: "evil"}}, SkipOutside, 1},
		{"link out, then through it", []entry{{name: "l", link: "..", kind: tar.TypeSymlink}, {name: "l/outside", body: "fine: l is a folder now"}}, SkipSymlink, 1},
		{"link to file, then over it", []entry{{name: "l", link: "../outside", kind: tar.TypeSymlink}, {name: "l", body: "own"}}, SkipSymlink, 1},
		{"hard link out", []entry{{name: "l", link: "../outside", kind: tar.TypeLink}}, SkipHardLink, 1},
		{"device", []entry{{name: "d", kind: tar.TypeChar}, {name: "b", kind: tar.TypeBlock}, {name: "p", kind: tar.TypeFifo}}, SkipDevice, 3},
		{"duplicate", []entry{{name: "a", body: "first"}, {name: "./a", body: "second"}}, SkipDuplicate, 1},
		{"file then folder", []entry{{name: "a", body: "first"}, {name: "a/b", body: "second"}}, SkipConflict, 1},
		{"folder then file", []entry{{name: "a/b", body: "first"}, {name: "a", body: "second"}}, SkipConflict, 1},
		{"long name", []entry{{name: long, body: "x"}}, SkipLongName, 1},
		{"name of our own temporary file", []entry{{name: temp, body: "x"}}, SkipOutside, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			st, found, err := unpack(t, archive(t, append(c.entries, entry{name: "good", body: "good"})...), Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if st.Skipped[c.reason] != c.count {
				t.Errorf("skipped %v, want %d for %q", st.Skipped, c.count, c.reason)
			}
			if found["root/good"] != "good" {
				t.Error("the good file is missing")
			}
			if c.reason == SkipDuplicate && found["root/a"] != "first" {
				t.Errorf("the first entry did not win: %q", found["root/a"])
			}
		})
	}
}

func TestLimits(t *testing.T) {
	many := make([]entry, 50)
	for i := range many {
		many[i] = entry{name: fmt.Sprint("f", i), body: "x"}
	}
	for _, c := range []struct {
		name string
		data []byte
		lim  Limits
		want string
		kept int
	}{
		{"entries", archive(t, many...), Limits{Entries: 10}, "more than 10 entries", 10},
		{"bytes", archive(t, many...), Limits{Bytes: 20}, "more than 20 bytes", 20},
		{"file", archive(t, entry{name: "a", body: "ok"}, entry{name: "b", body: "too long"}), Limits{FileBytes: 5}, "limit is 5", 1},
		{"ratio", gz(archive(t, entry{name: "a", body: "ok"}, entry{name: "bomb", body: strings.Repeat("\x00", 40<<20)})), Limits{}, "200 times", 1},
		{"empty", nil, Limits{}, "empty", 0},
		{"garbage", []byte("this is no archive, whatever its name says"), Limits{}, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, found, err := unpack(t, c.data, c.lim)
			if fail.KindOf(err) != fail.BadInput || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("err %v, want bad input %q", err, c.want)
			}
			if len(found) != c.kept {
				t.Errorf("%d files kept, want %d", len(found), c.kept)
			}
		})
	}
}

// A million headers cost a message, not memory or time.
func TestManyEntries(t *testing.T) {
	r, w := io.Pipe()
	go func() {
		tw := tar.NewWriter(w)
		for i := 0; ; i++ {
			if tw.WriteHeader(&tar.Header{Name: fmt.Sprint(i), Typeflag: tar.TypeSymlink, Linkname: "x"}) != nil {
				return
			}
		}
	}()
	root, _ := os.OpenRoot(t.TempDir())
	defer root.Close()
	_, err := Extract(r, root, Limits{Entries: 100_000}, nil)
	r.Close()
	if fail.KindOf(err) != fail.BadInput {
		t.Fatal(err)
	}
}

// An archive cut anywhere gives an error, and only whole files.
func TestCut(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var entries []entry
	want := map[string]string{}
	for i := range 20 {
		b := make([]byte, rng.IntN(3000))
		for j := range b {
			b[j] = byte(rng.Uint32())
		}
		entries = append(entries, entry{name: fmt.Sprintf("d%d/f%d", i%3, i), body: string(b)})
		want[fmt.Sprintf("root/d%d/f%d", i%3, i)] = string(b)
	}
	whole := gz(archive(t, entries...))
	for i := range 64 {
		cut := whole[:len(whole)*i/64]
		_, found, err := unpack(t, cut, Limits{})
		if fail.KindOf(err) != fail.BadInput || err == nil {
			t.Fatalf("cut at %d: %v", len(cut), err)
		}
		for name, body := range found {
			if body != want[name] {
				t.Fatalf("cut at %d: %s is %d bytes, want %d", len(cut), name, len(body), len(want[name]))
			}
		}
	}
}

// What a killed run left is completed, not trusted half.
func TestAgain(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, temp), []byte("half of some fi"), 0o644)
	root, _ := os.OpenRoot(dir)
	defer root.Close()
	data := archive(t, entry{name: "a", body: "AAAA"}, entry{name: "b", body: "B"})
	for want := int64(0); want <= 2; want += 2 {
		st, err := Extract(bytes.NewReader(data), root, Limits{}, nil)
		if err != nil || st.Skipped[SkipDuplicate] != want || st.Files != 2-want {
			t.Fatalf("%+v %v", st, err)
		}
	}
	if _, err := root.Stat(temp); err == nil {
		t.Error("the temporary file is left")
	}
}
