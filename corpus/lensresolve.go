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
	"unsafe"

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
	l.readable = make([][]entryAt, len(l.opt.Cache))
	for e, err := range mapCaches(l.opt.Cache, func() func(*cacheEntry) seen {
		return func(e *cacheEntry) seen {
			e.load()
			return seen{e.position, entryAt{n: e.n, id: e.ID, plan: e.plan()}, e.Err}
		}
	}) {
		if err != nil {
			return err
		}
		if e.err != nil {
			if l.rejected--; l.rejected < 0 {
				l.sh.Reject(e.path, e.position.n, e.id, e.err)
			}
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
	LensEntry            // without id when another entry counts
	images    []*found   // of the hits; nil for hits that name no file
	block     *lensBlock // of the first entry of a block, whether it counts or not
	position  position
	unfit     error // why the entry is none
	err       error
}

// lensBlock is memory that the entries of a block share. What a block leaves over is
// for a later one.
type lensBlock struct {
	lines  *[]byte   // of linePool: the entries in the published form
	images []*found  // of the block's hits
	hits   []LensHit // room for hits
	titles []byte    // room for titles
}

// resolve goes through the caches, turns paths into images, and gives the published
// form to lines in the order of the entries. With once it takes every entry for the
// one that counts, and ends with again when an id comes a second time; otherwise
// choose has found those that count.
func (l *lens) resolve(ctx context.Context, lines *lineWriter, once bool) (again bool, err error) {
	progress := l.r.Progress("entries", int64(len(l.entryOf)))
	defer progress.Done()
	var now *lensBlock
	for e, err := range mapCaches(l.opt.Cache, func() func(*cacheEntry) resolved { return l.block(once) }) {
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
			return false, err
		}
		if e.block != nil {
			if now != nil {
				l.blocks.Put(now)
			}
			now = e.block
			if err := lines.write(now.lines); err != nil {
				return false, err
			}
		}
		if e.unfit != nil {
			l.sh.Reject(e.position.path, e.position.n, e.DataID, e.unfit)
			l.rejected++
			continue
		}
		if e.DataID == "" {
			continue
		}
		if once {
			if _, again := l.entryOf[e.DataID]; again {
				return true, nil
			}
			l.entryOf[e.DataID] = place{}
		}
		for i, f := range e.images {
			l.report.count(e.DataID, i, &e.Hits[i], f)
		}
		l.entries = append(l.entries, e.LensEntry)
		progress.Add(1, 0)
	}
	l.report.settle()
	slices.SortFunc(l.entries, func(a, b LensEntry) int { return strings.Compare(a.DataID, b.DataID) })
	l.report.Entries = int64(len(l.entries))
	return false, nil
}

// block gives what resolves the entries of a block. It is called for several at the
// same time.
func (l *lens) block(once bool) func(*cacheEntry) resolved {
	b, ok := l.blocks.Get().(*lensBlock)
	if !ok {
		b = &lensBlock{}
	}
	b.lines, b.images = linePool.Get().(*[]byte), b.images[:0]
	*b.lines = (*b.lines)[:0]
	first := b
	return func(e *cacheEntry) resolved {
		out := l.entry(b, e, once)
		out.block, first = first, nil
		return out
	}
}

// entry resolves an entry.
func (l *lens) entry(b *lensBlock, e *cacheEntry, once bool) (out resolved) {
	var c entryAt
	if !once {
		var counts bool
		if c, counts = l.counts(e.position); !counts {
			return out
		}
	}
	if c.plan != nil {
		e.follow(c.plan, c.id, e.unread)
	} else if e.load(); e.Err != nil {
		out.position, out.DataID, out.unfit = e.position, e.ID, e.Err
		return out
	}
	n := len(e.Hits)
	out.DataID, out.Hits, out.images, e.paths = e.ID, b.hitsOf(n), b.imagesOf(n), e.paths[:0]
	l.known(e.Hits, out.images)
	for i := range e.Hits {
		h, hit, path := &e.Hits[i], &out.Hits[i], "null"
		f := out.images[i]
		switch {
		case f != nil:
			hit.Path = f.name
		case e.pictures != nil && e.pictures[i] != nil:
			f = l.pickled(e.pictures[i])
		default:
			if f, hit.Path, out.err = l.named(h); out.err != nil {
				return out
			}
		}
		if f != nil {
			if f.find(l); f.err != nil {
				out.err = f.err
				return out
			}
			if out.images[i], hit.ImageID = f, f.sha; f.sha != "" {
				path = f.file
			}
		}
		if hit.Title, out.err = b.title(h); out.err != nil {
			return out
		}
		e.paths = append(e.paths, path)
	}
	*b.lines = append(e.appendWithImages(*b.lines, e.paths), '\n')
	return out
}

// hitsOf gives n hits; nil for none.
func (b *lensBlock) hitsOf(n int) []LensHit {
	if n == 0 {
		return nil
	}
	if n > len(b.hits) {
		b.hits = make([]LensHit, max(n, 2048))
	}
	out := b.hits[:n:n]
	b.hits = b.hits[n:]
	return out
}

// imagesOf gives n images, which are nil, until the block is used again.
func (b *lensBlock) imagesOf(n int) []*found {
	from := len(b.images)
	b.images = slices.Grow(b.images, n)[:from+n]
	clear(b.images[from:])
	return b.images[from:]
}

// title decodes a hit's title. Titles stand one behind the other: there are millions.
func (b *lensBlock) title(h *cachedHit) (string, error) {
	if need := len(h.rawTitle) + len(h.title); need > cap(b.titles)-len(b.titles) { // no escape is shorter than its character
		b.titles = make([]byte, 0, max(need, 64<<10))
	}
	from := len(b.titles)
	var err error
	b.titles, err = h.appendTitle(b.titles)
	return unsafe.String(unsafe.SliceData(b.titles[from:]), len(b.titles)-from), err
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

// known gives the images of hits that name what an earlier one has named.
func (l *lens) known(hits []cachedHit, images []*found) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range hits {
		if name, ok := hits[i].plainPath(); ok {
			images[i] = l.found[string(name)]
		}
	}
}

// named gives the image of a hit; nil when the hit names no file.
func (l *lens) named(h *cachedHit) (f *found, path string, err error) {
	if path, err = h.Path(); err != nil {
		return nil, "", fail.Wrap(fail.Bug, "lens", "", err) // checked when the entry was read
	}
	if path == "" || webAddress(path) {
		return nil, path, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f = l.found[path]; f == nil {
		f = &found{name: path}
		l.found[path] = f
	}
	return f, path, nil
}

// find looks for what f names, if nobody has yet.
func (f *found) find(l *lens) {
	f.once.Do(func() {
		if f.name == "" {
			return // the cache itself held it
		}
		if f.sha, f.how, f.reason, f.err = l.image(f.name); f.err == nil && f.sha != "" {
			f.file, f.err = l.file(f.sha)
		}
	})
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
