package record

import (
	"encoding/json"
	"errors"
	"io"
	"iter"
	"slices"

	"searchloop/internal/fail"
)

// Item is one record of a JSON file. N is its line in JSON lines, otherwise its
// 1-based position. Key is its name when the document is an object of records,
// else "". Raw is valid until the next item. Err is set when this record alone
// is unusable.
type Item struct {
	N   int64
	Key string
	Raw []byte
	Err error
}

// Items goes through the records of a JSON file in any of four forms: JSON
// lines, one list of records, one object of records by name, objects one after
// the other with line ends inside them. An object whose
// first field is one of fields, or is no object or list, is taken for a record
// and the file for JSON lines. Files may be compressed as Open allows. The
// second value is an error of the file and ends the iteration.
func Items(path string, fields ...string) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		form, err := formOf(path, fields)
		switch {
		case err != nil:
			yield(Item{}, err)
		case form == 0:
			for line, err := range Lines(path) {
				if !yield(Item{N: line.N, Raw: line.Data, Err: line.Err}, err) {
					return
				}
			}
		default:
			document(path, form, yield)
		}
	}
}

// MapItems yields what was made of the records that Items gives, in the same order.
// JSON lines are read on all cores, in blocks: each has a read of its own from begin,
// as MapLines says. Of other forms each record has one. read must not keep a record's
// Raw.
func MapItems[T any](path string, begin func() func(Item) T, fields ...string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		form, err := formOf(path, fields)
		if err == nil && form == 0 {
			MapLines(path, func() func(Line) T {
				read := begin()
				return func(l Line) T { return read(Item{N: l.N, Raw: l.Data, Err: l.Err}) }
			})(yield)
			return
		}
		each := func(item Item, err error) bool {
			var made T
			if err == nil {
				made = begin()(item)
			}
			return yield(made, err)
		}
		if err != nil {
			each(Item{}, err)
			return
		}
		document(path, form, each)
	}
}

// formOf gives '[' for a list, '{' for an object of records, 0 for JSON lines.
func formOf(path string, fields []string) (json.Delim, error) {
	r, err := Open(path)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	dec := json.NewDecoder(r)
	first, err := dec.Token()
	var readFailed *fail.Error
	if errors.As(err, &readFailed) {
		return 0, err
	}
	if err != nil || first == json.Delim('[') {
		// What is not JSON at all is reported line by line.
		form, _ := first.(json.Delim)
		return form, nil
	}
	if whole, err := firstLineIsWhole(path); err != nil {
		return 0, err
	} else if !whole && follows(path) {
		return concatenated, nil
	}
	name, err := dec.Token()
	if key, ok := name.(string); first != json.Delim('{') || err != nil || !ok || slices.Contains(fields, key) {
		return 0, nil
	}
	if value, err := dec.Token(); err == nil {
		if _, nested := value.(json.Delim); nested {
			return '{', nil
		}
	}
	return 0, nil
}

// concatenated is the form of objects one after the other.
const concatenated = json.Delim('+')

// firstLineIsWhole says whether the first line is a JSON value, as in JSON lines.
func firstLineIsWhole(path string) (bool, error) {
	for line, err := range Lines(path) {
		if err != nil {
			return false, err
		}
		if line.Err != nil {
			return false, nil
		}
		_, perr := ParseJSON(line.Data)
		return perr == nil, nil
	}
	return true, nil
}

// follows says whether the file is an object over several lines that another
// one follows.
func follows(path string) bool {
	r, err := Open(path)
	if err != nil {
		return false
	}
	defer r.Close()
	dec := json.NewDecoder(r)
	var raw json.RawMessage
	if dec.Decode(&raw) != nil {
		return false
	}
	next, err := dec.Token()
	return err == nil && next == json.Delim('{')
}

func document(path string, form json.Delim, yield func(Item, error) bool) {
	r, err := Open(path)
	if err != nil {
		yield(Item{}, err)
		return
	}
	defer r.Close()
	item := Item{N: 1}
	broken := func(err error) {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		e := fail.Wrap(fail.BadInput, "read JSON", path, err).(*fail.Error)
		e.Row = item.N
		yield(Item{}, fail.WithHint(e, "the document is cut short or is not JSON from this record on"))
	}
	dec := json.NewDecoder(r)
	if form != concatenated {
		if _, err := dec.Token(); err != nil {
			broken(err)
			return
		}
	}
	for ; dec.More(); item.N++ {
		if form == '{' {
			name, err := dec.Token()
			if err != nil {
				broken(err)
				return
			}
			item.Key, _ = name.(string)
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			broken(err)
			return
		}
		item.Raw = raw
		if !yield(item, nil) {
			return
		}
	}
	if form != concatenated {
		if _, err := dec.Token(); err != nil {
			broken(err)
			return
		}
	}
	if _, err := dec.Token(); err != io.EOF {
		broken(errors.New("something follows the document"))
	}
}
