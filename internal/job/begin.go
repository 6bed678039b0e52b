package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/shard"
)

// Begin takes a shard of Todo. It returns nil without error when another live
// process makes that shard, or has just made it; the caller goes on with the next.
// The first Begin removes what older specs left in the folder. Commit or Discard
// the shard.
func (d *Dataset) Begin(sh shard.Spec) (*Shard, error) {
	if sh.N != d.n || !sh.Valid() || !d.mine(sh.I) || d.run.DryRunFlag {
		return nil, fail.New(fail.Bug, "begin shard", d.spec.Dir, "%v is not to be made here", sh)
	}
	l, err := d.lockShard(sh)
	if l == nil || err != nil {
		return nil, err
	}
	s := &Shard{Shard: sh, d: d, lock: l, began: time.Now()}
	// Another process may have finished it since this one looked.
	if now := d.inspect(sh.I); now.kind == done && now.part.Verify(d.spec.Dir) == nil {
		d.states[sh.I] = now
		l.release()
		return nil, nil
	}
	if err := d.clean(sh); err != nil {
		l.release()
		return nil, err
	}
	if st := d.states[sh.I]; d.run.RetryFailed && st.part != nil {
		s.previous = st.part
	}
	d.run.mu.Lock()
	d.shards = append(d.shards, s)
	d.run.mu.Unlock()
	return s, nil
}

// lockShard takes the shard's lock; nil when another process keeps it.
func (d *Dataset) lockShard(sh shard.Spec) (*lock, error) {
	path := d.work(sh.Name("part", "lock"))
	for told := false; ; {
		l, holder, dead, err := tryLock(path)
		if err != nil {
			return nil, err
		}
		if l != nil {
			if dead != "" {
				d.run.Log.Info("taking over from a process that ended", "shard", sh.String(), "was", dead)
			}
			return l, nil
		}
		if !told {
			d.run.Log.Info("shard is held by "+holder, "shard", sh.String(), "dataset", d.spec.Dir)
			told = true
		}
		if !d.run.Wait {
			d.skipped[sh.I] = true
			return nil, nil
		}
		select {
		case <-d.run.Stopping():
			return nil, d.run.Interrupted()
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// clean removes what keeps the shard from being made anew: temporary files of dead
// processes, and, once, everything of other specs. What cannot be read is moved
// aside, never deleted; files that are not ours are left alone.
func (d *Dataset) clean(sh shard.Spec) error {
	l, err := waitLock(d.work("publish.lock"))
	if err != nil {
		return err
	}
	defer l.release()
	if err := d.forget(sh); err != nil {
		return err
	}
	if d.cleaned {
		return nil
	}
	d.cleaned = true
	if err := d.sweep(); err != nil {
		return err
	}
	if err := atomicfile.Sweep(d.work("")); err != nil {
		return err
	}
	c := cleaner{d: d, keep: map[string]bool{}}
	if err := c.run(); err != nil {
		return err
	}
	if !c.changed {
		return nil // there is nothing that must not come back after a power cut
	}
	return atomicfile.SyncDir(d.spec.Dir)
}

// forget drops the shard's own journal under --fresh, and what is known of samples
// that killed their process.
func (d *Dataset) forget(sh shard.Spec) error {
	if !d.run.Fresh {
		return nil
	}
	places, crash, known := d.deadlyPaths(sh)
	return errors.Join(remove(d.journalPath(sh)), remove(places), remove(crash), remove(known))
}

// cleaner removes the parts of other specs from a folder.
type cleaner struct {
	d       *Dataset
	keep    map[string]bool // files of valid shards of this spec
	changed bool            // something was removed or moved aside
}

func (c *cleaner) run() error {
	entries, err := os.ReadDir(c.d.spec.Dir)
	if err != nil {
		return fail.Wrap(fail.Disk, "read folder", c.d.spec.Dir, err)
	}
	var foreign []*manifest.Manifest
	var paths []string
	d := c.d
	look := func(name string, own bool) error {
		path := filepath.Join(c.d.spec.Dir, name)
		m, err := manifest.Read(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		digest, unread := d.identity()
		switch {
		case unread != nil:
			return unread
		case err != nil:
			c.changed = true
			return d.aside(name)
		case own && m.Spec == digest:
			for _, p := range m.Parts {
				c.keep[p.Name] = true
			}
		case m.Spec == digest && m.Shard == "" && c.d.run.RetryFailed:
			// Stays until the first shard replaces its part.
		case m.Spec == digest && m.Shard == "":
			paths = append(paths, path) // unfinished from now on, but its parts may be good
		default:
			foreign, paths = append(foreign, m), append(paths, path)
		}
		return nil
	}
	// The manifest first: without it nobody takes the folder for finished.
	if err := look(manifest.File, false); err != nil {
		return err
	}
	for _, e := range entries {
		if prefix, s, ext, ok := shard.FromName(e.Name()); ok && prefix == "part" && ext == "json" && e.Type().IsRegular() {
			if err := look(e.Name(), s.N == c.d.n); err != nil {
				return err
			}
		}
	}
	for _, path := range paths {
		c.changed = true
		if err := remove(path); err != nil {
			return err
		}
	}
	for _, m := range foreign {
		for _, p := range m.Parts {
			if !c.keep[p.Name] {
				if err := remove(filepath.Join(c.d.spec.Dir, filepath.FromSlash(p.Name))); err != nil {
					return err
				}
			}
		}
	}
	return c.orphans(entries)
}

// orphans removes parts of another number of shards that no manifest lists: they
// were being published when their process was killed.
func (c *cleaner) orphans(entries []fs.DirEntry) error {
	for _, e := range entries {
		prefix, s, ext, ok := shard.FromName(e.Name())
		ours := prefix == "part" && ext == c.d.spec.Ext || prefix == "rejects" && ext == "jsonl"
		if ok && ours && s.N != c.d.n && !c.keep[e.Name()] && e.Type().IsRegular() {
			c.changed = true
			if err := remove(filepath.Join(c.d.spec.Dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// aside moves a file that cannot be read out of the way and says so.
func (d *Dataset) aside(name string) error {
	dir := filepath.Join(d.spec.Dir, ".bad")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fail.Wrap(fail.Disk, "move aside", name, err)
	}
	to := filepath.Join(dir, name)
	for i := 2; ; i++ {
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			break
		}
		to = filepath.Join(dir, fmt.Sprintf("%s.%d", name, i))
	}
	d.run.Log.Warn("cannot be read, moved aside", "file", filepath.Join(d.spec.Dir, name), "to", to)
	return fail.Wrap(fail.Disk, "move aside", name, os.Rename(filepath.Join(d.spec.Dir, name), to))
}

// remove deletes a file; a missing one is no error.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail.Wrap(fail.Disk, "remove", path, err)
	}
	return nil
}
