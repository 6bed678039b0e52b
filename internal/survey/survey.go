// Package survey looks at folders of datasets from outside: which there are, how far
// each is, and whether what is there is what its manifest says. It reads manifests,
// journals and summaries, of running jobs too, and changes nothing.
package survey

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/journal"
	"searchloop/internal/manifest"
	"searchloop/internal/shard"
)

// States of a dataset.
const (
	Done       = "done"
	Running    = "running"    // somebody makes it
	Unfinished = "unfinished" // nobody does; run its job again
	Damaged    = "damaged"    // its manifest cannot be read, or a file is missing or of another size
)

// Dataset is one folder.
type Dataset struct {
	Path   string          `json:"path"`
	State  string          `json:"state"`
	Schema string          `json:"schema,omitempty"`
	Rows   int64           `json:"rows"`             // finished; of parts that are done while it is unfinished
	Counts manifest.Counts `json:"counts"`           // of them
	Shards string          `json:"shards,omitempty"` // those that are done, of an unfinished one: "0-3 of 16"
	Begun  int             `json:"begun,omitempty"`  // samples in the journals of shards that are not
	Usage  *manifest.Usage `json:"usage,omitempty"`
	By     string          `json:"by,omitempty"`   // host:process of those who make it
	Last   string          `json:"last,omitempty"` // how the last run ended: interrupted, …
	Error  string          `json:"error,omitempty"`
	Ended  time.Time       `json:"ended,omitzero"`
}

// Look lists the datasets below root, by path. Files that belong to none are passed
// over.
func Look(root string) ([]Dataset, error) {
	dirs, err := folders(root)
	if err != nil {
		return nil, err
	}
	list := []Dataset{}
	for _, dir := range dirs {
		list = append(list, look(dir))
	}
	return list, nil
}

// folders are those with a manifest, a part manifest, or a job at work.
func folders(root string) (dirs []string, err error) {
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		return nil, fail.WithHint(fail.New(fail.BadInput, "look for datasets", root, "no such folder"), "name the folder of a run, for example runs/demo")
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // a running job has removed it
			return nil
		case err != nil:
			return fail.Wrap(fail.Disk, "look for datasets", path, err)
		case d.IsDir() && d.Name() == ".work":
			dirs = append(dirs, filepath.Dir(path))
			return fs.SkipDir
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || strings.HasSuffix(d.Name(), ".launch")):
			return fs.SkipDir
		case d.Name() == manifest.File || isPartManifest(d.Name()):
			dirs = append(dirs, filepath.Dir(path))
		}
		return nil
	})
	slices.Sort(dirs)
	return slices.Compact(dirs), err
}

func isPartManifest(name string) bool {
	prefix, _, ext, ok := shard.FromName(name)
	return ok && prefix == "part" && ext == "json"
}

func look(dir string) Dataset {
	d := Dataset{Path: dir, State: Done}
	d.summary()
	m, err := manifest.Read(manifest.Path(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.unfinished()
		return d
	case err == nil:
		d.take(m)
		d.Ended = m.Ended
		err = m.Sizes(dir)
	}
	if err != nil {
		d.State, d.Error = Damaged, err.Error()
	}
	return d
}

func (d *Dataset) take(m *manifest.Manifest) {
	d.Schema = m.Schema
	d.Rows += m.Rows()
	d.Counts = d.Counts.Add(m.Counts)
	if m.Usage != nil {
		sum := *m.Usage
		if d.Usage != nil {
			sum = d.Usage.Add(sum)
		}
		d.Usage = &sum
	}
}

// unfinished looks at parts, locks and journals.
func (d *Dataset) unfinished() {
	d.State = Unfinished
	var done []int
	n := 0
	entries, _ := os.ReadDir(d.Path)
	for _, e := range entries {
		if _, s, _, ok := shard.FromName(e.Name()); ok && isPartManifest(e.Name()) {
			if m, err := manifest.Read(filepath.Join(d.Path, e.Name())); err == nil && m.Sizes(d.Path) == nil {
				done, n = append(done, s.I), s.N
				d.take(m)
			}
		}
	}
	work := filepath.Join(d.Path, ".work")
	entries, _ = os.ReadDir(work)
	for _, e := range entries {
		path := filepath.Join(work, e.Name())
		_, s, ext, ok := shard.FromName(e.Name())
		if !ok {
			continue
		}
		n = max(n, s.N)
		switch ext {
		case "journal":
			if !slices.Contains(done, s.I) {
				k, _ := journal.Count(path)
				d.Begun += k
			}
		case "lock":
			if by := holder(path); by != "" {
				d.State = Running
				if !strings.Contains(d.By, by) {
					d.By = strings.TrimPrefix(d.By+" "+by, " ")
				}
			}
		}
	}
	slices.Sort(done)
	if n > 0 {
		d.Shards = strings.TrimPrefix(shard.Ranges(done)+" of ", " ") + strconv.Itoa(n)
		if len(done) == 0 {
			d.Shards = "none of " + strconv.Itoa(n)
		}
	}
}

// holder is who has a lock; "" when nobody has. A lock is only tried, and let go at
// once.
func holder(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil {
		return ""
	}
	text, _ := os.ReadFile(path)
	return strings.TrimSpace(string(text))
}

// summary takes the newest one.
func (d *Dataset) summary() {
	paths, _ := filepath.Glob(d.Path + ".summary-*-of-*.json")
	var newest job.Summary
	for _, p := range append(paths, d.Path+".summary.json") {
		text, err := os.ReadFile(p)
		var s job.Summary
		if err == nil && json.Unmarshal(text, &s) == nil && s.Ended.After(newest.Ended) {
			newest = s
		}
	}
	d.Last, d.Error, d.Ended = newest.Kind, newest.Error, newest.Ended
}
