package passages

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/shard"
	"searchloop/internal/table"
)

func dataset(t testing.TB, n, parts int) (dir string, rows []corpus.Passage) {
	t.Helper()
	dir = t.TempDir()
	for i := range n {
		p := corpus.Passage{ID: fmt.Sprintf("p%d", i), Contents: fmt.Sprintf("\"Title %d\"\nbody %s", i, strings.Repeat("é ", i%7))}
		if i%3 == 0 {
			p.ImageID = strings.Repeat("a", 64)
		}
		rows = append(rows, p)
	}
	m := &manifest.Manifest{Schema: Schema, Version: Version}
	for i := range parts {
		s := shard.Spec{I: i, N: parts}
		lo, hi := s.Range(int64(n))
		var b bytes.Buffer
		w := table.NewWriter[corpus.Passage](&b)
		check(t, w.Write(rows[lo:hi]...))
		check(t, w.Close())
		name := s.Name("part", "parquet")
		check(t, os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644))
		p, err := manifest.PartOf(dir, name, hi-lo, false)
		check(t, err)
		m.Parts = append(m.Parts, p)
	}
	_, err := m.Write(filepath.Join(dir, manifest.File))
	check(t, err)
	return dir, rows
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRange(t *testing.T) {
	dir, rows := dataset(t, 1000, 3)
	s, err := Open(dir)
	check(t, err)
	if s.Rows() != 1000 || len(s.Digest()) != 64 {
		t.Fatalf("%d rows, digest %q", s.Rows(), s.Digest())
	}
	for _, r := range [][2]int64{{0, 1000}, {0, 0}, {0, 1}, {333, 335}, {334, 667}, {999, 1000}, {500, 2000}, {1000, 1000}} {
		var got []corpus.Passage
		for p, err := range s.Range(r[0], r[1]) {
			check(t, err)
			got = append(got, p)
		}
		if want := rows[r[0]:min(r[1], 1000)]; !slices.Equal(got, want) {
			t.Errorf("rows %d to %d: %d rows, want %d", r[0], r[1], len(got), len(want))
		}
		i := r[0]
		for id, err := range s.IDs(r[0], r[1]) {
			check(t, err)
			if id.ID != rows[i].ID {
				t.Errorf("row %d has id %s", i, id.ID)
			}
			i++
		}
	}
}

// Both ways of reading single rows give the rows, in any order, from many goroutines.
func TestAt(t *testing.T) {
	dir, rows := dataset(t, 3000, 2)
	for _, limit := range []int64{memoryLimit, 0} {
		s, err := Open(dir)
		check(t, err)
		check(t, s.random(limit))
		if (s.all != nil) != (limit > 0) {
			t.Fatalf("limit %d: rows in memory: %v", limit, s.all != nil)
		}
		var wg sync.WaitGroup
		for g := range uint64(8) {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(g, 1))
				for range 100 {
					row := rng.Int64N(3000)
					if p, err := s.At(row); err != nil || p != rows[row] {
						t.Errorf("row %d: %+v, %v", row, p, err)
						return
					}
				}
			})
		}
		wg.Wait()
		for _, row := range []int64{-1, 3000} {
			if _, err := s.At(row); fail.KindOf(err) != fail.Bug {
				t.Errorf("row %d: %v", row, err)
			}
		}
		check(t, s.Close())
	}
}

func TestDamage(t *testing.T) {
	dir, _ := dataset(t, 1000, 2)
	name := filepath.Join(dir, "part-00001-of-00002.parquet")
	good, err := os.ReadFile(name)
	check(t, err)
	read := func() error {
		s, err := Open(dir)
		if err != nil {
			return err
		}
		for _, err := range s.Range(0, s.Rows()) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	random := func() error {
		s, err := Open(dir)
		if err != nil {
			return err
		}
		if err := s.random(0); err != nil {
			return err
		}
		defer s.Close()
		_, err = s.At(999)
		return err
	}
	refused := func(what string, err error) {
		t.Helper()
		if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), filepath.Base(name)) || !strings.Contains(err.Error(), "(") {
			t.Errorf("%s: %v", what, err)
		}
	}
	check(t, os.WriteFile(name, good[:len(good)/2], 0o644))
	refused("cut short", read())
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	check(t, os.WriteFile(name, flipped, 0o644))
	refused("flipped bit", read())

	// A manifest that was made with the damage: the Parquet reader has to notice.
	m, err := manifest.Read(filepath.Join(dir, manifest.File))
	check(t, err)
	for what, change := range map[string]func() ([]byte, int64){
		"no footer":      func() ([]byte, int64) { return good[:len(good)-20], 500 },
		"no Parquet":     func() ([]byte, int64) { return bytes.Repeat([]byte("PAR1"), 100), 500 },
		"rows too many":  func() ([]byte, int64) { return good, 499 },
		"rows too few":   func() ([]byte, int64) { return good, 501 },
		"nothing at all": func() ([]byte, int64) { return nil, 500 },
	} {
		data, n := change()
		check(t, os.WriteFile(name, data, 0o644))
		m.Parts[1], err = manifest.PartOf(dir, filepath.Base(name), n, false)
		check(t, err)
		_, err = m.Write(filepath.Join(dir, manifest.File))
		check(t, err)
		refused(what+", in order", read())
		refused(what+", single rows", random())
	}
	if _, err := Open(t.TempDir()); fail.KindOf(err) != fail.BadInput {
		t.Errorf("no dataset: %v", err)
	}
	m.Schema = "questions"
	_, err = m.Write(filepath.Join(dir, manifest.File))
	check(t, err)
	if _, err := Open(dir); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "questions") {
		t.Errorf("a dataset of questions: %v", err)
	}
}

func BenchmarkAt(b *testing.B) {
	dir, _ := dataset(b, 20000, 2)
	s, err := Open(dir)
	check(b, err)
	check(b, s.random(0))
	rng := rand.New(rand.NewPCG(1, 1))
	for b.Loop() {
		if _, err := s.At(rng.Int64N(20000)); err != nil {
			b.Fatal(err)
		}
	}
}
