package job

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"searchloop/internal/fail"
)

// lock is an advisory lock (flock) on a file that says who holds it. The system
// drops it when its holder dies, on another host of a shared file system too.
type lock struct{ f *os.File }

// tryLock takes the lock at path. A nil lock without error means that holder has
// it. dead names a holder that died with it.
func tryLock(path string) (l *lock, holder, dead string, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, "", "", fail.Wrap(fail.Disk, "lock", path, err)
	}
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			if errors.Is(err, os.ErrNotExist) { // the folder was removed by a process that sealed
				if err = os.MkdirAll(filepath.Dir(path), 0o777); err == nil {
					continue
				}
			}
			return nil, "", "", fail.Wrap(fail.Disk, "lock", path, err)
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		who, _ := io.ReadAll(io.LimitReader(f, 300))
		text := strings.TrimSpace(string(who))
		if errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, text, "", nil
		}
		if err != nil {
			f.Close()
			return nil, "", "", fail.WithHint(fail.Wrap(fail.Disk, "lock", path, err), "the file system must support flock")
		}
		if !sameFile(f, path) { // removed between open and flock: another process would lock another file
			f.Close()
			continue
		}
		host, _ := os.Hostname()
		f.Truncate(0)
		f.WriteAt(fmt.Appendf(nil, "%s:%d\n", host, os.Getpid()), 0)
		return &lock{f}, "", text, nil
	}
}

// TryLock takes the lock at path until release is called or the process ends. A nil
// release without error means that holder has it.
func TryLock(path string) (release func(), holder string, err error) {
	l, holder, _, err := tryLock(path)
	if l == nil {
		return nil, holder, err
	}
	return l.release, "", nil
}

// waitLock takes the lock at path, however long that takes; holders are brief.
func waitLock(path string) (*lock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, fail.Wrap(fail.Disk, "lock", path, err)
	}
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return nil, fail.Wrap(fail.Disk, "lock", path, err)
		}
		for {
			if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
				break
			}
		}
		if err != nil {
			f.Close()
			return nil, fail.Wrap(fail.Disk, "lock", path, err)
		}
		if sameFile(f, path) {
			return &lock{f}, nil
		}
		f.Close()
	}
}

func sameFile(f *os.File, path string) bool {
	a, err1 := f.Stat()
	b, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

// release drops the lock and the name of its holder.
func (l *lock) release() {
	if l == nil || l.f == nil {
		return
	}
	l.f.Truncate(0)
	l.f.Close()
	l.f = nil
}
