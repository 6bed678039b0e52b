package corpus

import (
	"errors"
	"fmt"
	"iter"
	"strings"

	"searchloop/corpus/record"
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
	Path string
	N    int64 // line, or place in the document
	ID   string
	Hits []cachedHit
	Err  error
	raw  []byte       // the entry's line, when nothing but paths need change in it; valid until the next entry
	body record.Value // otherwise a struct with data_id and cached_data
	// pictures are the images of hits that a pickle holds; nil, or one a hit.
	pictures []*pickledImage
}

// cachedHit is one cached result. Its path stands in raw from from to to.
type cachedHit struct {
	Path     string
	title    []byte // undecoded JSON, or
	text     string // the title
	from, to int
}

// Title decodes the hit's title.
func (h *cachedHit) Title() (string, error) {
	if h.title == nil {
		return h.text, nil
	}
	t, _, err := record.UnquoteJSON(h.title)
	return t, err
}

// readCaches goes through the entries of lens caches, file by file, in any of
// the three forms that their readers accept (JSON lines, a list of entries, an
// object of entries, or of their cached_data, by data_id) or as a pickled dict
// of MMSearch-R1.
func readCaches(files []string) iter.Seq2[cacheEntry, error] {
	return func(yield func(cacheEntry, error) bool) {
		for _, path := range files {
			isPickled, err := pickledAt(path)
			if err != nil {
				yield(cacheEntry{}, err)
				return
			}
			if isPickled {
				for e, err := range pickledEntries(path) {
					if !yield(e, err) || err != nil {
						return
					}
				}
				continue
			}
			var hits []cachedHit // one entry's at a time
			for item, err := range record.Items(path, lensID, lensHits, lensTitle, "query", "public_url", "serpapi_image_len_response") {
				if err != nil {
					yield(cacheEntry{}, err)
					return
				}
				e := cacheEntry{Path: path, N: item.N, ID: item.Key, Err: item.Err, Hits: hits[:0]}
				if e.Err == nil && !e.fast(item.Raw) {
					e.parse(item.Raw)
				}
				hits = e.Hits
				if !yield(e, nil) {
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
		if id := strings.TrimSpace(e.body.Get(lensID).String()); id != "" {
			e.ID = id
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
			e.Hits = append(e.Hits, cachedHit{Path: h.Get(lensImage).String(), text: h.Get(lensTitle).String()})
		}
	default:
		e.Err = errors.New(lensHits + " is " + hits.Kind().String() + ", not a list")
	}
}

// appendWithImages appends the entry as a line in the published form with the
// paths of its hits replaced, "" becoming null. Everything else stays as it was.
func (e *cacheEntry) appendWithImages(dst []byte, paths []string) []byte {
	if e.raw != nil {
		return e.splice(dst, paths)
	}
	hits := append([]record.Value(nil), e.body.Get(lensHits).Items()...)
	for i := range hits {
		path := record.Value{}
		if paths[i] != "" {
			path = record.TextOf(paths[i])
		}
		hits[i] = hits[i].With(lensImage, path)
	}
	return e.body.With(lensHits, record.ListOf(hits)).AppendJSON(dst)
}
