// Package atomicfile writes files that appear whole or not at all: a temporary
// file in the same folder, fsync, close, rename, fsync of the folder. What goes
// in is bytes; what comes out is a complete file or an error that names the path.
// It knows no format and no dataset.
//
// A temporary file is locked (flock) while its writer lives, so that Sweep can
// tell an abandoned one from one in use, whatever host or container wrote it.
// One process killed at any moment leaves at most temporary files.
package atomicfile

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"searchloop/internal/fail"
	"searchloop/internal/fault"
)

// File is a file that is being written. Nothing is visible under its final name
// before Commit. A File is not safe for concurrent use.
type File struct {
	*os.File
	path    string
	lock    *os.File // a duplicate descriptor: keeps the flock between close and rename
	written int64
	handed  int64 // of written, what StartWriting was called for
	done    bool
}

// handOver is how many bytes are gathered before the disk is told to begin with
// them: a large file is nearly on the disk when Commit asks for the rest.
const handOver = 4 << 20

// Create begins a file that Commit will publish as path. It makes the folder.
func Create(path string) (*File, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, diskError("create folder", dir, 0, err)
	}
	for range 100 {
		f, err := create(path)
		if err != nil {
			return nil, diskError("create", path, 0, err)
		}
		if f != nil {
			return f, nil
		}
	}
	return nil, fail.New(fail.Disk, "create", path, "temporary files keep disappearing; another process clears this folder")
}

// create makes one try; nil without error means that a Sweep took the new file
// before it was locked.
func create(path string) (*File, error) {
	var r [6]byte
	rand.Read(r[:])
	temp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s%s%d-%s", filepath.Base(path), tempMark, os.Getpid(), hex.EncodeToString(r[:])))
	f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		f.Close()
		os.Remove(temp)
		return nil, err
	}
	syscall.CloseOnExec(fd)
	lock := os.NewFile(uintptr(fd), temp)
	err = syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
	taken := errors.Is(err, syscall.EWOULDBLOCK)
	// File systems without flock go on unlocked; Sweep leaves their files alone.
	if _, err := os.Lstat(temp); taken || errors.Is(err, fs.ErrNotExist) {
		lock.Close()
		f.Close()
		os.Remove(temp)
		return nil, nil
	}
	return &File{File: f, path: path, lock: lock}, nil
}

// Path is the final name.
func (f *File) Path() string { return f.path }

// Write appends to the file. A full disk is a fail.Disk error with the path.
func (f *File) Write(p []byte) (int, error) {
	err := fault.Point("atomicfile.write")
	n := 0
	if err == nil {
		n, err = f.File.Write(p)
	}
	f.written += int64(n)
	if err != nil {
		return n, diskError("write", f.path, f.written+int64(len(p)-n), err)
	}
	if more := f.written - f.handed; more >= handOver {
		StartWriting(f.File, f.handed, more)
		f.handed = f.written
	}
	return n, nil
}

// Restart empties the file: what was written counts for nothing.
func (f *File) Restart() error {
	err := f.Truncate(0)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return diskError("empty", f.path, 0, err)
	}
	f.written, f.handed = 0, 0
	return nil
}

// WriteString appends s.
func (f *File) WriteString(s string) (int, error) { return f.Write([]byte(s)) }

// ReadFrom appends what r holds. It exists because io.Copy would otherwise use
// the embedded file's and pass Write by.
func (f *File) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{f}, r)
}

// Commit publishes the file under its final name, replacing an older one. After
// an error the final name is as it was. A temporary file that could not be
// renamed is kept and named in the error; otherwise it is removed.
func (f *File) Commit() error {
	if f.done {
		return fail.New(fail.Bug, "commit", f.path, "already committed or discarded")
	}
	f.done = true
	defer f.lock.Close()
	temp := f.Name()
	err := fault.Point("atomicfile.sync")
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.File.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fault.Point("atomicfile.close")
	}
	if err != nil {
		os.Remove(temp)
		return diskError("write", f.path, f.written, err)
	}
	if err = fault.Point("atomicfile.rename"); err == nil {
		err = os.Rename(temp, f.path)
	}
	if err != nil {
		return &fail.Error{Kind: fail.Disk, Op: "publish", Path: f.path, Err: err, Hint: "the finished data is in " + temp}
	}
	if err := SyncDir(filepath.Dir(f.path)); err != nil {
		return err
	}
	if err := fault.Point("atomicfile.committed"); err != nil {
		return diskError("publish", f.path, f.written, err)
	}
	return nil
}

// Discard removes the temporary file. After Commit it does nothing, so it can
// always be deferred.
func (f *File) Discard() error {
	if f.done {
		return nil
	}
	f.done = true
	defer f.lock.Close()
	err := f.File.Close()
	return errors.Join(err, os.Remove(f.Name()))
}

// WriteFile publishes data as path.
func WriteFile(path string, data []byte) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	defer f.Discard()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Commit()
}

// WriteIfChanged publishes data as path unless the file already holds exactly
// that; then the file and its modification time stay as they are. It says
// whether it wrote.
func WriteIfChanged(path string, data []byte) (bool, error) {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return false, nil
	}
	return true, WriteFile(path, data)
}
