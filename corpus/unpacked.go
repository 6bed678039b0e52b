package corpus

import (
	"path"
	"strings"
)

// unpacked says which images an archive held: by name in the archive, the image
// id or why there is none.
type unpacked struct {
	files map[string]unpackedFile
	top   string // the folder that all names share, with a slash, or ""
}

// unpackedFile is one file of an archive.
type unpackedFile struct {
	SHA    string `json:"sha,omitempty"`
	Reason string `json:"reason,omitempty"` // why it is no image
}

// newUnpacked takes the files by cleaned names with slashes.
func newUnpacked(files map[string]unpackedFile) *unpacked {
	u := &unpacked{files: files}
	for name := range files {
		top, _, ok := strings.Cut(name, "/")
		if !ok || u.top != "" && u.top != top+"/" {
			u.top = ""
			break
		}
		u.top = top + "/"
	}
	return u
}

// Ways in which a cached path was found.
const (
	byName   = "as written"       // the cache's path is the archive's
	byTop    = "below the top"    // ... below the one folder that holds everything
	bySuffix = "by its last part" // ... after leading folders of the machine that wrote the cache
)

// find resolves a cached path. Paths of another machine are cut from the left as
// long as a folder and a name remain: fewer would take images for equal that
// only share a name such as 0.jpg. Nothing that could be two files is found.
func (u *unpacked) find(cached string) (f unpackedFile, how string, ok bool) {
	name := cleanName(cached)
	if name == "" {
		return f, "", false
	}
	if f, ok = u.files[name]; ok {
		return f, byName, true
	}
	if f, ok = u.files[u.top+name]; ok {
		return f, byTop, true
	}
	for {
		_, rest, more := strings.Cut(name, "/")
		if !more || !strings.Contains(rest, "/") {
			return f, "", false
		}
		name = rest
		if f, ok = u.files[name]; ok {
			return f, bySuffix, true
		}
		if f, ok = u.files[u.top+name]; ok {
			return f, bySuffix, true
		}
	}
}

// cleanName is a path relative to the archive's root, with slashes. Parts that
// would lead out of it are dropped.
func cleanName(p string) string {
	p = path.Clean("/" + strings.ReplaceAll(p, `\`, "/"))
	return strings.TrimPrefix(p, "/")
}
