package corpus

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"searchloop/corpus/record"
	"searchloop/internal/fail"
)

// entryAt is an entry that can be used.
type entryAt struct {
	n          int64 // position
	id         string
	plan       plan // nil: read it again
	superseded bool // by a later one
}

// place is that of an entry in lens.readable.
type place struct{ file, at int }

// choose finds for every data_id the entry that counts and rejects what is none.
func (l *lens) choose() error {
	type seen struct {
		position
		entryAt
		err error
	}
	l.entryOf, l.readable = map[string]place{}, make([][]entryAt, len(l.opt.Cache))
	for e, err := range mapCaches(l.opt.Cache, func(e *cacheEntry) seen {
		e.load()
		return seen{e.position, entryAt{n: e.n, id: e.ID, plan: e.plan()}, e.Err}
	}) {
		if err != nil {
			return err
		}
		if e.err != nil {
			l.sh.Reject(e.path, e.position.n, e.id, e.err)
			continue
		}
		if earlier, again := l.entryOf[e.id]; again {
			l.report.Superseded++
			l.readable[earlier.file][earlier.at].superseded = true
		}
		l.entryOf[e.id] = place{e.file, len(l.readable[e.file])}
		l.readable[e.file] = append(l.readable[e.file], e.entryAt)
	}
	return nil
}

// counts gives the entry at a position if it counts.
func (l *lens) counts(p position) (entryAt, bool) {
	list := l.readable[p.file]
	i, ok := slices.BinarySearchFunc(list, p.n, func(e entryAt, n int64) int { return cmp.Compare(e.n, n) })
	if !ok || list[i].superseded {
		return entryAt{}, false
	}
	return list[i], true
}

// resolved is an entry that counts, with its images.
type resolved struct {
	LensEntry          // without id when another entry counts
	images    []*found // of the hits; nil for hits that name no file
	line      *[]byte  // in the published form, of linePool
	err       error
}

// resolve goes through the caches a second time, turns paths into images, and
// gives the published form to lines in the order of the entries.
func (l *lens) resolve(ctx context.Context, lines *lineWriter) error {
	progress := l.r.Progress("entries", int64(len(l.entryOf)))
	defer progress.Done()
	for e, err := range mapCaches(l.opt.Cache, l.entry) {
		if err == nil {
			err = l.r.Interrupted()
		}
		if err == nil {
			err = fail.Wrap(fail.Interrupted, "lens", l.opt.Out, ctx.Err())
		}
		if err == nil {
			err = e.err
		}
		if err != nil {
			return err
		}
		if e.DataID == "" {
			continue
		}
		for i, f := range e.images {
			l.report.count(e.DataID, i, e.Hits[i], f)
		}
		l.entries = append(l.entries, e.LensEntry)
		if err := lines.write(e.line); err != nil {
			return err
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

// entry resolves an entry. It is called for several at the same time.
func (l *lens) entry(e *cacheEntry) (out resolved) {
	c, counts := l.counts(e.position)
	if !counts {
		return out
	}
	if c.plan != nil {
		e.follow(c.plan, c.id, e.unread)
	} else {
		e.load()
	}
	n := len(e.Hits)
	out.DataID, out.images = e.ID, make([]*found, n)
	if n > 0 {
		out.Hits = make([]LensHit, n)
	}
	// The titles of all hits are one text: there are millions.
	titles, ends, paths := e.titles[:0], e.ends[:0], e.paths[:0]
	for i := range e.Hits {
		h, hit, path := &e.Hits[i], &out.Hits[i], "null"
		var f *found
		if e.pictures != nil && e.pictures[i] != nil {
			f = l.pickled(e.pictures[i])
		} else if f, hit.Path, out.err = l.named(h); out.err != nil {
			return out
		}
		if f != nil {
			if out.err = f.err; out.err != nil {
				return out
			}
			out.images[i], hit.ImageID = f, f.sha
			if f.sha != "" {
				path = f.file
			}
		}
		paths = append(paths, path)
		if titles, out.err = h.appendTitle(titles); out.err != nil {
			return out
		}
		ends = append(ends, len(titles))
	}
	all, from := string(titles), 0
	for i, end := range ends {
		out.Hits[i].Title = all[from:end]
		from = end
	}
	line := linePool.Get().(*[]byte)
	*line = append(e.appendWithImages((*line)[:0], paths), '\n')
	out.line = line
	e.titles, e.ends, e.paths = titles, ends, paths
	return out
}

// found is what a cached path led to. Many hits show one image: each name is
// looked up once.
type found struct {
	name   string
	once   sync.Once
	sha    string
	file   string // absolute path in the store, as JSON
	how    string // it was found, or
	reason string // why it was not
	err    error
}

// named finds the image of a hit; nil when the hit names no file.
func (l *lens) named(h *cachedHit) (f *found, path string, err error) {
	if name, ok := h.plainPath(); ok {
		l.mu.Lock()
		f = l.found[string(name)]
		l.mu.Unlock()
	}
	if f == nil {
		if path, err = h.Path(); err != nil {
			return nil, "", fail.Wrap(fail.Bug, "lens", "", err) // checked when the entry was read
		}
		if path == "" || webAddress(path) {
			return nil, path, nil
		}
		l.mu.Lock()
		if f = l.found[path]; f == nil {
			f = &found{name: path}
			l.found[path] = f
		}
		l.mu.Unlock()
	}
	f.once.Do(func() {
		if f.sha, f.how, f.reason, f.err = l.image(f.name); f.err == nil && f.sha != "" {
			f.file, f.err = l.file(f.sha)
		}
	})
	return f, f.name, nil
}

// file is the absolute path of an image in the store, as JSON.
func (l *lens) file(sha string) (string, error) {
	path, err := l.store.Path(sha)
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(l.opt.Images, path)
	return string(record.AppendQuoted(nil, filepath.Join(l.images, rel))), fail.Wrap(fail.Bug, "lens", path, err)
}

// webAddress says whether a cached path is an address, which is never fetched.
func webAddress(path string) bool {
	return strings.HasPrefix(path, "http://") || strings.HasPrefix(path, "https://")
}

// pickled stores an image that the cache itself holds.
func (l *lens) pickled(pic *pickledImage) *found {
	data, bad := pic.png()
	if bad != nil {
		return &found{reason: bad.Error()}
	}
	f := &found{how: "in the cache itself"}
	if f.sha, f.err = l.store.Put(data); f.err == nil {
		f.file, f.err = l.file(f.sha)
	}
	return f
}

// image finds what a cached path names, in the archives first.
func (l *lens) image(cached string) (sha, how, reason string, err error) {
	f, how, ok := l.unpacked.find(cached)
	if ok && f.SHA != "" {
		return f.SHA, how, "", nil
	}
	for _, root := range l.roots {
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
func readBelow(root *os.Root, cached string) (data []byte, found bool, err error) {
	name := filepath.FromSlash(strings.ReplaceAll(cached, `\`, "/"))
	if abs, aerr := filepath.Abs(root.Name()); aerr == nil && filepath.IsAbs(name) {
		if name, aerr = filepath.Rel(abs, name); aerr != nil {
			return nil, false, nil
		}
	}
	f, err := root.Open(filepath.Clean(name))
	if err != nil {
		return nil, false, nil
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Size() > maxImageBytes {
		return nil, false, nil
	}
	var b bytes.Buffer
	b.Grow(int(st.Size()) + bytes.MinRead) // one read, and one that finds the end
	if _, err = b.ReadFrom(f); err != nil {
		return nil, false, fail.Wrap(fail.Disk, "read image", filepath.Join(root.Name(), name), err)
	}
	return b.Bytes(), true, nil
}
