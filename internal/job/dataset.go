package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/shard"
)

// Spec says what a dataset is made of. Two specs that are equal but for Dir and
// the places of the inputs describe the same content.
type Spec struct {
	Dir     string            // folder of the dataset
	Schema  string            // what the rows are
	Version int               // version of the schema
	Inputs  map[string]string // role → file or dataset folder; an empty path means "not given"
	Params  any               // JSON; exactly what the content depends on beside the inputs. A struct or map: its keys are named when it changes
	Ext     string            // of the parts: parquet, arrow, index, jsonl; "" for a dataset of named files (SealFiles), which is one shard always
	Single  bool              // one shard always, whatever --shards says: the job cannot be split
}

// Dataset is the output of a job: a folder that is finished when its manifest is
// there. It is not safe for concurrent use; its Shards may be used side by side.
type Dataset struct {
	run    *Run
	spec   Spec
	params json.RawMessage
	inputs []manifest.Input
	digest string        // see identity
	known  chan struct{} // closed when inputs and digest are known
	unread error         // why they are not
	n      int           // shards
	only   shard.Set     // the shards of this process; nil: all
	began  time.Time

	complete *manifest.Manifest // the valid manifest of this spec; nil when the dataset is not finished
	stale    []string           // why an older dataset in the folder is not this one
	states   []state            // of every shard
	cleaned  bool               // parts of other specs are gone
	shards   []*Shard           // begun and neither committed nor discarded
	skipped  map[int]bool       // held by another process
	counts   manifest.Counts    // committed by this run
	usage    manifest.Usage
	sealed   bool
}

// Dataset looks at the folder and says what is to be done there. It reads inputs
// and manifests and, with --dry-run, prints the plan; it changes nothing. An input
// that is missing or unfinished is fail.BadInput.
func (r *Run) Dataset(s Spec) (*Dataset, error) {
	if s.Dir == "" || s.Schema == "" {
		return nil, fail.WithHint(fail.New(fail.Usage, "", "", "no output folder"), "add --out DIR")
	}
	s.Dir = filepath.Clean(s.Dir)
	n, said, only, err := r.layout()
	if err != nil {
		return nil, err
	}
	if s.Single || s.Ext == "" {
		n, said, only = 1, false, nil
	}
	d := &Dataset{run: r, spec: s, n: n, only: only, began: time.Now(), skipped: map[int]bool{}}
	r.mu.Lock()
	r.datasets = append(r.datasets, d)
	r.mu.Unlock()

	path := manifest.Path(s.Dir)
	old, oldErr := manifest.Read(path)
	if err := d.describe(old); err != nil {
		return nil, err
	}
	if entries, err := os.ReadDir(s.Dir); len(entries) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		if _, err := d.identity(); err != nil { // something to compare with
			return nil, err
		}
	}
	switch {
	case errors.Is(oldErr, fs.ErrNotExist):
	case errors.Is(oldErr, manifest.ErrNewer):
		return nil, fail.WithHint(oldErr, "use the newer program, or another output folder")
	case oldErr != nil:
		d.stale = []string{"the manifest cannot be read: " + oldErr.Error()}
	case old.Spec != d.digest:
		d.stale = d.difference(old)
	case said && layoutOf(old) != 0 && layoutOf(old) != n:
		d.stale = []string{fmt.Sprintf("shards changed: %d → %d", layoutOf(old), n)}
	case r.Fresh:
		d.stale = []string{"--fresh"}
	case r.RetryFailed && old.Counts.Failed > 0:
		d.stale = []string{fmt.Sprintf("--retry-failed: %d rows failed", old.Counts.Failed)}
		d.n = max(1, layoutOf(old))
	default:
		if err := old.Sizes(s.Dir); err != nil {
			d.stale = []string{err.Error()}
			if k := layoutOf(old); k != 0 && !said {
				d.n = k
			}
			break
		}
		d.complete = old
	}
	d.look()
	return d, d.announce()
}

// describe looks at inputs and parameters. Files that have to be read for their
// digests are read behind the caller's back: where nothing was made yet, the job
// has begun before a large input is digested.
func (d *Dataset) describe(old *manifest.Manifest) error {
	var known []manifest.Input
	var began time.Time
	if old != nil {
		known, began = old.Inputs, old.Started
	}
	for name, path := range d.spec.Inputs {
		if path == "" {
			continue
		}
		in, err := manifest.LookAt(name, path, known, began)
		if err != nil {
			return err
		}
		d.inputs = append(d.inputs, in)
	}
	manifest.SortInputs(d.inputs)
	params, err := json.Marshal(d.spec.Params)
	if err != nil {
		return fail.Wrap(fail.Bug, "hash parameters", d.spec.Dir, err)
	}
	d.params, d.known = manifest.Canonical(params), make(chan struct{})
	go func() {
		defer close(d.known)
		d.unread = d.readInputs()
	}()
	return nil
}

// readInputs digests inputs and parameters.
func (d *Dataset) readInputs() error {
	type input struct{ Name, SHA256 string }
	var ins []input
	for i := range d.inputs {
		in := &d.inputs[i]
		if err := in.Read(); err != nil {
			return err
		}
		ins = append(ins, input{in.Name, in.SHA256})
	}
	text, err := json.Marshal(struct {
		Schema  string
		Version int
		Ext     string
		Params  json.RawMessage
		Inputs  []input
	}{d.spec.Schema, d.spec.Version, d.spec.Ext, d.params, ins})
	if err != nil {
		return fail.Wrap(fail.Bug, "hash parameters", d.spec.Dir, err)
	}
	d.digest = manifest.Hash(text)
	return nil
}

// identity waits until inputs and digest are known, and gives the digest.
func (d *Dataset) identity() (string, error) {
	<-d.known
	return d.digest, d.unread
}

// layoutOf is the number of shards a finished dataset was made in, 0 when its
// parts are named files.
func layoutOf(m *manifest.Manifest) int {
	for _, p := range m.Data() {
		if prefix, s, _, ok := shard.FromName(p.Name); ok && prefix == "part" {
			return s.N
		}
	}
	return 0
}

// announce says once what was found.
func (d *Dataset) announce() error {
	switch {
	case d.run.DryRunFlag:
		d.printPlan()
	case d.complete != nil:
		if d.spec.Ext == "" {
			d.run.Log.Info("nothing to do", "dataset", d.spec.Dir, "files", len(d.complete.Data()))
		} else {
			d.run.Log.Info("nothing to do", "dataset", d.spec.Dir, "rows", d.complete.Rows())
		}
		d.freshen()
		return d.tidy() // another process may have begun in a folder that this one has sealed
	default:
		for _, why := range d.stale {
			d.run.Log.Info("stale: "+why, "dataset", d.spec.Dir)
		}
	}
	return nil
}

// freshen gives a manifest that has been found right the time of this check when
// something it was checked against is newer, so that make does not ask again. The
// content stays.
func (d *Dataset) freshen() {
	path := manifest.Path(d.spec.Dir)
	info, err := os.Stat(path)
	if err != nil {
		return
	}
	against := []string{}
	for _, in := range d.inputs {
		if i, err := os.Stat(in.Path); err == nil && i.IsDir() {
			in.Path = manifest.Path(in.Path)
		}
		against = append(against, in.Path)
	}
	if exe, err := os.Executable(); err == nil {
		against = append(against, exe)
	}
	against = append(against, d.run.recipeFiles()...)
	for _, p := range against {
		if i, err := os.Stat(p); err == nil && i.ModTime().After(info.ModTime()) {
			os.Chtimes(path, time.Time{}, d.run.began)
			return
		}
	}
}

// Dir is the dataset's folder.
func (d *Dataset) Dir() string { return d.spec.Dir }

// Digest is the digest of schema, version, parameters and inputs: the Spec field
// of the manifest. It is "" when an input cannot be read; nothing is published
// then.
func (d *Dataset) Digest() string {
	digest, _ := d.identity()
	return digest
}

// Complete says that the dataset is finished and up to date: the caller returns.
func (d *Dataset) Complete() bool { return d.complete != nil }

// Manifest is the manifest of a complete dataset, nil otherwise.
func (d *Dataset) Manifest() *manifest.Manifest { return d.complete }

// DryRun says that only a plan was asked for and printed: the caller returns.
func (d *Dataset) DryRun() bool { return d.run.DryRunFlag }

// Stale says why an older dataset in the folder is not this one; nil when there
// is none, or when it is this one.
func (d *Dataset) Stale() []string { return d.stale }

// Todo lists the shards that this process should make, in order.
func (d *Dataset) Todo() []shard.Spec {
	var list []shard.Spec
	if d.complete != nil {
		return nil
	}
	for i, s := range d.states {
		if d.mine(i) && s.kind != done {
			list = append(list, shard.Spec{I: i, N: d.n})
		}
	}
	return list
}

func (d *Dataset) mine(i int) bool { return d.only == nil || d.only.Has(i) }

// settled says whether nothing is left that this run should have done.
func (d *Dataset) settled() bool {
	if d.complete != nil || d.sealed {
		return true
	}
	for _, s := range d.Todo() {
		if !d.skipped[s.I] {
			return false
		}
	}
	// Shards that others make may be missing; then the dataset is not ours to seal.
	return d.only != nil || len(d.skipped) > 0
}

func (d *Dataset) close() {
	d.run.mu.Lock()
	list := append([]*Shard(nil), d.shards...)
	d.run.mu.Unlock()
	for _, s := range list {
		s.Discard()
	}
}
