package corpus

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"searchloop/corpus/record"
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
		for i, h := range e.Body.Get(lensHits).Items() {
			var pic *pickledImage
			if e.pictures != nil {
				pic = e.pictures[i]
			}
			hit, path, err := l.hit(e.ID, i, h, pic)
			if err != nil {
				return err
			}
			entry.Hits, paths = append(entry.Hits, hit), append(paths, path)
		}
		l.entries = append(l.entries, entry)
		line = append(e.withImages(paths).AppendJSON(line[:0]), '\n')
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
func (l *lens) hit(id string, i int, h record.Value, pic *pickledImage) (hit LensHit, path string, err error) {
	l.report.Hits++
	hit = LensHit{Title: h.Get(lensTitle).String(), Path: h.Get(lensImage).String()}
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
		sha, reason, err = l.image(hit.Path)
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
	if path, err = l.store.Path(sha); err != nil {
		return hit, "", err
	}
	rel, err := filepath.Rel(l.opt.Images, path)
	return hit, filepath.Join(l.images, rel), fail.Wrap(fail.Bug, "lens", path, err)
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
func (l *lens) image(cached string) (sha, reason string, err error) {
	f, how, ok := l.unpacked.find(cached)
	if ok && f.SHA != "" {
		l.report.FoundBy[how]++
		return f.SHA, "", nil
	}
	for _, root := range l.opt.Roots {
		data, found, err := readBelow(root, cached)
		if err != nil {
			return "", "", err
		}
		if !found {
			continue
		}
		if bad := CheckImage(data); bad != nil {
			return "", bad.Error(), nil
		}
		if sha, err = l.store.Put(data); err != nil {
			return "", "", err
		}
		l.report.FoundBy["in a folder"]++
		return sha, "", nil
	}
	if ok {
		return "", f.Reason, nil
	}
	return "", "no such file", nil
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
