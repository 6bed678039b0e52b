package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathbits "math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// entry is one tensor of a header: [begin, end) in the bytes after the header.
type entry struct {
	dtype      string
	shape      []int
	elements   int
	begin, end uint64
}

// parse checks a whole file image and returns its tensors, its metadata and the
// bytes that the offsets refer to.
func parse(file []byte) (map[string]entry, map[string]string, []byte, error) {
	if len(file) < 8 {
		return nil, nil, nil, fmt.Errorf("%d bytes is shorter than the 8 bytes of the header length", len(file))
	}
	n := binary.LittleEndian.Uint64(file)
	switch {
	case n > MaxHeader:
		return nil, nil, nil, fmt.Errorf("header length %d is over the limit of %d", n, MaxHeader)
	case n > uint64(len(file)-8):
		return nil, nil, nil, fmt.Errorf("header length %d runs past the end of the file (%d bytes)", n, len(file))
	}
	head, body := file[8:8+n], file[8+n:]
	if n == 0 || head[0] != '{' {
		return nil, nil, nil, errors.New("header does not begin with '{'")
	}
	if !utf8.Valid(head) {
		return nil, nil, nil, errors.New("header is not valid UTF-8")
	}
	tensors, meta, err := decode(head)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("header: %w", err)
	}
	if err := layout(tensors, uint64(len(body))); err != nil {
		return nil, nil, nil, err
	}
	return tensors, meta, body, nil
}

// decode walks the header token by token: encoding/json's own decoding would let
// a second tensor of the same name replace the first and match field names
// without regard to case.
func decode(head []byte) (map[string]entry, map[string]string, error) {
	d := json.NewDecoder(bytes.NewReader(head))
	d.UseNumber()
	tensors := map[string]entry{}
	var meta map[string]string
	err := object(d, func(name string) error {
		if name == "__metadata__" {
			meta = map[string]string{}
			return object(d, func(key string) error {
				s, err := text(d)
				meta[key] = s
				return wrap(key, err)
			})
		}
		e, err := tensor(d)
		tensors[name] = e
		return wrap(name, err)
	})
	if err != nil {
		return nil, nil, err
	}
	rest, err := io.ReadAll(d.Buffered())
	if err != nil || len(bytes.Trim(rest, " \t\r\n")) > 0 {
		return nil, nil, errors.New("something follows the JSON object")
	}
	return tensors, meta, nil
}

func wrap(name string, err error) error {
	if err == nil {
		return nil
	}
	if len(name) > 200 {
		name = name[:200]
	}
	return fmt.Errorf("%q: %w", name, err)
}

// object reads one JSON object and calls field for each key, refusing a key that
// occurs twice.
func object(d *json.Decoder, field func(key string) error) error {
	if err := expect(d, json.Delim('{')); err != nil {
		return err
	}
	seen := map[string]bool{}
	for d.More() {
		key, err := text(d)
		if err != nil {
			return err
		}
		if seen[key] {
			return wrap(key, errors.New("occurs twice"))
		}
		seen[key] = true
		if err := field(key); err != nil {
			return err
		}
	}
	return expect(d, json.Delim('}'))
}

func expect(d *json.Decoder, want json.Delim) error {
	t, err := d.Token()
	if err != nil {
		return cut(err)
	}
	if t != want {
		return fmt.Errorf("%v where %v was expected", t, want)
	}
	return nil
}

func text(d *json.Decoder) (string, error) {
	t, err := d.Token()
	if err != nil {
		return "", cut(err)
	}
	s, ok := t.(string)
	if !ok {
		return "", fmt.Errorf("%v is not a string", t)
	}
	return s, nil
}

func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func numbers(d *json.Decoder) ([]uint64, error) {
	if err := expect(d, json.Delim('[')); err != nil {
		return nil, err
	}
	var all []uint64
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, cut(err)
		}
		n, ok := t.(json.Number)
		if !ok {
			return nil, fmt.Errorf("%v is not a number", t)
		}
		v, err := strconv.ParseUint(n.String(), 10, 63)
		if err != nil {
			return nil, fmt.Errorf("%s is not a whole number that fits", n)
		}
		if all = append(all, v); len(all) > 64 {
			return nil, errors.New("more than 64 numbers")
		}
	}
	return all, expect(d, json.Delim(']'))
}

func tensor(d *json.Decoder) (entry, error) {
	var e entry
	var shape, offsets []uint64
	have := 0
	err := object(d, func(key string) (err error) {
		switch key {
		case "dtype":
			have++
			e.dtype, err = text(d)
		case "shape":
			have++
			shape, err = numbers(d)
		case "data_offsets":
			have++
			offsets, err = numbers(d)
		default:
			err = cut(d.Decode(new(json.RawMessage)))
		}
		return err
	})
	if err != nil {
		return e, err
	}
	if have != 3 {
		return e, errors.New("dtype, shape or data_offsets is missing")
	}
	width, ok := bits[e.dtype]
	if !ok {
		return e, fmt.Errorf("unknown dtype %q", e.dtype)
	}
	if len(offsets) != 2 || offsets[0] > offsets[1] {
		return e, fmt.Errorf("data_offsets %d are not [begin, end]", offsets)
	}
	count := uint64(1)
	e.shape = make([]int, len(shape))
	for i, v := range shape {
		over, product := mathbits.Mul64(count, v)
		if over != 0 || product > 1<<56 {
			return e, fmt.Errorf("shape %d is too large", shape)
		}
		count, e.shape[i] = product, int(v)
	}
	size := count * width
	if size%8 != 0 || size/8 != offsets[1]-offsets[0] {
		return e, fmt.Errorf("shape %d of %s does not fill data_offsets %d", shape, e.dtype, offsets)
	}
	e.elements, e.begin, e.end = int(count), offsets[0], offsets[1]
	return e, nil
}

// layout checks that the tensors cover the body exactly: no overlap, no gap,
// nothing outside.
func layout(tensors map[string]entry, body uint64) error {
	names := make([]string, 0, len(tensors))
	for name := range tensors {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		x, y := tensors[a], tensors[b]
		switch {
		case x.begin != y.begin:
			return compare(x.begin, y.begin)
		case x.end != y.end:
			return compare(x.end, y.end)
		}
		return strings.Compare(a, b)
	})
	at := uint64(0)
	for _, name := range names {
		e := tensors[name]
		switch {
		case e.end > body:
			return wrap(name, fmt.Errorf("data_offsets [%d, %d] run past the %d bytes of data in the file", e.begin, e.end, body))
		case e.begin < at:
			return wrap(name, errors.New("overlaps another tensor"))
		case e.begin > at:
			return wrap(name, fmt.Errorf("leaves a gap of %d bytes before it", e.begin-at))
		}
		at = e.end
	}
	if at != body {
		return fmt.Errorf("%d bytes follow the last tensor", body-at)
	}
	return nil
}

func compare(a, b uint64) int {
	if a < b {
		return -1
	}
	return 1
}
