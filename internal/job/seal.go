package job

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"time"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/fault"
	"searchloop/internal/manifest"
	"searchloop/internal/shard"
)

// manifest is a manifest of this spec without parts.
func (d *Dataset) manifest(c manifest.Counts, u *manifest.Usage) (*manifest.Manifest, error) {
	digest, err := d.identity()
	return &manifest.Manifest{
		Schema: d.spec.Schema, Version: d.spec.Version, Spec: digest, Params: d.params, Inputs: d.inputs,
		Counts: c, Usage: u, Program: d.run.Name + " " + Version, Started: d.began.UTC(), Ended: time.Now().UTC(),
	}, err
}

// committed notes that a shard is done.
func (d *Dataset) committed(s *Shard, m *manifest.Manifest) {
	d.run.mu.Lock()
	defer d.run.mu.Unlock()
	d.states[s.Shard.I] = state{kind: done, part: m}
	d.counts = d.counts.Add(m.Counts)
	if m.Usage != nil {
		d.usage = d.usage.Add(*m.Usage)
	}
}

// ended takes a shard off the list of those in work.
func (d *Dataset) ended(s *Shard) {
	d.run.mu.Lock()
	defer d.run.mu.Unlock()
	for i, x := range d.shards {
		if x == s {
			d.shards = append(d.shards[:i], d.shards[i+1:]...)
			return
		}
	}
}

// Seal finishes the dataset: when the shards of all processes are done it writes
// the manifest, with meta as its Meta. Otherwise it says which are missing and
// returns nil: whoever makes the last one seals. meta must not depend on which
// process seals.
func (d *Dataset) Seal(meta any) error {
	if d.complete != nil || d.run.DryRunFlag {
		return nil
	}
	var missing []int
	m, err := d.manifest(manifest.Counts{}, nil)
	if err != nil {
		return err
	}
	var side []manifest.Part
	for i := range d.states {
		st := d.states[i]
		if st.kind != done {
			st = d.inspect(i) // perhaps another process has made it
		}
		if st.kind != done || st.part == nil {
			missing = append(missing, i)
			continue
		}
		m.Counts = m.Counts.Add(st.part.Counts)
		if u := st.part.Usage; u != nil {
			sum := *u
			if m.Usage != nil {
				sum = m.Usage.Add(*u)
			}
			m.Usage = &sum
		}
		if st.part.Started.Before(m.Started) {
			m.Started = st.part.Started
		}
		for _, p := range st.part.Parts {
			if p.Side {
				side = append(side, p)
			} else {
				m.Parts = append(m.Parts, p)
			}
		}
	}
	if len(missing) > 0 {
		d.run.Log.Info("not finished", "dataset", d.spec.Dir, "missing_shards", shard.Ranges(missing), "of", d.n)
		return nil
	}
	sort.Slice(side, func(i, j int) bool { return side[i].Name < side[j].Name })
	m.Parts = append(m.Parts, side...)
	return d.seal(m, meta)
}

// SealFiles finishes a dataset of named files (a checkpoint, an encoder) that the
// caller has written into the folder, each with atomicfile. names use slashes;
// rejects.jsonl is a side part.
func (d *Dataset) SealFiles(names []string, meta any) error {
	if d.complete != nil || d.run.DryRunFlag {
		return nil
	}
	m, err := d.manifest(manifest.Counts{}, nil)
	if err != nil {
		return err
	}
	names = append([]string(nil), names...)
	sort.Strings(names)
	for i, name := range names {
		if !filepath.IsLocal(filepath.FromSlash(name)) || name == manifest.File || i > 0 && names[i-1] == name {
			return fail.New(fail.Bug, "seal dataset", d.spec.Dir, "impossible file name %q", name)
		}
		p, err := manifest.PartOf(d.spec.Dir, name, 0, name == "rejects.jsonl")
		if err != nil {
			return err
		}
		m.Parts = append(m.Parts, p)
	}
	sort.SliceStable(m.Parts, func(i, j int) bool { return !m.Parts[i].Side && m.Parts[j].Side })
	return d.seal(m, meta)
}

// seal writes the manifest as the very last thing: what only an unfinished dataset
// needs is gone before, since nobody looks into a finished one again.
func (d *Dataset) seal(m *manifest.Manifest, meta any) error {
	if meta != nil {
		text, err := json.Marshal(meta)
		if err != nil {
			return fail.Wrap(fail.Bug, "seal dataset", d.spec.Dir, err)
		}
		m.Meta = manifest.Canonical(text)
	}
	if err := fault.Point("dataset.seal"); err != nil {
		return fail.Wrap(fail.Disk, "seal dataset", d.spec.Dir, err)
	}
	d.close()
	if err := d.tidy(); err != nil {
		return err
	}
	path := manifest.Path(d.spec.Dir)
	if _, err := manifest.Read(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		if err := d.aside(manifest.File); err != nil {
			return err
		}
	}
	wrote, err := m.Write(path)
	if err != nil {
		return err
	}
	if err := fault.Point("dataset.sealed"); err != nil {
		return fail.Wrap(fail.Disk, "seal dataset", d.spec.Dir, err)
	}
	if !wrote {
		d.freshen()
	}
	d.sealed = true
	d.counts = m.Counts
	if d.spec.Ext == "" {
		d.run.Log.Info("finished", "dataset", d.spec.Dir, "files", len(m.Data()))
	} else {
		d.run.Log.Info("finished", "dataset", d.spec.Dir, "rows", m.Rows(), "failed", m.Counts.Failed, "rejected", m.Counts.Rejected)
	}
	return nil
}

// tidy removes what only an unfinished dataset needs, unless another process is at
// work in the folder.
func (d *Dataset) tidy() error {
	entries, err := os.ReadDir(d.work(""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail.Wrap(fail.Disk, "read folder", d.work(""), err)
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".lock" {
			continue
		}
		l, _, _, err := tryLock(d.work(e.Name()))
		if l == nil || err != nil {
			return err
		}
		defer l.release()
	}
	if err := os.RemoveAll(d.work("")); err != nil {
		return fail.Wrap(fail.Disk, "remove", d.work(""), err)
	}
	return d.sweep()
}

// sweep removes what killed writers left in the folder and in its own folders:
// files that lie deeper, as a store's images do, have owners that sweep.
func (d *Dataset) sweep() error {
	entries, err := os.ReadDir(d.spec.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail.Wrap(fail.Disk, "read folder", d.spec.Dir, err)
	}
	err = atomicfile.Sweep(d.spec.Dir)
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, atomicfile.Sweep(filepath.Join(d.spec.Dir, e.Name())))
		}
	}
	return err
}
