package manifest

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"searchloop/internal/fail"
)

// dataset writes a folder with two data parts and a side part.
func dataset(t *testing.T) (string, *Manifest) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "d")
	os.MkdirAll(filepath.Join(dir, "sub"), 0o755)
	m := &Manifest{Schema: "toy", Version: 2, Spec: "s", Params: json.RawMessage(`{"b":1.0,"a":[1,2]}`),
		Inputs: []Input{{Name: "in", Path: "/x", SHA256: "00"}}, Counts: Counts{In: 5, OK: 5, Reused: 3}, Program: "p 1",
		Started: time.Now(), Ended: time.Now(), Meta: json.RawMessage(`{"dim":4}`)}
	for i, name := range []string{"part-00000-of-00002.txt", "sub/part.txt", "timings.jsonl"} {
		os.WriteFile(filepath.Join(dir, name), []byte(strings.Repeat(name, 10)), 0o644)
		p, err := PartOf(dir, name, int64(i+1), i == 2)
		if err != nil {
			t.Fatal(err)
		}
		m.Parts = append(m.Parts, p)
	}
	if _, err := m.Write(Path(dir)); err != nil {
		t.Fatal(err)
	}
	return dir, m
}

func TestOpenAndVerify(t *testing.T) {
	dir, _ := dataset(t)
	for _, p := range []string{dir, Path(dir)} {
		m, err := Open(p)
		if err != nil || m.Rows() != 3 || len(m.Data()) != 2 {
			t.Fatal(m, err)
		}
		if err := m.Verify(dir); err != nil {
			t.Fatal(err)
		}
		if _, ok := m.Side("timings.jsonl"); !ok {
			t.Fatal("no side part")
		}
	}
}

// A flipped bit at any place of any part is found.
func TestVerifyFindsFlips(t *testing.T) {
	dir, m := dataset(t)
	for _, p := range m.Parts {
		path := filepath.Join(dir, p.Name)
		text, _ := os.ReadFile(path)
		for i := range text {
			text[i] ^= 1 << (i % 8)
			os.WriteFile(path, text, 0o644)
			if err := m.Verify(dir); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), path) {
				t.Fatalf("%s byte %d: %v", p.Name, i, err)
			}
			text[i] ^= 1 << (i % 8)
		}
		os.WriteFile(path, text, 0o644)
	}
}

func TestBadFolders(t *testing.T) {
	write := func(text string) func(string) {
		return func(dir string) { os.WriteFile(Path(dir), []byte(text), 0o644) }
	}
	for name, c := range map[string]struct {
		damage func(string)
		want   string
	}{
		"no manifest":    {func(d string) { os.Remove(Path(d)) }, "run the job that makes it"},
		"no folder":      {func(d string) { os.RemoveAll(d) }, "no such folder"},
		"part missing":   {func(d string) { os.Remove(filepath.Join(d, "sub/part.txt")) }, "sub/part.txt"},
		"part short":     {func(d string) { os.Truncate(filepath.Join(d, "sub/part.txt"), 3) }, "3 bytes, the manifest says 120"},
		"cut":            {write(`{"manifest":1,"sch`), "the file is damaged"},
		"empty":          {write(``), "the file is damaged"},
		"other JSON":     {write(`{"schema":"x"}`), "not a searchloop manifest"},
		"array":          {write(`[]`), "the file is damaged"},
		"newer":          {write(`{"manifest":2,"schema":"x"}`), "newer version"},
		"leads outside":  {write(`{"manifest":1,"schema":"x","parts":[{"name":"../../etc/passwd","bytes":1}]}`), "impossible part"},
		"absolute":       {write(`{"manifest":1,"schema":"x","parts":[{"name":"/etc/passwd","bytes":1}]}`), "impossible part"},
		"negative bytes": {write(`{"manifest":1,"schema":"x","parts":[{"name":"a","bytes":-1}]}`), "impossible part"},
	} {
		dir, _ := dataset(t)
		c.damage(dir)
		if _, err := Open(dir); fail.ExitCode(err) != 65 || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRequire(t *testing.T) {
	_, m := dataset(t)
	if err := m.Require("d", "toy", 2); err != nil {
		t.Fatal(err)
	}
	if err := m.Require("d", "rollouts", 2); fail.ExitCode(err) != 65 {
		t.Fatal(err)
	}
	if err := m.Require("d", "toy", 1); !errors.Is(err, ErrNewer) || fail.ExitCode(err) != 65 {
		t.Fatal(err)
	}
}

// What two equal runs may differ in is not in the digest; everything else is.
func TestDigest(t *testing.T) {
	dir, m := dataset(t)
	same := map[string]func(*Manifest){
		"program": func(m *Manifest) { m.Program = "p 2" },
		"times":   func(m *Manifest) { m.Started, m.Ended = time.Time{}, time.Now().Add(time.Hour) },
		"usage":   func(m *Manifest) { m.Usage = &Usage{Requests: 9} },
		"reused":  func(m *Manifest) { m.Counts.Reused = 0 },
		"path":    func(m *Manifest) { m.Inputs[0].Path = "/y"; m.Inputs[0].ModTime = time.Now() },
		"spacing": func(m *Manifest) { m.Params = json.RawMessage("{ \"a\": [1, 2],\n \"b\": 1.0}") },
	}
	differ := map[string]func(*Manifest){
		"schema":  func(m *Manifest) { m.Schema = "x" },
		"version": func(m *Manifest) { m.Version++ },
		"params":  func(m *Manifest) { m.Params = json.RawMessage(`{"b":2,"a":[1,2]}`) },
		"input":   func(m *Manifest) { m.Inputs[0].SHA256 = "01" },
		"part":    func(m *Manifest) { m.Parts[0].SHA256 = "01" },
		"rows":    func(m *Manifest) { m.Parts[0].Rows++ },
		"order":   func(m *Manifest) { m.Parts[0], m.Parts[1] = m.Parts[1], m.Parts[0] },
		"counts":  func(m *Manifest) { m.Counts.Failed = 1 },
		"meta":    func(m *Manifest) { m.Meta = nil },
	}
	edit := func(f func(*Manifest)) *Manifest {
		c, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		f(c)
		return c
	}
	for name, f := range same {
		c := edit(f)
		if c.Digest() != m.Digest() || c.Content() != m.Content() {
			t.Errorf("%s changes the digest", name)
		}
		if wrote, err := c.Write(Path(dir)); wrote || err != nil {
			t.Errorf("%s: the manifest was rewritten: %v", name, err)
		}
	}
	for name, f := range differ {
		if c := edit(f); c.Digest() == m.Digest() || c.Content() == m.Content() {
			t.Errorf("%s does not change the digest", name)
		}
	}
	c := edit(func(m *Manifest) { m.Parts[2].SHA256 = "01" })
	if c.Digest() != m.Digest() || c.Content() == m.Content() {
		t.Error("bytes of a side part belong to the content, not to the digest")
	}
	c = edit(func(m *Manifest) { m.Parts[0].Pruned = "a test" })
	if c.Digest() != m.Digest() || c.Content() == m.Content() {
		t.Error("what was pruned belongs to the content, not to the digest")
	}
}

// A pruned part is not missed, and whoever reads it is told why it is gone.
func TestPrunedPart(t *testing.T) {
	dir, m := dataset(t)
	m.Parts[0].Pruned = "a test"
	if _, err := m.Write(Path(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, m.Parts[0].Name)); err != nil {
		t.Fatal(err)
	}
	again, err := Open(dir)
	if err != nil || again.Verify(dir) != nil {
		t.Fatal(err, again.Verify(dir))
	}
	if err := again.Parts[0].Verify(dir); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "pruned by a test") {
		t.Error(err)
	}
}

func TestCanonical(t *testing.T) {
	for in, want := range map[string]string{
		`{"b": 1e-6, "a": {"z":null, "y": [ 1.50, 12345678901234567890 ]}}`: `{"a":{"y":[1.50,12345678901234567890],"z":null},"b":1e-6}`,
		`"<é>"`: `"<é>"`, ``: ``, `{`: `null`,
	} {
		if got := string(Canonical(json.RawMessage(in))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestInputs(t *testing.T) {
	dir, m := dataset(t)
	for _, p := range []string{dir, Path(dir)} {
		if in, err := InputOf("d", p); err != nil || in.SHA256 != m.Digest() {
			t.Fatal(in, err)
		}
	}
	file := filepath.Join(t.TempDir(), "f")
	os.WriteFile(file, []byte("abc"), 0o644)
	in, err := InputOf("f", file)
	if err != nil || in.SHA256 != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" || in.Bytes != 3 {
		t.Fatal(in, err)
	}
	// Known by size and time: not read again. Changed in any way, or too fresh: read.
	known := []Input{{Name: "f", SHA256: "known", Bytes: 3, ModTime: in.ModTime}}
	if again, _ := InputLike("f", file, known, in.ModTime.Add(3*time.Second)); again.SHA256 != "known" {
		t.Error("read again")
	}
	if again, _ := InputLike("f", file, known, in.ModTime.Add(time.Second)); again.SHA256 != in.SHA256 {
		t.Error("a file as young as the run was not read")
	}
	os.WriteFile(file, []byte("abd"), 0o644)
	os.Chtimes(file, time.Time{}, in.ModTime.Add(-time.Second))
	if again, _ := InputLike("f", file, known, in.ModTime.Add(3*time.Second)); again.SHA256 == "known" || again.SHA256 == in.SHA256 {
		t.Error("another time was not seen")
	}
	if _, err := InputOf("x", filepath.Join(dir, "nothing")); fail.ExitCode(err) != 65 || !strings.Contains(err.Error(), "open input x") {
		t.Error(err)
	}
	os.Remove(Path(dir))
	if _, err := InputOf("x", dir); fail.ExitCode(err) != 65 || !strings.Contains(err.Error(), "unfinished") {
		t.Error(err)
	}
}
