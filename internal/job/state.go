package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"searchloop/internal/manifest"
	"searchloop/internal/shard"
)

// kind of a shard's state.
type kind string

const (
	done  kind = "done"
	todo  kind = "todo"
	stale kind = "stale"
)

// state of one shard in the folder.
type state struct {
	kind kind
	why  string
	part *manifest.Manifest // of a done shard, or of one whose failed rows are taken again
}

// look fills in the state of every shard. The bytes of done shards that this
// process is responsible for are verified, unless the whole dataset is complete.
func (d *Dataset) look() {
	d.states = make([]state, d.n)
	for i := range d.states {
		if d.complete != nil {
			d.states[i] = state{kind: done}
			continue
		}
		d.states[i] = d.inspect(i)
		if d.spec.Ext == "" && len(d.stale) > 0 { // named files have no part manifests to tell by
			d.states[i] = state{kind: stale, why: join(d.stale)}
		}
		if s := &d.states[i]; s.kind == done && d.mine(i) && !(d.run.Trust && d.run.DryRunFlag) {
			if err := s.part.Verify(d.spec.Dir); err != nil {
				*s = state{kind: todo, why: err.Error()}
			}
		}
	}
}

// inspect reads one shard's part manifest and the sizes of its files.
func (d *Dataset) inspect(i int) state {
	sh := shard.Spec{I: i, N: d.n}
	m, err := manifest.Read(d.partManifest(sh))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return state{kind: todo, why: d.unfinished(sh)}
	case err != nil:
		return state{kind: todo, why: "the part manifest cannot be read: " + err.Error()}
	}
	digest, err := d.identity()
	switch {
	case err != nil:
		return state{kind: todo, why: err.Error()}
	case m.Spec != digest:
		why := d.difference(m)
		if len(d.stale) == 0 {
			d.stale = why
		}
		return state{kind: stale, why: join(why)}
	}
	if err := m.Sizes(d.spec.Dir); err != nil {
		return state{kind: todo, why: err.Error()}
	}
	switch {
	case d.run.Fresh:
		return state{kind: stale, why: "--fresh"}
	case d.run.RetryFailed && m.Counts.Failed > 0:
		return state{kind: stale, why: fmt.Sprintf("--retry-failed: %d rows failed", m.Counts.Failed), part: m}
	}
	return state{kind: done, part: m}
}

// unfinished says what there is of a shard without part manifest.
func (d *Dataset) unfinished(sh shard.Spec) string {
	if info, err := os.Stat(d.journalPath(sh)); err == nil {
		return fmt.Sprintf("unfinished, a journal of %d bytes is there to continue", info.Size())
	}
	if _, err := os.Stat(filepath.Join(d.spec.Dir, sh.Name("part", d.spec.Ext))); err == nil {
		return "unfinished, the part has no manifest"
	}
	return "not made yet"
}

func (d *Dataset) partManifest(s shard.Spec) string {
	return filepath.Join(d.spec.Dir, s.Name("part", "json"))
}

// workDir is the folder of an unfinished dataset's journals and locks.
const workDir = ".work"

func (d *Dataset) work(name string) string { return filepath.Join(d.spec.Dir, workDir, name) }

func (d *Dataset) journalPath(s shard.Spec) string { return JournalPath(d.spec.Dir, s) }

// JournalPath is the journal of a shard of the dataset in dir.
func JournalPath(dir string, s shard.Spec) string {
	return filepath.Join(dir, workDir, s.Name("part", "journal"))
}
