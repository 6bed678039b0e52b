package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"searchloop/internal/fail"
)

// tempMark stands between the base name and the writer's process id.
const tempMark = ".tmp-"

// IsTemp says whether a file name is that of a temporary file of this package.
func IsTemp(name string) bool {
	return strings.HasPrefix(name, ".") && strings.Contains(name, tempMark)
}

// Sweep removes the temporary files in dir whose writers are dead, and no others.
// It does not descend into folders. A missing dir is no error.
func Sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fail.Wrap(fail.Disk, "sweep", dir, err)
	}
	var errs []error
	for _, e := range entries {
		if IsTemp(e.Name()) && e.Type().IsRegular() {
			errs = append(errs, removeAbandoned(filepath.Join(dir, e.Name())))
		}
	}
	return fail.Wrap(fail.Disk, "sweep", dir, errors.Join(errs...))
}

func removeAbandoned(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return nil // in use, or a file system that cannot tell
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// SyncDir makes renames and removals in dir durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return diskError("sync folder", dir, 0, err)
	}
	defer d.Close()
	// Some file systems cannot sync a folder and say EINVAL; nothing can be done there.
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return diskError("sync folder", dir, 0, err)
	}
	return nil
}

// Free is the number of bytes an ordinary user can still write in the file
// system of the nearest existing folder at or above dir.
func Free(dir string) (int64, error) {
	for {
		var st syscall.Statfs_t
		err := syscall.Statfs(dir, &st)
		if err == nil {
			return int64(st.Bavail) * int64(st.Bsize), nil
		}
		up := filepath.Dir(dir)
		if !errors.Is(err, syscall.ENOENT) || up == dir {
			return 0, fail.Wrap(fail.Disk, "ask for free space", dir, err)
		}
		dir = up
	}
}

// Room returns a fail.Disk error when dir's file system has less than 1.5 times
// the need bytes left: a job that can foresee its output asks before it begins.
func Room(dir string, need int64) error {
	free, err := Free(dir)
	if err != nil {
		return err
	}
	if want := need + need/2; free < want {
		return &fail.Error{Kind: fail.Disk, Op: "reserve space", Path: dir, Err: syscall.ENOSPC, Hint: fmt.Sprintf("%d bytes are wanted, %d are free", want, free)}
	}
	return nil
}

// diskError is a fail.Disk error that says how much space path needs.
func diskError(op, path string, need int64, err error) error {
	e := &fail.Error{Kind: fail.Disk, Op: op, Path: path, Err: err}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		free, _ := Free(filepath.Dir(path))
		e.Hint = fmt.Sprintf("the file needs at least %d bytes, %d are free; free space and run again", need, free)
	}
	return e
}
