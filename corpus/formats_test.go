package corpus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/table"
)

var update = flag.Bool("update", false, "rewrite the want files of testdata/formats; then read them")

// prepared is what a golden file holds: the dataset that Prep makes of a sample.
type prepared struct {
	Rows    any               `json:"rows"`
	Rejects []job.Rejected    `json:"rejects"`
	Side    map[string]string `json:"side,omitempty"`
	In      int64             `json:"in"`
}

// samples gives the input files of every golden sample of a format.
func samples(t *testing.T, format string) map[string][]string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join("testdata", "formats", format, "*"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("format %s has no sample in testdata/formats", format)
	}
	out := map[string][]string{}
	for _, d := range dirs {
		entries, err := os.ReadDir(filepath.Join(d, "in"))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !e.IsDir() {
				out[filepath.Base(d)] = append(out[filepath.Base(d)], filepath.Join(d, "in", e.Name()))
			}
		}
	}
	return out
}

// TestFormats prepares every golden sample of every format.
func TestFormats(t *testing.T) {
	for _, f := range Formats() {
		for name, files := range samples(t, f.Name) {
			for _, what := range f.gives() {
				t.Run(f.Name+"/"+name+"/"+what, func(t *testing.T) {
					out := t.TempDir()
					o := PrepOptions{Format: f.Name, What: what, In: files, Out: out, Prefix: "Answer. Question: ", MaxRejects: 1}
					if err := Prep(context.Background(), job.Testing(t), o); err != nil {
						t.Fatal(err)
					}
					got := read(t, out, what)
					golden(t, filepath.Join("testdata", "formats", f.Name, name, "want-"+what+".json"), got)
					checkStore(t, out)
				})
			}
		}
	}
}

// read gives a prepared dataset as JSON.
func read(t *testing.T, dir, what string) []byte {
	t.Helper()
	m, err := manifest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Verify(dir); err != nil {
		t.Fatal(err)
	}
	p := prepared{In: m.Counts.In, Side: map[string]string{}}
	if what == Questions {
		p.Rows = rowsOfDataset[Question](t, dir)
	} else {
		p.Rows = rowsOfDataset[Passage](t, dir)
	}
	for _, part := range m.Parts {
		switch data, err := os.ReadFile(filepath.Join(dir, part.Name)); {
		case err != nil:
			t.Fatal(err)
		case strings.HasPrefix(part.Name, "rejects"):
			for line := range bytes.Lines(data) {
				var r job.Rejected
				if err := json.Unmarshal(line, &r); err != nil {
					t.Fatal(err)
				}
				r.Path = filepath.Base(r.Path)
				p.Rejects = append(p.Rejects, r)
			}
		case part.Side:
			p.Side[part.Name] = string(data)
		}
	}
	if m.Counts.In != m.Counts.OK+m.Counts.Rejected || m.Counts.Rejected != int64(len(p.Rejects)) {
		t.Errorf("rows were lost: %+v", m.Counts)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(p); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func rowsOfDataset[T any](t *testing.T, dir string) (rows []T) {
	t.Helper()
	for row, err := range table.ReadDataset[T](dir) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; got\n%s", path, got)
	}
}

// checkStore holds that every question's images are where its cells say.
func checkStore(t *testing.T, out string) {
	t.Helper()
	m, err := manifest.Open(out)
	if err != nil || m.Schema != Questions {
		return
	}
	s, err := OpenStore(filepath.Join(out, "images"))
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range rowsOfDataset[Question](t, out) {
		for i, sha := range q.ImageIDs {
			data, err := s.Get(sha)
			if err != nil {
				t.Error(err)
			}
			if cell, err := os.ReadFile(filepath.Join(out, filepath.FromSlash(*q.Images[i].Path))); err != nil || !bytes.Equal(cell, data) {
				t.Errorf("image cell of %s: %v", q.ID, err)
			}
		}
	}
}

// source is a format's reader without its row type.
type source struct {
	what string
	// walk goes through the rows, loading them, up to limit, and gives their
	// places and ids and the error of the sequence.
	walk func(files []string, limit int) ([]string, error)
}

func sources(f Format) (out []source) {
	if f.Questions != nil {
		out = append(out, source{Questions, walker(f.Questions)})
	}
	if f.Passages != nil {
		out = append(out, source{Passages, walker(f.Passages)})
	}
	return out
}

func walker[T any](open func(Input) iter.Seq2[Row[T], error]) func([]string, int) ([]string, error) {
	return func(files []string, limit int) (got []string, err error) {
		for row, err := range open(Input{Files: files}) {
			if err != nil {
				return got, err
			}
			if row.Path == "" || row.N < 1 || (row.Load == nil) == (row.Err == nil) {
				return got, errors.New("a row without place, or neither or both of Load and Err")
			}
			if row.Load != nil {
				if _, err := row.Load(); err != nil && !isRowError(err) {
					return got, err
				}
			}
			if got = append(got, row.Path+":"+row.ID); len(got) == limit {
				break
			}
		}
		return got, nil
	}
}

// TestConformance holds what every adapter promises beside its golden rows.
func TestConformance(t *testing.T) {
	for _, f := range Formats() {
		if f.Name == "" || f.Doc == "" || len(f.gives()) == 0 || f.Questions != nil && f.Split == "" {
			t.Errorf("format %q is not fully described", f.Name)
		}
		for _, src := range sources(f) {
			for name, files := range samples(t, f.Name) {
				t.Run(f.Name+"/"+src.what+"/"+name, func(t *testing.T) { conform(t, src, files) })
			}
		}
	}
}

func conform(t *testing.T, src source, files []string) {
	all, err := src.walk(files, -1)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := src.walk(files, -1); err != nil || !slices.Equal(again, all) {
		t.Errorf("a second reading differs: %v, %v", again, err)
	}
	if one, err := src.walk(files, 1); err != nil || len(one) != 1 || one[0] != all[0] {
		t.Errorf("stopping early: %v, %v", one, err)
	}
	dir := t.TempDir()
	for i, file := range files {
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		damaged := filepath.Join(dir, filepath.Base(file))
		with := slices.Clone(files)
		with[i] = damaged
		// Cut anywhere: rows or an error with the file's name, never anything else.
		for n := range 24 {
			if err := os.WriteFile(damaged, whole[:len(whole)*n/24], 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := src.walk(with, -1)
			wrong := err != nil && (fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), damaged))
			parquet := strings.HasSuffix(file, ".parquet")
			if wrong || parquet && err == nil {
				t.Fatalf("%s cut at %d/24: %v", file, n, err)
			}
		}
		for _, garbage := range []string{"\x00\x01\x02", "PAR1", "{", "[[[", "\x1f\x8b\x08", "(\xb5/\xfd", strings.Repeat("\xff", 5000)} {
			os.WriteFile(damaged, []byte(garbage), 0o600)
			if _, err := src.walk(with, -1); err != nil && fail.KindOf(err) != fail.BadInput {
				t.Errorf("%s as %.10q: %v", file, garbage, err)
			}
		}
		// Twenty times other bytes, lost bytes and bytes twice.
		random := rand.New(rand.NewPCG(7, uint64(len(whole))))
		for range 20 {
			b := slices.Clone(whole)
			for range 1 + random.IntN(6) {
				if len(b) == 0 {
					break
				}
				switch at := random.IntN(len(b)); random.IntN(4) {
				case 0:
					b[at] ^= 1 << random.IntN(8)
				case 1:
					b[at] = "\"{}[],:\\\x00\xff\n"[random.IntN(11)]
				case 2:
					b = slices.Delete(b, at, min(at+1+random.IntN(9), len(b)))
				case 3:
					b = slices.Insert(b, at, b[at:min(at+9, len(b))]...)
				}
			}
			os.WriteFile(damaged, b, 0o600)
			if _, err := src.walk(with, -1); err != nil && fail.KindOf(err) != fail.BadInput {
				t.Errorf("%s changed: %v", file, err)
			}
		}
		os.Remove(damaged)
		if _, err := src.walk(with, -1); err != nil && (fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), damaged)) {
			t.Errorf("%s absent: %v", file, err)
		}
	}
}

func TestListFormats(t *testing.T) {
	var b bytes.Buffer
	if err := ListFormats(&b, nil); err != nil {
		t.Fatal(err)
	}
	for _, f := range Formats() {
		if !strings.Contains(b.String(), "\n"+f.Name+" ") {
			t.Errorf("%s is not listed", f.Name)
		}
	}
	if _, err := FormatNamed("nope"); fail.KindOf(err) != fail.Usage || !strings.Contains(err.Error(), "verl") {
		t.Error(err)
	}
}
