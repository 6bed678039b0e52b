package corpus

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"

	"searchloop/corpus/record"
	"searchloop/internal/fail"
)

// Fields of a published lens cache: data_id names the question, cached_data
// lists what a reverse image search returned for its image.
const (
	lensID    = "data_id"
	lensHits  = "cached_data"
	lensTitle = "cached_title"
	lensImage = "cached_images_path"
)

// cacheEntry is one entry of a lens cache as its file has it. Err is set when the
// entry is unusable.
type cacheEntry struct {
	position
	ID   string
	Hits []cachedHit
	Err  error

	unread []byte       // the entry's JSON before load
	raw    []byte       // the entry's line, when nothing but paths need change in it; not to be kept
	body   record.Value // otherwise a struct with data_id and cached_data
	// pictures are the images of hits that a pickle holds; nil, or one a hit.
	pictures []*pickledImage

	lensMemory
}

// lensMemory is memory that one entry leaves to the next.
type lensMemory struct {
	hits  []cachedHit
	paths []string
}

// position is where an entry stands: the file, and the line or the place in the document.
type position struct {
	path string
	file int // number of the file: one may be named twice
	n    int64
}

// load reads the entry, of which only the position is known before.
func (e *cacheEntry) load() {
	if e.Err == nil && e.unread != nil && !e.fast(e.unread) {
		e.parse(e.unread)
	}
}

// cachedHit is one cached result: undecoded JSON of the entry's line, in which the
// path stands from from to to, or texts.
type cachedHit struct {
	rawTitle, rawPath []byte
	title, path       string
	from, to          int
}

// appendTitle decodes the hit's title.
func (h *cachedHit) appendTitle(dst []byte) ([]byte, error) {
	if len(h.rawTitle) > 2 && h.rawTitle[0] == '"' && bytes.IndexByte(h.rawTitle, '\\') < 0 {
		return append(dst, h.rawTitle[1:len(h.rawTitle)-1]...), nil
	}
	if h.rawTitle == nil {
		return append(dst, h.title...), nil
	}
	t, _, err := record.UnquoteJSON(h.rawTitle)
	return append(dst, t...), fail.Wrap(fail.Bug, "lens", "", err) // checked when the entry was read
}

// Path decodes the hit's path.
func (h *cachedHit) Path() (string, error) {
	if h.rawPath == nil {
		return h.path, nil
	}
	p, _, err := record.UnquoteJSON(h.rawPath)
	return p, err
}

// plainPath is the path if it stands in the line as it is.
func (h *cachedHit) plainPath() ([]byte, bool) {
	if len(h.rawPath) < 2 || h.rawPath[0] != '"' || bytes.IndexByte(h.rawPath, '\\') >= 0 {
		return nil, false
	}
	return h.rawPath[1 : len(h.rawPath)-1], true
}

// mapCaches reads the entries of lens caches, file by file, and yields what was made
// of them in the order of the entries. JSON lines are read on all cores, in blocks,
// each by a read of its own that begin gives. Caches come in any of the three forms that their readers accept (JSON
// lines, a list of entries, an object of entries, or of their cached_data, by
// data_id) or as a pickled dict of MMSearch-R1. read calls load for the
// entries that it wants to see, and keeps none.
func mapCaches[T any](files []string, begin func() func(*cacheEntry) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var free sync.Pool // of *cacheEntry
		for file, path := range files {
			isPickled, err := pickledAt(path)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			made := record.MapItems(path, func() func(record.Item) T {
				read := begin()
				return func(item record.Item) T {
					e, ok := free.Get().(*cacheEntry)
					if !ok {
						e = &cacheEntry{}
					}
					defer free.Put(e)
					*e = cacheEntry{position: position{path, file, item.N}, ID: item.Key, Err: item.Err, unread: item.Raw, lensMemory: e.lensMemory}
					return read(e)
				}
			}, lensID, lensHits, lensTitle, "query", "public_url", "serpapi_image_len_response")
			if isPickled {
				made = func(yield func(T, error) bool) {
					for e, err := range pickledEntries(path) {
						e.file = file
						if !yield(begin()(&e), err) {
							return
						}
					}
				}
			}
			for x, err := range made {
				if !yield(x, err) || err != nil {
					return
				}
			}
		}
	}
}

func (e *cacheEntry) parse(raw []byte) {
	if e.body, e.Err = record.ParseJSON(raw); e.Err != nil {
		return
	}
	switch e.body.Kind() {
	case record.List:
		e.body = record.Value{}.With(lensID, record.TextOf(e.ID)).With(lensHits, e.body)
	case record.Struct:
		said := e.body.Get(lensID)
		if id := strings.TrimSpace(said.String()); id != "" {
			if e.ID = id; said.String() != id {
				e.body = e.body.With(lensID, record.TextOf(id))
			}
		} else if e.ID != "" {
			e.body = e.body.With(lensID, record.TextOf(e.ID))
		}
	default:
		e.Err = fmt.Errorf("the entry is %s, not an object", e.body.Kind())
		return
	}
	if e.Err = checkID(e.ID); e.Err != nil {
		return
	}
	hits := e.body.Get(lensHits)
	switch hits.Kind() {
	case record.Null: // a search that found nothing
		e.body = e.body.With(lensHits, record.ListOf(nil))
	case record.List:
		for i, h := range hits.Items() {
			if h.Kind() != record.Struct {
				e.Err = fmt.Errorf("hit %d of %s is %s, not an object", i+1, lensHits, h.Kind())
				return
			}
			for _, name := range []string{lensTitle, lensImage} {
				if v := h.Get(name); v.Kind() != record.Text && v.Kind() != record.Null {
					e.Err = fmt.Errorf("%s of hit %d is %s, not text", name, i+1, v.Kind())
					return
				}
			}
			e.Hits = append(e.Hits, cachedHit{path: h.Get(lensImage).String(), title: h.Get(lensTitle).String()})
		}
	default:
		e.Err = errors.New(lensHits + " is " + hits.Kind().String() + ", not a list")
	}
}

// appendWithImages appends the entry as a line in the published form with the
// paths of its hits replaced: paths are JSON, a text or null. Everything else
// stays as it was.
func (e *cacheEntry) appendWithImages(dst []byte, paths []string) []byte {
	if e.raw != nil {
		return e.splice(dst, paths)
	}
	hits := append([]record.Value(nil), e.body.Get(lensHits).Items()...)
	for i := range hits {
		path := record.Value{}
		if text, ok, _ := record.UnquoteJSON([]byte(paths[i])); ok {
			path = record.TextOf(text)
		}
		hits[i] = hits[i].With(lensImage, path)
	}
	return e.body.With(lensHits, record.ListOf(hits)).AppendJSON(dst)
}
