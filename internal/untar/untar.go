// Package untar unpacks archives that nobody vouches for: .tar, .tar.gz and
// .tar.zst, told apart by their first bytes. What goes in is a stream and a root
// folder; what comes out is regular files and folders below that root and nothing
// else. Links, devices and names that lead out are skipped and counted. Limits on
// entries, bytes and compression ratio end the unpacking with an error; files
// that were complete before stay.
package untar

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"searchloop/internal/fail"
)

// Limits bound one archive. A zero field means the default.
type Limits struct {
	Entries   int64 // headers of any type; default 2,000,000
	Bytes     int64 // of all files together; default 1 TiB
	FileBytes int64 // of one file; default 256 MiB
	Ratio     int64 // unpacked to packed bytes, beyond the first 16 MiB; default 200
	NameBytes int   // of one name; default 4096
}

// temp is the name of the file that is being unpacked.
const temp = ".unpacking"

// ratioFrom is how much may be unpacked before the ratio counts: small archives
// of text legitimately exceed it.
const ratioFrom = 16 << 20

// ErrLimit is in the chain of errors about archives beyond their Limits.
var ErrLimit = errors.New("larger than an archive may be")

func (l Limits) orDefaults() Limits {
	set := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	set(&l.Entries, 2_000_000)
	set(&l.Bytes, 1<<40)
	set(&l.FileBytes, 256<<20)
	set(&l.Ratio, 200)
	if l.NameBytes == 0 {
		l.NameBytes = 4096
	}
	return l
}

// Stats says what an archive held.
type Stats struct {
	Files   int64            // written
	Dirs    int64            // made
	Bytes   int64            // written
	Skipped map[string]int64 // by reason: symlink, hard link, device, name leads outside, duplicate name, …
}

// Reasons for which an entry is skipped.
const (
	SkipSymlink   = "symlink"
	SkipHardLink  = "hard link"
	SkipDevice    = "device or pipe"
	SkipOutside   = "name leads outside"
	SkipLongName  = "name too long"
	SkipDuplicate = "duplicate name"
	SkipOther     = "unknown type"
	SkipConflict  = "file and folder of one name"
)

// Extract unpacks r below root and calls each, if not nil, after every complete
// file with its slash-separated name and size. The first entry of a name wins. A
// damaged or cut archive and a broken limit are fail.BadInput, a full disk is
// fail.Disk; the Stats count what was done until then.
func Extract(r io.Reader, root *os.Root, lim Limits, each func(name string, size int64)) (Stats, error) {
	lim = lim.orDefaults()
	x := &extractor{root: root, lim: lim, each: each, stats: Stats{Skipped: map[string]int64{}}}
	packed := &counter{r: r}
	plain, closer, err := decompress(packed)
	if err != nil {
		return x.stats, bad(root, "", err)
	}
	defer closer()
	x.tar = tar.NewReader(&ratioReader{r: plain, packed: packed, lim: lim})
	for {
		h, err := x.tar.Next()
		if errors.Is(err, io.EOF) {
			// gzip and zstd check their sums only at their end.
			if _, err := io.Copy(io.Discard, plain); err != nil {
				return x.stats, bad(root, "", err)
			}
			return x.stats, nil
		}
		if err != nil {
			return x.stats, bad(root, "", err)
		}
		if x.entries++; x.entries > lim.Entries {
			return x.stats, bad(root, h.Name, fmt.Errorf("%w: more than %d entries", ErrLimit, lim.Entries))
		}
		if err := x.entry(h); err != nil {
			return x.stats, err
		}
	}
}

type extractor struct {
	root    *os.Root
	tar     *tar.Reader
	lim     Limits
	each    func(string, int64)
	stats   Stats
	entries int64
}

func (x *extractor) entry(h *tar.Header) error {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir:
	case tar.TypeSymlink:
		x.stats.Skipped[SkipSymlink]++
		return nil
	case tar.TypeLink:
		x.stats.Skipped[SkipHardLink]++
		return nil
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		x.stats.Skipped[SkipDevice]++
		return nil
	default:
		x.stats.Skipped[SkipOther]++
		return nil
	}
	name, why := clean(h.Name, x.lim.NameBytes)
	if why != "" {
		x.stats.Skipped[why]++
		return nil
	}
	if h.Typeflag == tar.TypeDir {
		return x.mkdir(name)
	}
	return x.file(name, h.Size)
}

// clean is the entry's name inside the root, or why it has none.
func clean(name string, limit int) (string, string) {
	if len(name) > limit {
		return "", SkipLongName
	}
	if path.Clean(name) == temp || strings.ContainsRune(name, 0) || strings.Contains(name, `\`) || path.IsAbs(name) {
		return "", SkipOutside
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", SkipOutside
		}
		if len(part) > 255 {
			return "", SkipLongName
		}
	}
	local, err := filepath.Localize(path.Clean(strings.TrimSuffix(name, "/")))
	if err != nil {
		return "", SkipOutside
	}
	return local, ""
}

func (x *extractor) mkdir(name string) error {
	if name == "." {
		return nil
	}
	if err := x.root.MkdirAll(name, 0o777); err != nil {
		return x.conflict(name, err)
	}
	x.stats.Dirs++
	return nil
}

// conflict skips an entry whose place is taken by an entry of another type (or by
// a link that was there before); other errors end the unpacking.
func (x *extractor) conflict(name string, err error) error {
	if fail.KindOf(err) == fail.Disk {
		return fail.Wrap(fail.Disk, "unpack", filepath.Join(x.root.Name(), name), err)
	}
	var perr *fs.PathError
	if errors.As(err, &perr) {
		x.stats.Skipped[SkipConflict]++
		return nil
	}
	return fail.Wrap(fail.Disk, "unpack", filepath.Join(x.root.Name(), name), err)
}

func (x *extractor) file(name string, size int64) error {
	switch {
	case name == ".":
		x.stats.Skipped[SkipOutside]++
		return nil
	case size > x.lim.FileBytes:
		return bad(x.root, name, fmt.Errorf("%w: a file of %d bytes, the limit is %d", ErrLimit, size, x.lim.FileBytes))
	case size > x.lim.Bytes-x.stats.Bytes:
		return bad(x.root, name, fmt.Errorf("%w: more than %d bytes in all", ErrLimit, x.lim.Bytes))
	}
	if dir := filepath.Dir(name); dir != "." {
		if err := x.root.MkdirAll(dir, 0o777); err != nil {
			return x.conflict(name, err)
		}
	}
	if old, err := x.root.Lstat(name); err == nil {
		if old.Mode().IsRegular() {
			x.stats.Skipped[SkipDuplicate]++
		} else {
			x.stats.Skipped[SkipConflict]++
		}
		return nil
	}
	// A file gets its name only when it is whole: a killed run must not leave a
	// half one that the next run takes for good.
	x.root.Remove(temp)
	f, err := x.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return x.conflict(name, err)
	}
	from := &source{r: x.tar}
	n, err := io.Copy(f, from)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = x.root.Rename(temp, name)
	}
	if err != nil {
		x.root.Remove(temp)
		if from.err != nil || errors.Is(err, io.ErrUnexpectedEOF) {
			return bad(x.root, name, err)
		}
		return fail.Wrap(fail.Disk, "unpack", filepath.Join(x.root.Name(), name), err)
	}
	x.stats.Files++
	x.stats.Bytes += n
	if x.each != nil {
		x.each(filepath.ToSlash(name), n)
	}
	return nil
}

// source remembers whether a copy failed on the reading side.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

func bad(root *os.Root, name string, err error) error {
	e := &fail.Error{Kind: fail.BadInput, Op: "unpack into " + root.Name(), Sample: name, Err: err}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, gzip.ErrChecksum) {
		e.Hint = "the archive is cut or damaged; fetch it again"
	}
	return e
}

// decompress recognises gzip and zstd by their magic numbers.
func decompress(r io.Reader) (io.Reader, func(), error) {
	b := bufio.NewReaderSize(r, 1<<16)
	magic, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		return z, func() {}, err
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderMaxMemory(1<<30), zstd.WithDecoderMaxWindow(128<<20), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	case len(magic) == 0:
		return nil, nil, errors.New("the archive is empty")
	}
	return b, func() {}, nil
}

// counter counts packed bytes.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// ratioReader ends a stream that unpacks to far more than it was packed.
type ratioReader struct {
	r      io.Reader
	packed *counter
	lim    Limits
	n      int64
}

func (r *ratioReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if r.n += int64(n); r.n > ratioFrom && r.n/r.lim.Ratio > r.packed.n {
		return 0, fmt.Errorf("%w: it unpacks to more than %d times its size", ErrLimit, r.lim.Ratio)
	}
	return n, err
}
