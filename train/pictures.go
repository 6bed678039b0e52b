package train

import (
	"container/list"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"searchloop/internal/fail"
)

// PatchReader turns an encoded picture into patches. With a grid it resizes to
// exactly that grid, as the policy saw it; with a zero grid it chooses the grid
// itself.
type PatchReader func(data []byte, grid [3]int32) ([3]int32, []float32, error)

// Pictures reads the images of sequences from content-addressed folders
// (DIR/ab/<sha256>.<ext>) and keeps the patches of recent ones. It is not safe
// for concurrent use.
type Pictures struct {
	dirs   []string
	read   PatchReader
	budget int // values kept

	held   map[pictureKey]*list.Element
	recent *list.List // of *picturePatches, newest first
	size   int

	added map[string]imageSource // outside of the folders, by SHA-256
}

// imageSource is where an added image's bytes are: in a file, or here.
type imageSource struct {
	path string
	data []byte
}

// Add makes an image known by its SHA-256, which it returns. What is a path
// (relative to dir, or to one of the folders), a data URL, or an object with a
// path, url, or base64 bytes.
func (p *Pictures) Add(what any, dir string) (string, error) {
	switch w := what.(type) {
	case map[string]any:
		for _, key := range []string{"url", "path"} {
			if s, ok := w[key].(string); ok && s != "" && w["bytes"] == nil {
				return p.Add(s, dir)
			}
		}
		if s, ok := w["bytes"].(string); ok {
			return p.Add("data:;base64,"+s, dir)
		}
	case string:
		if head, body, ok := strings.Cut(w, ","); ok && strings.HasPrefix(head, "data:") && strings.HasSuffix(head, ";base64") {
			data, err := base64.StdEncoding.DecodeString(body)
			if err != nil {
				return "", fail.Wrap(fail.BadInput, "read image", "data URL", err)
			}
			return p.know(data, imageSource{data: data}), nil
		}
		if strings.Contains(w, "://") && !strings.HasPrefix(w, "file://") {
			return "", fail.New(fail.BadInput, "read image", w, "images are not downloaded")
		}
		w = strings.TrimPrefix(w, "file://")
		for _, from := range append([]string{dir}, p.dirs...) {
			path := w
			if !filepath.IsAbs(w) {
				path = filepath.Join(from, w)
			}
			data, err := os.ReadFile(path)
			if err == nil {
				return p.know(data, imageSource{path: path}), nil
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return "", fail.Wrap(fail.BadInput, "read image", path, err)
			}
		}
		return "", &fail.Error{Kind: fail.BadInput, Op: "read image", Path: w, Err: fs.ErrNotExist, Hint: "not beside the file, and in no folder of --images"}
	}
	return "", fail.New(fail.BadInput, "read image", "", "%v is no path, no data URL and no object with one", what)
}

func (p *Pictures) know(data []byte, at imageSource) string {
	sum := sha256.Sum256(data)
	id := hex.EncodeToString(sum[:])
	if p.added == nil {
		p.added = map[string]imageSource{}
	}
	if _, ok := p.added[id]; !ok {
		p.added[id] = at
	}
	return id
}

type pictureKey struct {
	id   string
	grid [3]int32
}

type picturePatches struct {
	key     pictureKey
	patches []float32
}

// patchBudget is 512 MiB of patches: an epoch of small images stays in memory,
// large ones are read again when they are needed.
const patchBudget = 128 << 20

// OpenPictures uses the folders in order; the first that has an image wins.
func OpenPictures(read PatchReader, dirs ...string) *Pictures {
	return &Pictures{dirs: dirs, read: read, budget: patchBudget, held: map[pictureKey]*list.Element{}, recent: list.New()}
}

// Patches are the patches of an image at a grid. The caller must not change
// them.
func (p *Pictures) Patches(id string, grid [3]int32) ([]float32, error) {
	key := pictureKey{id, grid}
	if e, ok := p.held[key]; ok {
		p.recent.MoveToFront(e)
		return e.Value.(*picturePatches).patches, nil
	}
	_, patches, err := p.load(id, grid)
	if err != nil {
		return nil, err
	}
	p.keep(key, patches)
	return patches, nil
}

// Grid is the grid that an image has when nothing prescribes one.
func (p *Pictures) Grid(id string) ([3]int32, error) {
	grid, patches, err := p.load(id, [3]int32{})
	if err != nil {
		return grid, err
	}
	p.keep(pictureKey{id, grid}, patches)
	return grid, nil
}

// check reads an image as a pack will and compares its size with its grid.
func (p *Pictures) check(im ImageRef, patchDim int) error {
	patches, err := p.Patches(im.ID, im.Grid)
	if err != nil {
		return err
	}
	if n := int(im.Grid[0]) * int(im.Grid[1]) * int(im.Grid[2]) * patchDim; len(patches) != n {
		return fail.New(fail.BadInput, "read image", im.ID, "%d patch values for the grid %v, the model needs %d: is preprocessor_config.json the model's?", len(patches), im.Grid, n)
	}
	return nil
}

func (p *Pictures) keep(key pictureKey, patches []float32) {
	if _, ok := p.held[key]; ok || len(patches) > p.budget {
		return
	}
	for p.size+len(patches) > p.budget {
		old := p.recent.Remove(p.recent.Back()).(*picturePatches)
		delete(p.held, old.key)
		p.size -= len(old.patches)
	}
	p.held[key] = p.recent.PushFront(&picturePatches{key, patches})
	p.size += len(patches)
}

func (p *Pictures) load(id string, grid [3]int32) ([3]int32, []float32, error) {
	data, path := p.added[id].data, "data URL"
	if data == nil {
		var err error
		if path, err = p.find(id); err != nil {
			return grid, nil, err
		}
		if data, err = os.ReadFile(path); err != nil {
			return grid, nil, fail.Wrap(fail.BadInput, "read image", path, err)
		}
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != id {
		return grid, nil, fail.New(fail.BadInput, "read image", path, "its content has another SHA-256 than its name")
	}
	grid, patches, err := p.read(data, grid)
	if err != nil {
		return grid, nil, fail.Wrap(fail.BadInput, "read image", path, err)
	}
	return grid, patches, nil
}

// pictureExts are the names an image store gives.
var pictureExts = []string{".jpg", ".png", ".webp", ".gif", ".bmp", ".jpeg", ".avif"}

func (p *Pictures) find(id string) (string, error) {
	if raw, err := hex.DecodeString(id); err != nil || len(raw) != sha256.Size {
		return "", fail.New(fail.BadInput, "read image", id, "not a SHA-256")
	}
	if at, ok := p.added[id]; ok {
		return at.path, nil
	}
	for _, dir := range p.dirs {
		for _, ext := range pictureExts {
			path := filepath.Join(dir, id[:2], id+ext)
			_, err := os.Stat(path)
			if err == nil {
				return path, nil
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return "", fail.Wrap(fail.BadInput, "read image", path, err)
			}
		}
	}
	return "", &fail.Error{Kind: fail.BadInput, Op: "read image", Path: id, Err: fs.ErrNotExist, Hint: "in none of " + strings.Join(p.dirs, ", ") + "; name its folder with --images"}
}
