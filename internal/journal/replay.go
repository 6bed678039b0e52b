package journal

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
)

var errRecord = errors.New("no whole record")

// readRecord reads one record from r, which has at most left bytes. It returns
// errRecord for anything that is not a whole, intact record, and the size it had.
func readRecord(r io.Reader, left int64) (key string, payload []byte, size int64, err error) {
	var h [head]byte
	if left < int64(head) {
		return "", nil, 0, errRecord
	}
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return "", nil, 0, err
	}
	n := int64(binary.LittleEndian.Uint32(h[4:]))
	if string(h[:4]) != mark || n < 1 || n > maxBody || n > left-int64(head) {
		return "", nil, 0, errRecord
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return "", nil, 0, err
	}
	if checksum(h[4:8], body) != binary.LittleEndian.Uint32(h[8:]) {
		return "", nil, 0, errRecord
	}
	k, w := binary.Uvarint(body)
	if w <= 0 || k > uint64(len(body)-w) {
		return "", nil, 0, errRecord
	}
	key = string(body[w : w+int(k)])
	return key, body[w+int(k):], int64(head) + n, nil
}

// readHeader returns the header of the journal at path. empty is true when there
// is no journal there. One too damaged at its very beginning to say whose it is
// is moved aside, and then there is none.
func (j *Journal) readHeader() (header string, empty bool, err error) {
	f, err := os.Open(j.path)
	if errors.Is(err, os.ErrNotExist) {
		return "", true, nil
	}
	if err != nil {
		return "", false, fail.Wrap(fail.Disk, "open journal", j.path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", false, fail.Wrap(fail.Disk, "open journal", j.path, err)
	}
	if info.Size() == 0 {
		return "", true, nil
	}
	var m [len(magic)]byte
	if _, err := io.ReadFull(f, m[:]); err == nil && string(m[:]) == magic {
		key, payload, _, err := readRecord(f, info.Size()-int64(len(magic)))
		if err == nil && key == "" {
			return string(payload), false, nil
		}
	}
	n, err := countRecords(io.NewSectionReader(f, 0, info.Size()))
	if err != nil {
		return "", false, fail.Wrap(fail.Disk, "read journal", j.path, err)
	}
	aside, err := freeName(j.path)
	if err != nil {
		return "", false, err
	}
	if err := os.Rename(j.path, aside); err != nil {
		return "", false, fail.Wrap(fail.Disk, "move damaged journal aside", j.path, err)
	}
	j.damage.Aside, j.damage.Records = aside, n
	return "", true, nil
}

// replay fills the index from the file and returns where the good records end.
func (j *Journal) replay(size int64) (int64, error) {
	if size == 0 {
		return 0, nil
	}
	r := bufio.NewReaderSize(io.NewSectionReader(j.f, 0, size), 1<<20)
	if _, err := r.Discard(len(magic)); err != nil {
		return 0, fail.Wrap(fail.Disk, "read journal", j.path, err)
	}
	at := int64(len(magic))
	for {
		key, payload, n, err := readRecord(r, size-at)
		if errors.Is(err, errRecord) {
			return at, nil
		}
		if err != nil {
			return 0, fail.Wrap(fail.Disk, "read journal", j.path, err)
		}
		at += n
		if key != "" {
			j.at[key] = span{at - int64(len(payload)), len(payload), crc32.Checksum(payload, castagnoli)}
		}
	}
}

// cut removes the bytes after the good ones. A torn last record is dropped;
// when whole records follow the damage, everything is moved aside first.
func (j *Journal) cut(good, rest int64) error {
	n, err := countRecords(io.NewSectionReader(j.f, good, rest))
	if err != nil {
		return fail.Wrap(fail.Disk, "read journal", j.path, err)
	}
	if n > 0 {
		aside, err := freeName(j.path)
		if err != nil {
			return err
		}
		out, err := atomicfile.Create(aside)
		if err != nil {
			return err
		}
		defer out.Discard()
		if _, err := io.Copy(out, io.NewSectionReader(j.f, good, rest)); err != nil {
			return fail.Wrap(fail.Disk, "move damaged records aside", j.path, err)
		}
		if err := out.Commit(); err != nil {
			return err
		}
		j.damage.Aside, j.damage.Records = aside, n
	} else {
		j.damage.Torn = rest
	}
	if err := j.f.Truncate(good); err != nil {
		return fail.Wrap(fail.Disk, "cut journal", j.path, err)
	}
	if err := j.f.Sync(); err != nil {
		return fail.Wrap(fail.Disk, "cut journal", j.path, err)
	}
	return nil
}

// countRecords finds the whole records in a stretch that begins with damage.
func countRecords(r *io.SectionReader) (int, error) {
	count := 0
	buf := make([]byte, 1<<20)
	for at := int64(1); at < r.Size(); {
		n, err := r.ReadAt(buf, at)
		if err != nil && err != io.EOF {
			return 0, err
		}
		i := bytes.Index(buf[:n], []byte(mark))
		if i < 0 {
			// A mark may straddle the end of the buffer.
			if at += int64(n - len(mark) + 1); n < len(buf) {
				return count, nil
			}
			continue
		}
		at += int64(i)
		key, _, size, err := readRecord(io.NewSectionReader(r, at, r.Size()-at), r.Size()-at)
		switch {
		case errors.Is(err, errRecord):
			at++
		case err != nil:
			return 0, err
		default:
			if key != "" { // not the header
				count++
			}
			at += size
		}
	}
	return count, nil
}

// freeName is path.bad, or path.2.bad and so on while that exists.
func freeName(path string) (string, error) {
	for i := 1; i < 10000; i++ {
		name := path + ".bad"
		if i > 1 {
			name = fmt.Sprintf("%s.%d.bad", path, i)
		}
		if _, err := os.Lstat(name); errors.Is(err, os.ErrNotExist) {
			return name, nil
		}
	}
	return "", fail.New(fail.Disk, "move damaged journal aside", path, "too many .bad files beside it")
}
