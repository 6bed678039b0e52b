package safetensors

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
)

// Tensor is one tensor to write. DType is F32, F16 or BF16. Its values are F32 or,
// so that not all tensors of a file need to be in memory at once, what Values
// returns when their turn comes; they are written before the next Values is called.
type Tensor struct {
	Name   string
	DType  string
	Shape  []int
	F32    []float32
	Values func() []float32
}

func (t *Tensor) size() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

const opWrite = "write safetensors"

// Write writes the tensors to path, converted to their dtypes by rounding to the
// nearest, ties to even. The bytes depend on the arguments alone and not on the
// order of tensors; they are those of the reference implementation when meta has
// at most one entry. The file appears whole or not at all.
func Write(path string, tensors []Tensor, meta map[string]string) error {
	order, head, err := header(tensors, meta)
	if err != nil {
		return fail.Wrap(fail.Bug, opWrite, path, err)
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer f.Discard()
	if err := writeTo(f, order, head); err != nil {
		return fail.Wrap(fail.Disk, opWrite, path, err)
	}
	return f.Commit()
}

func writeTo(f io.Writer, order []Tensor, head []byte) error {
	w := bufio.NewWriterSize(f, 1<<20)
	var size [8]byte
	binary.LittleEndian.PutUint64(size[:], uint64(len(head)))
	w.Write(size[:])
	w.Write(head)
	buf := make([]byte, 4<<14)
	for _, t := range order {
		width := int(bits[t.DType] / 8)
		x := t.F32
		if t.Values != nil {
			if x = t.Values(); len(x) != t.size() {
				return fmt.Errorf("tensor %q has shape %d but %d numbers", t.Name, t.Shape, len(x))
			}
		}
		for len(x) > 0 {
			n := min(len(x), 1<<14)
			narrow(buf, x[:n], t.DType)
			if _, err := w.Write(buf[:n*width]); err != nil {
				return err
			}
			x = x[n:]
		}
	}
	return w.Flush()
}

// header checks the tensors, puts them in the file's order (wide dtypes first,
// then by name, so that every tensor is aligned) and encodes the header.
func header(tensors []Tensor, meta map[string]string) ([]Tensor, []byte, error) {
	order := slices.Clone(tensors)
	rank := map[string]int{"F32": 0, "BF16": 1, "F16": 2}
	slices.SortFunc(order, func(a, b Tensor) int {
		if d := rank[a.DType] - rank[b.DType]; d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	var b bytes.Buffer
	b.WriteByte('{')
	if len(meta) > 0 {
		b.WriteString(`"__metadata__":`)
		if err := encode(&b, meta); err != nil {
			return nil, nil, err
		}
	}
	seen := map[string]bool{}
	at := 0
	for _, t := range order {
		if err := t.check(); err != nil {
			return nil, nil, err
		}
		if seen[t.Name] {
			return nil, nil, fmt.Errorf("tensor %q occurs twice", t.Name)
		}
		seen[t.Name] = true
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		if err := encode(&b, t.Name); err != nil {
			return nil, nil, err
		}
		b.WriteByte(':')
		end := at + t.size()*int(bits[t.DType]/8)
		err := encode(&b, struct {
			DType   string `json:"dtype"`
			Shape   []int  `json:"shape"`
			Offsets [2]int `json:"data_offsets"`
		}{t.DType, append([]int{}, t.Shape...), [2]int{at, end}})
		if err != nil {
			return nil, nil, err
		}
		at = end
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	if b.Len() > MaxHeader {
		return nil, nil, fmt.Errorf("header of %d bytes is over the limit of %d", b.Len(), MaxHeader)
	}
	return order, b.Bytes(), nil
}

func (t Tensor) check() error {
	for _, d := range t.Shape {
		if d < 0 {
			return fmt.Errorf("tensor %q has shape %d", t.Name, t.Shape)
		}
	}
	switch {
	case t.Values == nil && t.size() != len(t.F32):
		return fmt.Errorf("tensor %q has shape %d but %d numbers", t.Name, t.Shape, len(t.F32))
	case t.DType != "F32" && t.DType != "F16" && t.DType != "BF16":
		return fmt.Errorf("tensor %q: cannot write dtype %q", t.Name, t.DType)
	case t.Name == "__metadata__" || !utf8.ValidString(t.Name):
		return fmt.Errorf("%q cannot be the name of a tensor", t.Name)
	}
	return nil
}

func encode(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // Encode ends with a newline
	return nil
}
