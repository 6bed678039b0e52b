package corpus

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"searchloop/corpus/record"
)

// fast reads an entry that stands on one line without making values of it: what
// nobody asked for, such as whole answers of a search engine, is passed over and
// later copied to the byte. It declines what is not plain: such entries, and
// those with a fault, take the way over values, which also finds the words for
// the fault.
func (e *cacheEntry) fast(raw []byte) bool {
	if len(raw) == 0 || raw[0] != '{' || !plainLine(raw) {
		return false
	}
	var id []byte
	list, listed := e.hits[:0], false
	c := record.CursorOf(raw)
	err := c.Object(func(name []byte) (err error) {
		switch string(name) {
		case lensID:
			id, err = c.Raw()
		case lensHits:
			list, listed = list[:0], true // of fields with one name the last counts
			err = c.List(func() error {
				h, err := hitAt(c)
				list = append(list, h)
				return err
			})
		default:
			_, err = c.Raw()
		}
		return err
	})
	if err != nil || c.End() != nil || c.Foreign() || !listed {
		return false
	}
	text, ok, err := record.UnquoteJSON(id)
	if err != nil || !ok || checkID(text) != nil || strings.TrimSpace(text) != text {
		return false
	}
	for i := range list {
		h := &list[i]
		h.from = cap(raw) - cap(h.rawPath) // both end where the memory ends
		h.to = h.from + len(h.rawPath)
	}
	e.ID, e.Hits, e.hits, e.raw = text, list, list, raw
	return true
}

// hitAt reads the hit before which c stands.
func hitAt(c *record.Cursor) (h cachedHit, err error) {
	err = c.Object(func(name []byte) (err error) {
		value, err := c.Raw()
		switch string(name) {
		case lensTitle:
			h.rawTitle = value
		case lensImage:
			h.rawPath = value
		}
		return err
	})
	if err == nil && (h.rawPath == nil || !textOrNull(h.rawPath) || h.rawTitle != nil && !textOrNull(h.rawTitle)) {
		err = errNotPlain
	}
	return h, err
}

var errNotPlain = errors.New("not plain")

func textOrNull(raw []byte) bool { return raw[0] == '"' || string(raw) == "null" }

// plainLine says whether a JSON text can be copied as a line of JSON as far as its
// characters go: UTF-8 without control characters, every escape a known one.
func plainLine(b []byte) bool {
	if !record.IsText(b) {
		return false
	}
	for rest := b; ; {
		i := bytes.IndexByte(rest, '\\')
		if i < 0 {
			return true
		}
		if i+1 >= len(rest) {
			return false
		}
		switch rest[i+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			rest = rest[i+2:]
		case 'u':
			if len(rest) < i+6 {
				return false
			}
			for _, c := range rest[i+2 : i+6] {
				if c-'0' >= 10 && (c|0x20)-'a' >= 6 {
					return false
				}
			}
			rest = rest[i+6:]
		default:
			return false
		}
	}
}

// splice copies the entry with the paths of its hits replaced.
func (e *cacheEntry) splice(dst []byte, paths []string) []byte {
	size := len(e.raw) + len("\n")
	for _, p := range paths {
		size += len(p)
	}
	dst = slices.Grow(dst, size)
	at := 0
	for i, h := range e.Hits {
		dst = append(dst, e.raw[at:h.from]...)
		dst = append(dst, paths[i]...)
		at = h.to
	}
	return append(dst, e.raw[at:]...)
}

// span is where something stands in a line.
type span struct{ from, to int32 }

// plan is what fast found in a line, without the line: title and path of each
// hit. A title that is absent has no length.
type plan []span

func (e *cacheEntry) plan() plan {
	if e.raw == nil {
		return nil
	}
	p := make(plan, 0, 2*len(e.Hits))
	for _, h := range e.Hits {
		title := span{}
		if h.rawTitle != nil {
			title.from = int32(cap(e.raw) - cap(h.rawTitle))
			title.to = title.from + int32(len(h.rawTitle))
		}
		p = append(p, title, span{int32(h.from), int32(h.to)})
	}
	return p
}

// follow is fast for a line that plan is of.
func (e *cacheEntry) follow(p plan, id string, raw []byte) {
	e.ID, e.raw, e.hits = id, raw, e.hits[:0]
	for ; len(p) > 0; p = p[2:] {
		title, path := p[0], p[1]
		h := cachedHit{from: int(path.from), to: int(path.to), rawPath: raw[path.from:path.to]}
		if title.to > 0 {
			h.rawTitle = raw[title.from:title.to]
		}
		e.hits = append(e.hits, h)
	}
	e.Hits = e.hits
}
