package indexer

import (
	"io"
	"os"
	"path/filepath"

	"searchloop/indexer/flat"
	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/shard"
)

// FileInfo is what the head of an index file says, and for a dataset what encoder
// asks it.
type FileInfo struct {
	Path    string       `json:"path"`
	Format  string       `json:"format"`
	Metric  string       `json:"metric"`
	Dim     int          `json:"dim"`
	Rows    int64        `json:"rows"`
	Bytes   int64        `json:"bytes"`
	Dataset *Description `json:"dataset,omitempty"`
}

// Info reads the heads of index files; a folder stands for the index dataset in it.
func Info(paths ...string) ([]FileInfo, error) {
	var out []FileInfo
	for _, path := range paths {
		files := []string{path}
		var d *Description
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			have, err := readDescription(path)
			if err != nil {
				return nil, err
			}
			d, files = &have, nil
			for _, s := range d.Shards {
				files = append(files, filepath.Join(path, s.Name))
			}
		}
		for _, f := range files {
			h, err := flat.Info(f)
			if err != nil {
				return nil, err
			}
			out = append(out, FileInfo{Path: f, Format: h.Format.String(), Metric: h.Metric.String(), Dim: h.Dim, Rows: h.Rows, Bytes: h.Size(), Dataset: d})
			d = nil // once is enough
		}
	}
	return out, nil
}

// Merge joins index files, in the order given, into one at out.
func Merge(paths []string, out string) error {
	s, err := flat.OpenSet(paths)
	if err != nil {
		return err
	}
	defer s.Close()
	return writeFile(out, s.Merge)
}

// Split cuts the index file at path into n files of contiguous rows in the folder
// out and returns their names.
func Split(path string, n int, out string) ([]string, error) {
	f, err := flat.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if n < 1 || int64(n) > max(f.Rows, 1) {
		return nil, fail.New(fail.Usage, "split index", path, "%d parts of %d vectors", n, f.Rows)
	}
	var names []string
	for i := range n {
		s := shard.Spec{I: i, N: n}
		lo, hi := s.Range(f.Rows)
		name := filepath.Join(out, s.Name("part", "index"))
		if err := writeFile(name, func(w io.Writer) error { return f.Cut(w, lo, hi) }); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// writeFile writes a file that appears whole or not at all.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	return f.Commit()
}
