package kv

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"searchloop/internal/fail"
)

const (
	magic = "SLKV1\n"
	head  = len(magic) + 4 + 8 + 4 // checksum, expiry in Unix milliseconds (0: never), length of the key
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// folder is a Store of one file a value, named after its key's digest and
// published by rename. Processes need nothing but the folder to share it, a killed
// one leaves at most a temporary file, and a damaged file is one value less.
type folder struct {
	dir   string
	mu    sync.Mutex // one goroutine of the process at a time waits for a lock, not a thread each
	swept sync.Map   // folders of values from which what killed writers left is gone
}

func openFolder(dir string) (*folder, error) {
	for _, d := range []string{"values", "numbers", "queues"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o777); err != nil {
			return nil, fail.Wrap(fail.Disk, "open store", dir, err)
		}
	}
	return &folder{dir: dir}, nil
}

func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

func (f *folder) value(key string) string {
	d := digest(key)
	return filepath.Join(f.dir, "values", d[:2], d)
}

func (f *folder) Get(_ context.Context, key string) ([]byte, bool, error) {
	path := f.value(key)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fail.Wrap(fail.Disk, "read store", path, err)
	}
	value, expiry, ok := decode(b, key)
	if !ok || expiry > 0 && time.Now().UnixMilli() >= expiry {
		// A value that was put in the meantime may go with it; it will be asked for again.
		os.Remove(path)
		return nil, false, nil
	}
	return value, true, nil
}

// decode checks a file's bytes; ok is false for a torn or foreign file.
func decode(b []byte, key string) (value []byte, expiry int64, ok bool) {
	if len(b) < head || string(b[:len(magic)]) != magic ||
		binary.LittleEndian.Uint32(b[len(magic):]) != crc32.Checksum(b[len(magic)+4:], castagnoli) {
		return nil, 0, false
	}
	expiry = int64(binary.LittleEndian.Uint64(b[len(magic)+4:]))
	n := int(binary.LittleEndian.Uint32(b[head-4:]))
	if n != len(key) || n > len(b)-head || string(b[head:head+n]) != key {
		return nil, 0, false
	}
	return b[head+n:], expiry, true
}

func encode(key string, value []byte, expiry int64) []byte {
	b := make([]byte, head, head+len(key)+len(value))
	copy(b, magic)
	binary.LittleEndian.PutUint64(b[len(magic)+4:], uint64(expiry))
	binary.LittleEndian.PutUint32(b[head-4:], uint32(len(key)))
	b = append(append(b, key...), value...)
	binary.LittleEndian.PutUint32(b[len(magic):], crc32.Checksum(b[len(magic)+4:], castagnoli))
	return b
}

// Put leaves out the fsync: a file that a power cut tore does not have its
// checksum, and the request is made again.
func (f *folder) Put(_ context.Context, key string, value []byte, ttl time.Duration) error {
	expiry := int64(0)
	if ttl > 0 {
		expiry = time.Now().Add(ttl).UnixMilli()
	}
	path := f.value(key)
	f.sweep(filepath.Dir(path))
	if err := write(path, encode(key, value, expiry)); err != nil {
		return fail.Wrap(fail.Disk, "write store", path, err)
	}
	return nil
}

// write makes a file appear whole.
func write(path string, data []byte) error {
	for tries := 0; ; tries++ {
		err := tryWrite(path, data)
		// A sweep of another process may have taken a file that was not locked yet.
		if !errors.Is(err, fs.ErrNotExist) || tries == 10 {
			return err
		}
	}
}

func tryWrite(path string, data []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	t, err := os.CreateTemp(filepath.Dir(path), tempName+"*")
	if err != nil {
		return err
	}
	defer func() {
		if cerr := t.Close(); err == nil {
			err = cerr
		} else {
			os.Remove(t.Name())
		}
	}()
	// The lock says that the writer lives. Where there are no locks, nothing is swept.
	syscall.Flock(int(t.Fd()), syscall.LOCK_EX)
	if _, err = t.Write(data); err != nil {
		return err
	}
	return os.Rename(t.Name(), path)
}

const tempName = ".tmp-"

// sweep removes the temporary files of dead writers, once a folder and process.
// What cannot be removed does no harm.
func (f *folder) sweep(dir string) {
	if _, done := f.swept.LoadOrStore(dir, true); done {
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // not made yet
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempName) || !e.Type().IsRegular() {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if t, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
			if syscall.Flock(int(t.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
				os.Remove(path)
			}
			t.Close()
		}
	}
}

func (f *folder) Add(_ context.Context, key string, delta int64) (sum int64, err error) {
	err = f.change(filepath.Join("numbers", digest(key)), key, func(v int64) int64 {
		sum = v + delta
		return sum
	})
	return sum, err
}

func (f *folder) Slot(_ context.Context, key string, every time.Duration, burst int) (wait time.Duration, err error) {
	err = f.change(filepath.Join("queues", digest(key)), key, func(v int64) int64 {
		var next time.Time
		wait, next = booked(time.Now(), time.Unix(0, v), every, burst)
		return next.UnixNano()
	})
	return wait, err
}

// change replaces the number in a file, 8 bytes before the key, under its lock.
// A write of 8 bytes is whole or not there when its process is killed.
func (f *folder) change(name, key string, by func(int64) int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	path := filepath.Join(f.dir, name)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return fail.Wrap(fail.Disk, "open store", path, err)
	}
	defer file.Close() // and with it the lock
	for {
		if err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	b := make([]byte, 8, 8+len(key))
	if err == nil {
		if _, err = file.ReadAt(b, 0); errors.Is(err, io.EOF) {
			clear(b)
			_, err = file.WriteAt(append(b, key...), 0)
		}
	}
	if err == nil {
		b = b[:8]
		binary.LittleEndian.PutUint64(b, uint64(by(int64(binary.LittleEndian.Uint64(b)))))
		_, err = file.WriteAt(b, 0)
	}
	return fail.Wrap(fail.Disk, "write store", path, err)
}

func (f *folder) Close() error { return nil }
