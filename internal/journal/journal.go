// Package journal keeps finished samples of a long job in an append-only file, so
// that a process killed at any moment loses at most what it was writing. What
// goes in is (key, payload) records; what comes out is the last payload of each
// key. It knows nothing of what a payload means: failures are payloads too.
//
// A torn last record is cut off. Damage before the end cuts the journal there,
// and the rest of the file is moved aside, never deleted. The format is in
// docs/journal.md.
package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"time"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/fault"
)

const (
	magic = "SLJRNL1\n"
	mark  = "\xf5REC" // begins a record; lets a reader find the next one after damage
	head  = len(mark) + 8

	maxBody      = 1 << 30
	syncRecords  = 64
	syncInterval = time.Second
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Journal is an open journal. All methods are safe for concurrent use. Keys and
// offsets are held in memory, payloads are not.
type Journal struct {
	path    string
	damage  Damage
	mu      sync.Mutex
	f       *os.File
	end     int64
	buffer  []byte // of the last record
	at      map[string]span
	pending int           // records since the last fsync began
	syncing chan struct{} // closed when the fsync in the background ends; nil without one
	timer   *time.Timer
	broken  error // set when the file could not be brought back to a whole record
}

type span struct {
	off int64 // of the payload
	len int
	sum uint32 // of the payload
}

// Damage is what Open found wrong.
type Damage struct {
	Torn    int64  // bytes of a torn last record, cut off
	Aside   string // file the unreadable rest was moved to, "" when none
	Records int    // whole records in it: samples that will be done again
	Stale   string // file a journal with another header was moved to, "" when none
}

// Open opens or begins the journal at path. header says what the records were
// made from (a digest of parameters and inputs). A journal with another header is
// moved aside to path.<8 hex digits>.stale and a new one begun; when the header
// comes back later, so does its journal.
func Open(path, header string) (*Journal, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, fail.Wrap(fail.Disk, "open journal", path, err)
	}
	j := &Journal{path: path, at: map[string]span{}}
	if err := j.claim(header); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fail.Wrap(fail.Disk, "open journal", path, err)
	}
	j.f = f
	if err := j.load(header); err != nil {
		f.Close()
		return nil, err
	}
	return j, nil
}

// claim makes path the journal of this header, or leaves no file there.
func (j *Journal) claim(header string) error {
	old, empty, err := j.readHeader()
	if err != nil {
		return err
	}
	if !empty && old == header {
		return nil
	}
	if !empty {
		j.damage.Stale = staleName(j.path, old)
		if err := os.Rename(j.path, j.damage.Stale); err != nil {
			return fail.Wrap(fail.Disk, "move stale journal aside", j.path, err)
		}
	}
	err = os.Rename(staleName(j.path, header), j.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fail.Wrap(fail.Disk, "bring journal back", j.path, err)
	}
	return atomicfile.SyncDir(filepath.Dir(j.path))
}

func staleName(path, header string) string {
	return fmt.Sprintf("%s.%08x.stale", path, crc32.Checksum([]byte(header), castagnoli))
}

// load reads all records and leaves the file ending after the last good one.
func (j *Journal) load(header string) error {
	info, err := j.f.Stat()
	if err != nil {
		return fail.Wrap(fail.Disk, "read journal", j.path, err)
	}
	good, err := j.replay(info.Size())
	if err != nil {
		return err
	}
	if rest := info.Size() - good; rest > 0 {
		if err := j.cut(good, rest); err != nil {
			return err
		}
	}
	if j.end = good; good == 0 {
		return j.begin(header)
	}
	return nil
}

// begin writes magic and header in one write.
func (j *Journal) begin(header string) error {
	b := append([]byte(magic), record("", []byte(header))...)
	if _, err := j.f.WriteAt(b, 0); err != nil {
		return fail.Wrap(fail.Disk, "begin journal", j.path, err)
	}
	j.end = int64(len(b))
	if err := j.f.Sync(); err != nil {
		return fail.Wrap(fail.Disk, "begin journal", j.path, err)
	}
	return atomicfile.SyncDir(filepath.Dir(j.path))
}

// record is the bytes of one record: mark, length and CRC32C of length and body,
// then the body: length of the key, key, payload.
func record(key string, payload []byte) []byte { return appendRecord(nil, key, payload) }

// appendRecord writes a record into b, which is empty.
func appendRecord(b []byte, key string, payload []byte) []byte {
	b = slices.Grow(b, head+binary.MaxVarintLen32+len(key)+len(payload))[:head]
	copy(b, mark)
	b = binary.AppendUvarint(b, uint64(len(key)))
	b = append(b, key...)
	b = append(b, payload...)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-head))
	binary.LittleEndian.PutUint32(b[8:], checksum(b[4:8], b[head:]))
	return b
}

func checksum(length, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(length, castagnoli), castagnoli, body)
}

// Append adds a record. When it returns nil the record survives the death of the
// process; a second or 64 records later, and the time of an fsync, that of the
// machine. It does not wait for the disk: thousands may append at once.
// key must not be empty. payload is not kept.
func (j *Journal) Append(key string, payload []byte) error {
	if key == "" || len(key)+len(payload) > maxBody-16 {
		return fail.New(fail.Bug, "append to journal", j.path, "impossible record: key of %d, payload of %d bytes", len(key), len(payload))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return j.broken
	}
	b := appendRecord(j.buffer[:0], key, payload)
	if j.buffer = b; cap(b) > 1<<20 {
		j.buffer = nil // of a rare length
	}
	err := fault.Point("journal.append")
	if err == nil {
		_, err = j.f.WriteAt(b, j.end)
	}
	if err != nil {
		err = fail.Wrap(fail.Disk, "append to journal", j.path, err)
		if terr := j.f.Truncate(j.end); terr != nil {
			j.broken = err
		}
		return err
	}
	j.end += int64(len(b))
	j.at[key] = span{j.end - int64(len(payload)), len(payload), crc32.Checksum(payload, castagnoli)}
	j.pending++
	j.soon()
	return fail.Wrap(fail.Disk, "append to journal", j.path, fault.Point("journal.appended"))
}

// soon makes all records durable when there are enough of them, or a second passed.
func (j *Journal) soon() {
	switch {
	case j.pending >= syncRecords:
		j.background()
	case j.pending > 0 && j.timer == nil:
		j.timer = time.AfterFunc(syncInterval, func() {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.background()
		})
	}
}

// background begins to make all records durable, unless that is going on: its end
// looks again. An error stays: after a failed fsync nothing can be promised about
// the earlier records.
func (j *Journal) background() {
	if j.timer != nil {
		j.timer.Stop()
		j.timer = nil
	}
	if j.f == nil || j.pending == 0 || j.syncing != nil || j.broken != nil {
		return
	}
	f, over := j.f, make(chan struct{})
	j.pending, j.syncing = 0, over
	go func() {
		err := f.Sync()
		j.mu.Lock()
		defer j.mu.Unlock()
		if err != nil {
			j.broken = fail.Wrap(fail.Disk, "sync journal", j.path, err)
		}
		j.syncing = nil
		close(over)
		j.soon()
	}()
}

// durable makes all records durable before it returns.
func (j *Journal) durable() error {
	for {
		j.background()
		over := j.syncing
		if over == nil {
			return j.broken
		}
		j.mu.Unlock()
		<-over
		j.mu.Lock()
	}
}

// Get returns the last payload of key. It says false also when the record can no
// longer be read back intact, so that the sample is done again.
func (j *Journal) Get(key string) ([]byte, bool) {
	j.mu.Lock()
	s, ok := j.at[key]
	f := j.f
	j.mu.Unlock()
	if !ok || f == nil {
		return nil, false
	}
	b := make([]byte, s.len)
	if _, err := f.ReadAt(b, s.off); err != nil || crc32.Checksum(b, castagnoli) != s.sum {
		return nil, false
	}
	return b, true
}

// Has says whether key has a record, without reading it.
func (j *Journal) Has(key string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.at[key]
	return ok
}

// Keys lists all keys, sorted.
func (j *Journal) Keys() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	keys := make([]string, 0, len(j.at))
	for k := range j.at {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// Len is the number of keys.
func (j *Journal) Len() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.at)
}

// Path is the journal's file.
func (j *Journal) Path() string { return j.path }

// Damage is what Open found wrong and did about it.
func (j *Journal) Damage() Damage { return j.damage }

// Close makes all records durable and closes the file. A second Close does nothing.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f == nil {
		return nil
	}
	err := j.durable()
	if j.f == nil { // closed by another meanwhile
		return err
	}
	if cerr := j.f.Close(); err == nil && cerr != nil {
		err = fail.Wrap(fail.Disk, "close journal", j.path, cerr)
	}
	j.f = nil
	if j.broken == nil {
		j.broken = fail.New(fail.Bug, "append to journal", j.path, "already closed")
	}
	return err
}
