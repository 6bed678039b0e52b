// Command build measures the index job over 1 M vectors of 768 numbers against the
// disk: the same vectors' files copied and forced to it, by turns. It compares the
// job's peak memory with that over a tenth of the vectors.
//
//	GOEXPERIMENT=simd go run ./indexer/bench/build --out build/bench/build.json
//
// It needs 10 GB of disk in --dir, which is emptied afterwards.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"searchloop/corpus"
	"searchloop/indexer/passages"
	"searchloop/indexer/vectors"
	"searchloop/internal/atomicfile"
	"searchloop/internal/bench"
	"searchloop/internal/manifest"
	"searchloop/internal/shard"
	"searchloop/internal/table"
)

var (
	dir   = flag.String("dir", "build/bench", "folder in which the vectors and indices are made and removed")
	rows  = flag.Int("rows", 1_000_000, "vectors")
	dim   = flag.Int("dim", 768, "their dimension")
	times = flag.Int("times", 3, "turns of each")
	out   = flag.String("out", "build/bench/build.json", "file of the figures")
	only  = flag.String("make", "", "only make this folder's vectors; the program calls itself so, because a process counts its parent's memory as its own")
)

func main() {
	flag.Parse()
	do := run
	if *only != "" {
		do = func() error { return prepare(*only, *rows) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	if err := os.MkdirAll(*dir, 0o777); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(*dir, "index-build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := bench.Build(tmp, "./jobs/index"); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	all, tenth := filepath.Join(tmp, "all"), filepath.Join(tmp, "tenth")
	for dir, n := range map[string]int{all: *rows, tenth: max(1, *rows/10)} {
		if _, _, err := bench.Run(self, "--make", dir, fmt.Sprint("--rows=", n), fmt.Sprint("--dim=", *dim)); err != nil {
			return err
		}
	}
	type turn struct {
		ours   bench.Used
		copied float64 // seconds
	}
	var turns []turn
	for n := range *times {
		var t turn
		if t.ours, err = index(tmp, all, n); err == nil {
			t.copied, err = copyFiles(all, filepath.Join(tmp, "copy"))
		}
		if err != nil {
			return err
		}
		turns = append(turns, t)
	}
	small, err := index(tmp, tenth, 0)
	if err != nil {
		return err
	}
	slices.SortFunc(turns, func(x, y turn) int { return cmp.Compare(x.copied/x.ours.Seconds, y.copied/y.ours.Seconds) })
	t := turns[len(turns)/2]
	mb := 4 * float64(*rows) * float64(*dim) / 1e6
	what := fmt.Sprintf("%d x %d", *rows, *dim)
	return bench.Write(*out, []bench.Row{
		{Name: "index build, " + what, Unit: "MB/s", Ours: mb / t.ours.Seconds, Peer: mb / t.copied, PeerName: "copy and fsync",
			Note: fmt.Sprintf("float32, one shard; SHA-256 of vectors and index; both forced to the disk; processor time %.1f s; seconds %.1f and %.1f", t.ours.CPU, t.ours.Seconds, t.copied)},
		{Name: "index build, peak memory, " + what, Unit: "MB", Ours: t.ours.Peak, Peer: small.Peak, PeerName: "a tenth of the vectors", Bound: .8,
			Note: fmt.Sprintf("the vectors are %.0f MB", mb)},
	})
}

// index runs the job over the datasets in dir and removes what it made.
func index(tmp, dir string, n int) (bench.Used, error) {
	to := filepath.Join(tmp, fmt.Sprint("index-", n))
	unix.Sync() // nobody waits for what others wrote
	u, _, err := bench.Run(filepath.Join(tmp, "index"), "--vectors", filepath.Join(dir, "vectors"), "--passages", filepath.Join(dir, "passages"), "--out", to, "--progress", "none")
	if err != nil {
		return u, err
	}
	return u, os.RemoveAll(to)
}

// copyFiles copies the vectors' files of a corpus into one and gives the seconds
// until they are on the disk.
func copyFiles(dir, to string) (float64, error) {
	names, err := filepath.Glob(filepath.Join(dir, "vectors", "*.arrow"))
	if err != nil {
		return 0, err
	}
	unix.Sync()
	began := time.Now()
	w, err := os.Create(to)
	if err != nil {
		return 0, err
	}
	defer w.Close()
	for _, name := range names {
		r, err := os.Open(name)
		if err != nil {
			return 0, err
		}
		// Through memory, as a job's bytes go.
		_, err = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, 1<<20))
		if err = cmp.Or(err, r.Close()); err != nil {
			return 0, err
		}
	}
	if err := w.Sync(); err != nil {
		return 0, err
	}
	took := time.Since(began).Seconds()
	return took, os.Remove(to)
}

// prepare makes n passages and their vectors in dir, as prep and embed do.
func prepare(dir string, n int) error {
	const parts = 4
	space := vectors.Space{Encoder: vectors.ServedModel("random"), Dim: *dim, Pooling: vectors.ServedPooling, Normalized: true}
	meta, err := json.Marshal(map[string]any{"space": space, "encoder": "http://127.0.0.1"})
	if err != nil {
		return err
	}
	p := &manifest.Manifest{Schema: passages.Schema, Version: passages.Version}
	v := &manifest.Manifest{Schema: vectors.Schema, Version: vectors.Version, Meta: meta}
	r := rand.New(rand.NewPCG(1, 2))
	pool := make([]float32, 4096+*dim)
	for i := range pool {
		pool[i] = float32(r.NormFloat64())
	}
	for i := range parts {
		s := shard.Spec{I: i, N: parts}
		lo, hi := s.Range(int64(n))
		err := dataset(filepath.Join(dir, "passages"), s, "parquet", hi-lo, p, func(w io.Writer) error {
			t := table.NewWriter[corpus.Passage](w)
			for row := lo; row < hi; row++ {
				if err := t.Write(corpus.Passage{ID: fmt.Sprint(row), Contents: "\"Title\"\nText."}); err != nil {
					return err
				}
			}
			return t.Close()
		})
		if err != nil {
			return err
		}
		err = dataset(filepath.Join(dir, "vectors"), s, "arrow", hi-lo, v, func(w io.Writer) error {
			t, err := vectors.NewWriter(w, space, vectors.Float32)
			if err != nil {
				return err
			}
			for row := lo; row < hi; row++ {
				at := r.IntN(4096)
				if err := t.Write([]string{fmt.Sprint(row)}, pool[at:at+*dim]); err != nil {
					return err
				}
			}
			return t.Close()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// dataset adds a part to the dataset in dir; the last one completes it.
func dataset(dir string, s shard.Spec, ext string, rows int64, m *manifest.Manifest, write func(io.Writer) error) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	name := s.Name("part", ext)
	f, err := atomicfile.Create(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Commit(); err != nil {
		return err
	}
	p, err := manifest.PartOf(dir, name, rows, false)
	if err != nil {
		return err
	}
	m.Parts = append(m.Parts, p)
	if s.I == s.N-1 {
		_, err = m.Write(filepath.Join(dir, manifest.File))
	}
	return err
}
