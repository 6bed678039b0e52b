package corpus

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/fault"
)

// ImageStore keeps encoded images as files named after their content:
//
//	<dir>/ab/<SHA-256 in hex>.<jpg|png|gif|webp|bmp|avif>
//
// The extension follows the first bytes, never a name somebody gave. Equal
// images are one file. Files appear whole or not at all, are never changed, and
// are checked against their name whenever they are read. All methods are safe
// for concurrent use by goroutines and by processes.
type ImageStore struct {
	dirs []string
}

// OpenStore opens a store over one or more folders: images are looked up in all
// of them, in order, and written to the first, which is made when the first
// image comes. The others must exist.
func OpenStore(dirs ...string) (*ImageStore, error) {
	if len(dirs) == 0 {
		return nil, fail.New(fail.Usage, "open image store", "", "no folder given")
	}
	for i, d := range dirs {
		st, err := os.Stat(d)
		if i == 0 && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && !st.IsDir() {
			err = errors.New("not a folder")
		}
		if err != nil {
			e := fail.New(fail.BadInput, "open image store", d, "%w", err)
			e.Hint = "name the images folder that prep, lens or rollout wrote"
			return nil, e
		}
	}
	return &ImageStore{dirs: slices.Clone(dirs)}, nil
}

// OpenImages opens the images of a dataset: images/ in it, which may be absent, and
// further folders.
func OpenImages(dataset string, more ...string) (*ImageStore, error) {
	return OpenStore(append([]string{filepath.Join(dataset, "images")}, more...)...)
}

// Put stores an encoded image and returns its SHA-256 in hex. What is there
// already is not written again, unless it is damaged. Put looks at the first
// bytes only; CheckImage says whether the rest makes sense. After a power cut a
// file is only sure to be there if Sync was called.
func (s *ImageStore) Put(data []byte) (sha string, err error) { return s.put(data, "") }

// adopt is Put for data that is also the content of file, which is moved or
// removed.
func (s *ImageStore) adopt(file string, data []byte) (sha string, err error) {
	defer os.Remove(file)
	return s.put(data, file)
}

// put moves file into the store if it is given and lies on the same disk.
func (s *ImageStore) put(data []byte, file string) (sha string, err error) {
	ext := imageExt(data)
	if ext == "" {
		return "", fail.New(fail.BadInput, "store image", "", "neither JPEG, PNG, GIF, WebP, BMP nor AVIF")
	}
	sum := sha256.Sum256(data)
	sha = hex.EncodeToString(sum[:])
	final := filepath.Join(s.dirs[0], sha[:2], sha+ext)
	if old, err := os.ReadFile(final); err == nil && bytes.Equal(old, data) {
		return sha, nil
	}
	if file != "" {
		if err = os.MkdirAll(filepath.Dir(final), 0o777); err == nil {
			err = os.Rename(file, final)
		}
	}
	if file == "" || err != nil {
		err = writeImage(final, data)
	}
	if err != nil {
		return "", fail.Wrap(fail.Disk, "store image", final, err)
	}
	return sha, nil
}

// writeImage makes a file appear whole. It leaves out the fsync that atomicfile
// makes for each file: a corpus has hundreds of thousands of images, Sync makes
// them durable together, and a torn file does not have the content its name says.
func writeImage(final string, data []byte) error {
	for tries := 0; ; tries++ {
		err := tryWrite(final, data)
		// Between closing and renaming nobody holds the file: Sync of another
		// process may have taken it for a dead writer's.
		if !errors.Is(err, fs.ErrNotExist) || tries == 10 {
			return err
		}
	}
}

func tryWrite(final string, data []byte) (err error) {
	temp := filepath.Join(filepath.Dir(final), "."+filepath.Base(final)+tempMark+strconv.FormatUint(rand.Uint64(), 36))
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(final), 0o777); err == nil {
			f, err = os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		}
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	// The lock tells Sync of any process that the file's writer lives.
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err == nil {
		err = fault.Point("imagestore.write")
	}
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil && len(data) >= earlyBytes {
		atomicfile.StartWriting(f, 0, int64(len(data))) // Sync has less to wait for
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), final)
}

// earlyBytes is the size from which the disk is told to begin with an image at once:
// of small ones it takes many together in less time.
const earlyBytes = 64 << 10

// tempMark marks temporary files, as in atomicfile.
const tempMark = ".tmp-"

// Sync makes every image that was put durable, and removes temporary files that
// killed writers left behind. A job calls it once, before it publishes
// the rows that refer to the images.
func (s *ImageStore) Sync() error {
	dir := s.dirs[0]
	folders, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = syncFileSystem(dir)
	}
	if err != nil {
		return fail.Wrap(fail.Disk, "sync image store", dir, err)
	}
	for _, f := range folders {
		if f.IsDir() {
			if err := atomicfile.Sweep(filepath.Join(dir, f.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// Get reads an image and checks it against its name. A missing one is an error
// of kind BadInput that is fs.ErrNotExist.
func (s *ImageStore) Get(sha string) ([]byte, error) {
	file, err := s.find(sha)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, "read image", file, err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != sha {
		e := fail.New(fail.BadInput, "read image", file, "the content is not what the name says")
		e.Hint = "delete the file and run the job that wrote it again"
		return nil, e
	}
	return data, nil
}

// Has says whether an image is there, without reading it.
func (s *ImageStore) Has(sha string) bool {
	_, err := s.find(sha)
	return err == nil
}

// Path gives the file of an image.
func (s *ImageStore) Path(sha string) (string, error) { return s.find(sha) }

func (s *ImageStore) find(sha string) (string, error) {
	if !isSHA(sha) {
		return "", fail.New(fail.BadInput, "find image", "", "%q is no image id", sha)
	}
	for _, d := range s.dirs {
		for _, k := range imageKinds {
			file := filepath.Join(d, sha[:2], sha+k.ext)
			if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() {
				return file, nil
			}
		}
	}
	e := fail.New(fail.BadInput, "find image", strings.Join(s.dirs, ", "), "image %s: %w", sha, fs.ErrNotExist)
	e.Hint = "name the images folder of the dataset that refers to it"
	return "", e
}

// cellPath is an image's path below a store folder, with slashes.
func cellPath(sha, ext string) string { return path.Join(sha[:2], sha+ext) }

func isSHA(s string) bool {
	if len(s) != 2*sha256.Size {
		return false
	}
	for _, c := range []byte(s) {
		if c-'0' >= 10 && c-'a' >= 6 {
			return false
		}
	}
	return true
}
