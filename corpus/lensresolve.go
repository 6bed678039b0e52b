package corpus

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"searchloop/internal/fail"
)

// choose finds for every data_id the entry that counts and rejects what is none.
func (l *lens) choose() error {
	l.last = map[string]position{}
	for e, err := range readCaches(l.opt.Cache) {
		if err != nil {
			return err
		}
		if e.Err != nil {
			l.sh.Reject(e.Path, e.N, e.ID, e.Err)
			continue
		}
		if _, again := l.last[e.ID]; again {
			l.report.Superseded++
		}
		l.last[e.ID] = position{e.Path, e.N}
	}
	return nil
}

// resolve goes through the caches a second time, turns paths into images, and
// writes the published form in the order of the entries.
func (l *lens) resolve(ctx context.Context) error {
	w, err := l.sh.Extra(LensPublished)
	if err != nil {
		return err
	}
	progress := l.r.Progress("entries", int64(len(l.last)))
	defer progress.Done()
	var line []byte
	for e, err := range readCaches(l.opt.Cache) {
		if err == nil {
			err = l.r.Interrupted()
		}
		if err == nil {
			err = fail.Wrap(fail.Interrupted, "lens", e.Path, ctx.Err())
		}
		if err != nil {
			return err
		}
		if e.Err != nil || l.last[e.ID] != (position{e.Path, e.N}) {
			continue
		}
		entry := LensEntry{DataID: e.ID}
		var paths []string
		for i, h := range e.Hits {
			var pic *pickledImage
			if e.pictures != nil {
				pic = e.pictures[i]
			}
			hit, path, err := l.hit(e.ID, i, &h, pic)
			if err != nil {
				return err
			}
			entry.Hits, paths = append(entry.Hits, hit), append(paths, path)
		}
		l.entries = append(l.entries, entry)
		line = append(e.appendWithImages(line[:0], paths), '\n')
		if _, err := w.Write(line); err != nil {
			return fail.Wrap(fail.Disk, "write", LensPublished, err)
		}
		progress.Add(1, 0)
	}
	slices.SortFunc(l.entries, func(a, b LensEntry) int { return strings.Compare(a.DataID, b.DataID) })
	slices.SortFunc(l.report.Missing, func(a, b LensMiss) int {
		if c := strings.Compare(a.DataID, b.DataID); c != 0 {
			return c
		}
		return a.Hit - b.Hit
	})
	l.report.Entries = int64(len(l.entries))
	return nil
}

// hit resolves one cached result; path is the image's file, "" without one.
// pic is the image itself, if the cache holds it.
func (l *lens) hit(id string, i int, h *cachedHit, pic *pickledImage) (hit LensHit, path string, err error) {
	l.report.Hits++
	title, err := h.Title()
	if err != nil {
		return hit, "", fail.Wrap(fail.Bug, "lens", h.Path, err) // checked when the entry was read
	}
	hit = LensHit{Title: title, Path: h.Path}
	var sha, reason string
	switch {
	case pic != nil:
		sha, reason, err = l.pickled(pic)
	case hit.Path == "":
		l.report.HitsNoPath++
		return hit, "", nil
	case webAddress(hit.Path):
		l.report.HitsOnWeb++
		return hit, "", nil
	default:
		return l.named(id, i, hit)
	}
	if err != nil {
		return hit, "", err
	}
	if sha == "" {
		l.report.Missing = append(l.report.Missing, LensMiss{id, i, hit.Path, reason})
		return hit, "", nil
	}
	l.report.ImagesFound++
	hit.ImageID = sha
	path, err = l.file(sha)
	return hit, path, err
}

// found is what a cached path led to; path is the image's file.
type found struct{ sha, path, how, reason string }

// named resolves a hit by the name of its image. Many hits show one image: each
// name is looked up once.
func (l *lens) named(id string, i int, hit LensHit) (LensHit, string, error) {
	f, known := l.found[hit.Path]
	if !known {
		var err error
		if f.sha, f.how, f.reason, err = l.image(hit.Path); err != nil {
			return hit, "", err
		}
		if f.sha != "" {
			if f.path, err = l.file(f.sha); err != nil {
				return hit, "", err
			}
		}
		if l.found == nil {
			l.found = map[string]found{}
		}
		l.found[hit.Path] = f
	}
	if f.sha == "" {
		l.report.Missing = append(l.report.Missing, LensMiss{id, i, hit.Path, f.reason})
		return hit, "", nil
	}
	l.report.FoundBy[f.how]++
	l.report.ImagesFound++
	hit.ImageID = f.sha
	return hit, f.path, nil
}

// file is the absolute path of an image in the store.
func (l *lens) file(sha string) (string, error) {
	path, err := l.store.Path(sha)
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(l.opt.Images, path)
	return filepath.Join(l.images, rel), fail.Wrap(fail.Bug, "lens", path, err)
}

// webAddress says whether a cached path is an address, which is never fetched.
func webAddress(path string) bool {
	return strings.HasPrefix(path, "http://") || strings.HasPrefix(path, "https://")
}

// pickled stores an image that the cache itself holds.
func (l *lens) pickled(pic *pickledImage) (sha, reason string, err error) {
	data, bad := pic.png()
	if bad != nil {
		return "", bad.Error(), nil
	}
	if sha, err = l.store.Put(data); err == nil {
		l.report.FoundBy["in the cache itself"]++
	}
	return sha, "", err
}

// image finds what a cached path names, in the archives first.
func (l *lens) image(cached string) (sha, how, reason string, err error) {
	f, how, ok := l.unpacked.find(cached)
	if ok && f.SHA != "" {
		return f.SHA, how, "", nil
	}
	for _, root := range l.opt.Roots {
		data, found, err := readBelow(root, cached)
		if err != nil {
			return "", "", "", err
		}
		if !found {
			continue
		}
		if bad := CheckImage(data); bad != nil {
			return "", "", bad.Error(), nil
		}
		sha, err = l.store.Put(data)
		return sha, "in a folder", "", err
	}
	if ok {
		return "", "", f.Reason, nil
	}
	return "", "", "no such file", nil
}

// readBelow reads a file that a cached path names relative to root, or by its
// place in it; never one outside root.
func readBelow(root, cached string) (data []byte, found bool, err error) {
	name := filepath.FromSlash(strings.ReplaceAll(cached, `\`, "/"))
	if abs, aerr := filepath.Abs(root); aerr == nil && filepath.IsAbs(name) {
		if name, aerr = filepath.Rel(abs, name); aerr != nil {
			return nil, false, nil
		}
	}
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, false, fail.Wrap(fail.BadInput, "open images", root, err)
	}
	defer r.Close()
	f, err := r.Open(filepath.Clean(name))
	if err != nil {
		return nil, false, nil
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() > maxImageBytes {
		return nil, false, nil
	}
	data, err = io.ReadAll(f)
	if err != nil {
		return nil, false, fail.Wrap(fail.Disk, "read image", filepath.Join(root, name), err)
	}
	return data, true, nil
}
