package corpus

import (
	"bytes"
	"fmt"
	"unicode/utf8"

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
	var id, hits []byte
	err := record.EachField(raw, func(name, value []byte) error {
		switch string(name) {
		case lensID:
			id = value
		case lensHits:
			hits = value
		}
		return nil
	})
	if err != nil || len(hits) == 0 || hits[0] != '[' {
		return false
	}
	text, ok, err := record.UnquoteJSON(id)
	if err != nil || !ok || checkID(text) != nil {
		return false
	}
	list := e.Hits[:0]
	err = record.EachItem(hits, func(hit []byte) error {
		h := cachedHit{}
		var path []byte
		if err := record.EachField(hit, func(name, value []byte) error {
			switch string(name) {
			case lensTitle:
				h.title = value
			case lensImage:
				path = value
			}
			return nil
		}); err != nil {
			return err
		}
		if path == nil || !textOrNull(path) || h.title != nil && !textOrNull(h.title) {
			return fmt.Errorf("not plain")
		}
		h.from = cap(raw) - cap(path) // both end where the memory ends
		h.to = h.from + len(path)
		p, _, err := record.UnquoteJSON(path)
		h.Path = p
		list = append(list, h)
		return err
	})
	if err != nil {
		return false
	}
	e.ID, e.Hits, e.raw = text, list, raw
	return true
}

func textOrNull(raw []byte) bool { return raw[0] == '"' || string(raw) == "null" }

// plainLine says whether a JSON text can be copied as a line of JSON: UTF-8
// without control characters, every escape a known one, and none of Python's
// additions to JSON.
func plainLine(b []byte) bool {
	if !utf8.Valid(b) || bytes.Contains(b, []byte("NaN")) || bytes.Contains(b, []byte("Infinity")) {
		return false
	}
	if record.HasControl(b) {
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
	at := 0
	for i, h := range e.Hits {
		dst = append(dst, e.raw[at:h.from]...)
		dst = appendPath(dst, paths[i])
		at = h.to
	}
	return append(dst, e.raw[at:]...)
}

func appendPath(dst []byte, path string) []byte {
	if path == "" {
		return append(dst, "null"...)
	}
	return record.AppendQuoted(dst, path)
}
