package corpus

import (
	"os"
	"path/filepath"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/manifest"
)

// tableFiles are the files of formats that rowsOf reads.
var tableFiles = []string{"*.parquet", "*.jsonl", "*.json", "*.jsonl.gz", "*.jsonl.zst", "*.arrow", "*.csv"}

// inputFiles replaces folders by the files in them that match a pattern, in
// order of their names, and our own datasets by their parts.
func inputFiles(in, patterns []string) ([]string, error) {
	var out []string
	for _, path := range in {
		st, err := os.Stat(path)
		if err != nil || !st.IsDir() {
			out = append(out, path) // a missing file is reported by who opens it
			continue
		}
		if _, err := os.Stat(manifest.Path(path)); err == nil {
			m, err := manifest.Open(path)
			if err != nil {
				return nil, err
			}
			for _, p := range m.Data() {
				out = append(out, filepath.Join(path, filepath.FromSlash(p.Name)))
			}
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, fail.Wrap(fail.BadInput, "read folder", path, err)
		}
		before := len(out)
		for _, e := range entries {
			if !e.IsDir() && matches(strings.ToLower(e.Name()), patterns) {
				out = append(out, filepath.Join(path, e.Name()))
			}
		}
		if len(out) == before {
			e := fail.New(fail.BadInput, "read folder", path, "no file %s in it", strings.Join(patterns, " or "))
			e.Hint = "name the files with --in"
			return nil, e
		}
	}
	return out, nil
}

func matches(name string, patterns []string) bool {
	for _, p := range patterns {
		if ok, _ := filepath.Match(p, name); ok {
			return true
		}
	}
	return false
}
