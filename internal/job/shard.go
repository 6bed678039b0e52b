package job

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/fault"
	"searchloop/internal/journal"
	"searchloop/internal/manifest"
	"searchloop/internal/shard"
)

// Shard is one part of a dataset that is being made. Nothing of it is visible
// before Commit. Journal, Reject and Use may be called from many goroutines; the
// writers may not.
type Shard struct {
	Shard shard.Spec

	d        *Dataset
	lock     *lock
	began    time.Time
	previous *manifest.Manifest
	over     bool

	mu      sync.Mutex
	journal *journal.Journal
	files   []*partFile // the part first
	rejects *rejects
	usage   *manifest.Usage
}

// partFile is a file being written, with its digest.
type partFile struct {
	f    *atomicfile.File
	b    *bufio.Writer
	sum  hash.Hash
	size int64
	name string
	side bool
}

func (p *partFile) Write(b []byte) (int, error) {
	p.size += int64(len(b))
	if len(b) < directBytes {
		p.sum.Write(b)
		return p.b.Write(b)
	}
	// Digesting large pieces takes as long as writing them: another core may do it.
	summed := make(chan struct{})
	go func() { p.sum.Write(b); close(summed) }()
	defer func() { <-summed }()
	if err := p.b.Flush(); err != nil {
		return 0, err
	}
	return p.f.Write(b)
}

// directBytes is the size from which a write goes past the buffer: it would only be
// copied into it and out again.
const directBytes = 64 << 10

// Journal opens the shard's journal, which an interrupted attempt with the same
// parameters and inputs may have begun. Commit and Discard close it.
func (s *Shard) Journal() (*journal.Journal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.journal != nil {
		return s.journal, nil
	}
	digest, err := s.d.identity()
	if err != nil {
		return nil, err
	}
	j, err := journal.Open(s.d.journalPath(s.Shard), digest)
	if err != nil {
		return nil, err
	}
	log := s.d.run.Log.With("journal", j.Path())
	if dmg := j.Damage(); dmg.Aside != "" {
		log.Warn("the journal was damaged; its rest is kept aside", "aside", dmg.Aside, "samples_to_redo", dmg.Records)
	} else if dmg.Stale != "" {
		log.Info("the journal was of other parameters or inputs; moved aside", "to", dmg.Stale)
	}
	if j.Len() > 0 {
		log.Info("continuing", "finished", j.Len())
	}
	s.journal = j
	return j, nil
}

// Previous is the path of the finished part that --retry-failed replaces: its
// good rows can be kept. It is "" otherwise.
func (s *Shard) Previous() string {
	if s.previous == nil {
		return ""
	}
	for _, p := range s.previous.Data() {
		return filepath.Join(s.d.spec.Dir, p.Name)
	}
	return ""
}

// Part begins the shard's part file, part-00003-of-00016.<Ext>. Call it once.
func (s *Shard) Part() (io.Writer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.files) > 0 && !s.files[0].side {
		return nil, fail.New(fail.Bug, "begin part", s.d.spec.Dir, "begun twice")
	}
	p, err := s.create(s.Shard.Name("part", s.d.spec.Ext), false)
	if err != nil {
		return nil, err
	}
	s.files = append([]*partFile{p}, s.files...)
	return p, nil
}

// Extra begins a further file of the dataset. It is published with the part and
// listed in the manifest as a side part. Its name must differ from shard to
// shard; s.Shard.Name makes one.
func (s *Shard) Extra(name string) (io.Writer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !filepath.IsLocal(name) || strings.HasPrefix(name, ".") || name == manifest.File || strings.HasPrefix(name, "part-") {
		return nil, fail.New(fail.Bug, "begin file", s.d.spec.Dir, "impossible name %q", name)
	}
	for _, p := range s.files {
		if p.name == name {
			return nil, fail.New(fail.Bug, "begin file", s.d.spec.Dir, "%s begun twice", name)
		}
	}
	p, err := s.create(name, true)
	if err != nil {
		return nil, err
	}
	s.files = append(s.files, p)
	return p, nil
}

// Restart empties a file that Extra began, to be written anew.
func (s *Shard) Restart(name string) (io.Writer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.files {
		if p.name == name && p.side {
			p.b.Reset(p.f)
			p.sum.Reset()
			p.size = 0
			return p, p.f.Restart()
		}
	}
	return nil, fail.New(fail.Bug, "begin file again", s.d.spec.Dir, "%s was not begun", name)
}

func (s *Shard) create(name string, side bool) (*partFile, error) {
	if s.over {
		return nil, fail.New(fail.Bug, "begin file", s.d.spec.Dir, "the shard is committed or discarded")
	}
	f, err := atomicfile.Create(filepath.Join(s.d.spec.Dir, name))
	if err != nil {
		return nil, err
	}
	return &partFile{f: f, b: bufio.NewWriterSize(f, 256<<10), sum: sha256.New(), name: name, side: side}, nil
}

// Use adds to the record of what services were asked for.
func (s *Shard) Use(u manifest.Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := u
	if s.usage != nil {
		sum = s.usage.Add(u)
	}
	s.usage = &sum
}

// Reject records an input row that is not in the part, and why. The rejects are
// published with the part as rejects-00003-of-00016.jsonl, sorted, and counted.
// After an interruption the caller rejects again what it rejects.
func (s *Shard) Reject(path string, row int64, sample string, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rejects == nil {
		s.rejects = newRejects()
	}
	s.rejects.add(path, row, sample, reason)
}

// Rejected is the number of rows rejected so far.
func (s *Shard) Rejected() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rejects == nil {
		return 0
	}
	return s.rejects.count
}

// Commit publishes the part of that many rows, the extra files and the rejects,
// and then the part manifest that makes the shard done. c.Rejected is filled in.
// With c.In > 0 it checks that no row was lost: In = rows + Rejected.
func (s *Shard) Commit(rows int64, c manifest.Counts) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return fail.New(fail.Bug, "commit shard", s.d.spec.Dir, "already committed or discarded")
	}
	if len(s.files) == 0 || s.files[0].side {
		return fail.New(fail.Bug, "commit shard", s.d.spec.Dir, "no part was written")
	}
	if s.rejects != nil && s.rejects.count > 0 {
		c.Rejected = s.rejects.count
		if err := s.writeRejects(); err != nil {
			return err
		}
	}
	if c.In > 0 && c.In != rows+c.Rejected {
		return fail.New(fail.Bug, "commit shard", s.d.spec.Dir, "rows were lost: %d in, %d out, %d rejected", c.In, rows, c.Rejected)
	}
	m, err := s.d.manifest(c, s.usage)
	if err != nil {
		return err
	}
	m.Shard, m.Started = s.Shard.String(), s.began.UTC()
	for _, p := range s.files {
		if err := p.b.Flush(); err != nil {
			return fail.Wrap(fail.Disk, "write", p.f.Path(), err)
		}
		part := manifest.Part{Name: filepath.ToSlash(p.name), Bytes: p.size, SHA256: hex.EncodeToString(p.sum.Sum(nil)), Side: p.side}
		if !p.side {
			part.Rows = rows
		}
		m.Parts = append(m.Parts, part)
	}
	if s.journal != nil {
		if err := s.journal.Close(); err != nil {
			return err
		}
	}
	if err := s.publish(m); err != nil {
		return err
	}
	s.d.committed(s, m)
	s.end()
	return nil
}

// publish makes the shard visible: never a part manifest beside other parts than
// its own, and no dataset manifest beside a part that it does not describe.
func (s *Shard) publish(m *manifest.Manifest) error {
	l, err := waitLock(s.d.work("publish.lock"))
	if err != nil {
		return err
	}
	defer l.release()
	path := s.d.partManifest(s.Shard)
	for _, old := range []string{manifest.Path(s.d.spec.Dir), path} {
		if err := remove(old); err != nil {
			return err
		}
	}
	if err := fault.Point("shard.part"); err != nil {
		return fail.Wrap(fail.Disk, "publish part", s.d.spec.Dir, err)
	}
	for _, p := range s.files {
		if err := p.f.Commit(); err != nil {
			return err
		}
	}
	if err := fault.Point("shard.manifest"); err != nil {
		return fail.Wrap(fail.Disk, "publish part manifest", s.d.spec.Dir, err)
	}
	_, err = m.Write(path)
	return err
}

func (s *Shard) writeRejects() error {
	name := s.Shard.Name("rejects", "jsonl")
	p, err := s.create(name, true)
	if err != nil {
		return err
	}
	s.files = append(s.files, p)
	if err := s.rejects.writeTo(p); err != nil {
		return fail.Wrap(fail.Disk, "write rejects", p.f.Path(), err)
	}
	s.d.run.Log.Warn("rows were rejected", "count", s.rejects.count, "kinds", s.rejects.kinds(), "see", p.f.Path())
	return nil
}

// Discard gives the shard up: its temporary files go, its journal stays. After
// Commit it does nothing, so it can always be deferred.
func (s *Shard) Discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	for _, p := range s.files {
		p.f.Discard()
	}
	if s.journal != nil {
		s.journal.Close()
	}
	s.end()
}

func (s *Shard) end() {
	s.over = true
	if s.rejects != nil {
		s.rejects.close()
	}
	s.lock.release()
	s.d.ended(s)
}
