package indexer

import (
	"io"
	"os"
	"path/filepath"

	"searchloop/indexer/faiss"
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
			one, err := fileInfo(f)
			if err != nil {
				return nil, err
			}
			one.Dataset = d
			out = append(out, one)
			d = nil // once is enough
		}
	}
	return out, nil
}

// fileInfo reads the head of a file. Of the kinds that only FAISS reads it is the
// part that all have in common.
func fileInfo(path string) (FileInfo, error) {
	head, err := faiss.ReadHead(path)
	if err == nil && !head.Flat() {
		return FileInfo{Path: path, Format: head.Kind, Metric: head.MetricName(), Dim: head.Dim, Rows: head.Rows, Bytes: head.Bytes}, nil
	}
	h, err := flat.Info(path)
	return FileInfo{Path: path, Format: h.Format.String(), Metric: h.Metric.String(), Dim: h.Dim, Rows: h.Rows, Bytes: h.Size()}, err
}

// Merge joins index files, in the order given, into one at out. Flat files are
// copied; others are joined by FAISS.
func Merge(paths []string, out string) error {
	if h, err := faiss.ReadHead(paths[0]); err == nil && !h.Flat() {
		if err := faiss.Available(); err != nil {
			return err
		}
		return writeFile(out, func(w io.Writer) error { return faiss.Merge(paths, w) })
	}
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
	if h, err := faiss.ReadHead(path); err == nil && !h.Flat() {
		return nil, fail.WithHint(fail.New(fail.Usage, "split index", path, "%s cannot be cut: only flat files can", h.Kind), "build it in shards: index --factory … --shards N")
	}
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
