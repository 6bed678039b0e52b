package survey

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/shard"
)

// Finding is what is wrong with a dataset and how it is made right.
type Finding struct {
	Path    string   `json:"path"`
	Program string   `json:"program,omitempty"` // that made it
	Bad     []string `json:"bad,omitempty"`     // files, each with what is wrong
	Shards  string   `json:"shards,omitempty"`  // to be made again: "3,7-9 of 16"
	Inputs  []string `json:"inputs,omitempty"`  // that are not those it was made from
	Redo    string   `json:"redo"`              // what to do
}

// Report is what Verify found.
type Report struct {
	Datasets   int       `json:"datasets"` // finished ones that were read
	Files      int       `json:"files"`
	Bytes      int64     `json:"bytes"`
	Unfinished []Dataset `json:"unfinished"`
	Damaged    []Finding `json:"damaged"`
	Stale      []Finding `json:"stale"` // whole, but made from inputs that have changed since
}

// Verify reads every file of every dataset below root and holds it against its
// manifest, and its inputs against those that are there now.
func Verify(ctx context.Context, root string, told func(dir string)) (*Report, error) {
	dirs, err := folders(root)
	if err != nil {
		return nil, err
	}
	rep := &Report{Unfinished: []Dataset{}, Damaged: []Finding{}, Stale: []Finding{}}
	for _, dir := range dirs {
		if ctx.Err() != nil {
			return nil, fail.Wrap(fail.Interrupted, "", "", context.Canceled)
		}
		told(dir)
		path := manifest.Path(dir)
		redo := fmt.Sprintf("remove %s and make it again: make %s", path, path)
		m, err := manifest.Read(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			rep.Unfinished = append(rep.Unfinished, look(dir))
			continue
		case err != nil:
			rep.Damaged = append(rep.Damaged, Finding{Path: dir, Bad: []string{err.Error()}, Redo: redo})
			continue
		}
		rep.Datasets++
		f := Finding{Path: dir, Program: m.Program, Redo: redo}
		var redone []int
		n := 0
		for _, p := range m.Parts {
			if p.Pruned != "" {
				continue
			}
			rep.Files++
			rep.Bytes += p.Bytes
			_, s, _, sharded := shard.FromName(filepath.Base(p.Name))
			n = max(n, s.N)
			if err := p.Verify(dir); err != nil {
				f.Bad = append(f.Bad, err.Error())
				if sharded && !slices.Contains(redone, s.I) {
					redone = append(redone, s.I)
				}
			}
		}
		if len(f.Bad) > 0 {
			if slices.Sort(redone); len(redone) > 0 {
				f.Shards = shard.Ranges(redone) + " of " + strconv.Itoa(n)
			}
			rep.Damaged = append(rep.Damaged, f)
			continue
		}
		if f.Inputs = changed(m); len(f.Inputs) > 0 {
			f.Redo = "make " + path
			rep.Stale = append(rep.Stale, f)
		}
	}
	return rep, nil
}

// changed lists the inputs of m that are there and are others now. One that is gone
// is no fault of the dataset.
func changed(m *manifest.Manifest) (list []string) {
	for _, in := range m.Inputs {
		if in.Path == "" {
			continue
		}
		info, err := os.Stat(in.Path)
		if err != nil {
			continue
		}
		if info.IsDir() {
			if _, err := os.Stat(manifest.Path(in.Path)); err != nil {
				list = append(list, in.Name+": "+in.Path+" is unfinished")
				continue
			}
		}
		now, err := manifest.InputLike(in.Name, in.Path, m.Inputs, m.Started)
		switch {
		case err != nil:
			list = append(list, in.Name+": "+err.Error())
		case now.SHA256 != in.SHA256:
			list = append(list, in.Name+": "+in.Path+" has changed since")
		}
	}
	return list
}
