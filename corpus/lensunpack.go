package corpus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/journal"
	"searchloop/internal/untar"
)

// unpackStats counts what the archives held.
type unpackStats struct {
	Files   int64            `json:"files"`
	Images  int64            `json:"images"`
	Skipped map[string]int64 `json:"skipped,omitempty"` // entries that were not unpacked, by reason
}

// unpacker moves the images of archives into the store. The journal remembers
// every file by archive and name, so that a later attempt only reads what it
// needs to get past it.
type unpacker struct {
	run     *job.Run
	store   *ImageStore
	journal *journal.Journal
	dir     string // where archives are unpacked, on the store's disk
	files   map[string]unpackedFile
	stats   unpackStats
}

// archive unpacks one archive, number i of the job.
func (u *unpacker) archive(ctx context.Context, i int, path string) error {
	prefix := fmt.Sprintf("%d:", i)
	names := map[string]unpackedFile{}
	if done, ok := u.journal.Get(prefix); ok {
		var st untar.Stats
		if err := json.Unmarshal(done, &st); err != nil {
			return fail.Wrap(fail.BadInput, "read journal", u.journal.Path(), err)
		}
		for _, key := range u.journal.Keys() {
			if name, ok := strings.CutPrefix(key, prefix); ok && name != "" {
				names[name] = u.known(key)
			}
		}
		if u.present(names) {
			u.merge(names, st)
			return nil
		}
		clear(names)
	}
	f, err := os.Open(path)
	if err != nil {
		return fail.Wrap(fail.BadInput, "open archive", path, err)
	}
	defer f.Close()
	if err := os.RemoveAll(u.dir); err != nil {
		return fail.Wrap(fail.Disk, "unpack", u.dir, err)
	}
	if err := os.MkdirAll(u.dir, 0o777); err != nil {
		return fail.Wrap(fail.Disk, "unpack", u.dir, err)
	}
	defer os.RemoveAll(u.dir)
	root, err := os.OpenRoot(u.dir)
	if err != nil {
		return fail.Wrap(fail.Disk, "unpack", u.dir, err)
	}
	defer root.Close()
	progress := u.run.Progress("images unpacked", 0)
	defer progress.Done()
	var failed error
	duplicates := int64(0)
	st, err := untar.Extract(&stoppable{ctx, u.run, f, &failed}, root, untar.Limits{}, func(name string, _ int64) {
		if _, twice := names[name]; twice { // the first of a name was moved away
			duplicates++
			root.Remove(filepath.FromSlash(name))
			return
		}
		var x unpackedFile
		if x, failed = u.one(prefix+name, filepath.Join(u.dir, filepath.FromSlash(name))); failed == nil {
			names[name] = x
			progress.Add(1, 0)
		}
	})
	switch {
	case u.run.Interrupted() != nil:
		return u.run.Interrupted()
	case failed != nil:
		return failed
	case err != nil:
		err = fail.Wrap(fail.BadInput, "unpack", path, err)
		if fail.KindOf(err) == fail.Disk {
			return err
		}
		if errors.Is(err, untar.ErrLimit) {
			return fail.WithHint(err, "if it is meant to be so, unpack it yourself and name the folder with --image-root in place of --tar")
		}
		return fail.WithHint(err, "the images that came before are kept; fetch the archive again and run again")
	}
	st.Skipped[untar.SkipDuplicate] += duplicates
	st.Files -= duplicates
	for reason, n := range st.Skipped {
		if n == 0 {
			delete(st.Skipped, reason)
		}
	}
	done, err := json.Marshal(st)
	if err != nil {
		return fail.Wrap(fail.Bug, "unpack", path, err)
	}
	u.merge(names, st)
	// The images must be on the disk before the journal says that they are.
	if err := u.store.Sync(); err != nil {
		return err
	}
	return u.journal.Append(prefix, done)
}

// one takes an unpacked file into the store, or notes why it is no image.
func (u *unpacker) one(key, file string) (unpackedFile, error) {
	if x := u.known(key); x.SHA != "" && u.store.Has(x.SHA) {
		return x, os.Remove(file)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return unpackedFile{}, fail.Wrap(fail.Disk, "unpack", file, err)
	}
	var x unpackedFile
	if bad := CheckImage(data); bad != nil {
		x.Reason = bad.Error()
		err = os.Remove(file)
	} else {
		x.SHA, err = u.store.adopt(file, data)
	}
	if err != nil {
		return x, fail.Wrap(fail.Disk, "unpack", file, err)
	}
	payload, err := json.Marshal(x)
	if err != nil {
		return x, fail.Wrap(fail.Bug, "unpack", file, err)
	}
	return x, u.journal.Append(key, payload)
}

// known is what the journal says of a file.
func (u *unpacker) known(key string) (x unpackedFile) {
	if payload, ok := u.journal.Get(key); ok && json.Unmarshal(payload, &x) != nil {
		return unpackedFile{}
	}
	return x
}

// present says whether every image is in the store.
func (u *unpacker) present(names map[string]unpackedFile) bool {
	for _, x := range names {
		if x.SHA != "" && !u.store.Has(x.SHA) {
			return false
		}
	}
	return true
}

// merge adds an archive's files. A name that two archives give to different
// images belongs to neither.
func (u *unpacker) merge(names map[string]unpackedFile, st untar.Stats) {
	for name, x := range names {
		if old, twice := u.files[name]; twice && old != x {
			x = unpackedFile{Reason: "two archives hold different files of this name"}
		}
		u.files[name] = x
		u.stats.Files++
		if x.SHA != "" {
			u.stats.Images++
		}
	}
	for reason, n := range st.Skipped {
		u.stats.Skipped[reason] += n
	}
}

// stoppable ends reading when the job is asked to stop or has failed.
type stoppable struct {
	ctx    context.Context
	run    *job.Run
	r      io.Reader
	failed *error
}

func (s *stoppable) Read(p []byte) (int, error) {
	if *s.failed != nil {
		return 0, *s.failed
	}
	if err := s.run.Interrupted(); err != nil {
		return 0, err
	}
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(p)
}
