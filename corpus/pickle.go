package corpus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"

	"github.com/nlpodyssey/gopickle/pickle"
	"github.com/nlpodyssey/gopickle/types"

	"searchloop/internal/fail"
)

// maxPickle bounds a pickle, which is read as a whole. MMSearch-R1's caches have
// 11 MB.
const maxPickle = 1 << 30

// isPickle knows pickles of protocol 2 and above by their first bytes.
func isPickle(head []byte) bool {
	return len(head) >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5
}

// loadPickle reads a pickle. Python runs whatever a pickle names; here nothing
// runs: the classes of photographs that Pillow saves, and the few functions that
// rebuild plain values, stand for themselves, and every other name is refused.
func loadPickle(path string) (v any, err error) {
	st, err := os.Stat(path)
	if err == nil && st.Size() > maxPickle {
		err = fmt.Errorf("the pickle has %d bytes", st.Size())
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path)
	}
	if err == nil {
		v, err = unpickle(data)
	}
	if err != nil {
		e := fail.Wrap(fail.BadInput, "read pickle", path, err).(*fail.Error)
		e.Hint = "only caches of texts, web addresses and Pillow images are read; the file is damaged or something else"
		return nil, e
	}
	return v, nil
}

func unpickle(data []byte) (v any, err error) {
	if err := checkPickle(data); err != nil {
		return nil, err
	}
	defer func() {
		if p := recover(); p != nil {
			v, err = nil, fmt.Errorf("damaged: %v", p)
		}
	}()
	u := pickle.NewUnpickler(bytes.NewReader(data))
	u.FindClass = findClass
	u.PersistentLoad = func(any) (any, error) { return nil, errors.New("it refers to something outside itself") }
	u.GetExtension = func(int) (any, error) { return nil, errors.New("it uses Python's extension registry") }
	u.NextBuffer = func() (any, error) { return nil, errors.New("it keeps data in another file") }
	return u.Load()
}

// pilModule are the modules of Pillow whose image classes are known.
var pilModule = regexp.MustCompile(`^PIL\.(Image|[A-Z][A-Za-z0-9]*ImagePlugin)$`)

var pilClass = regexp.MustCompile(`^(Image|[A-Z][A-Za-z0-9]*ImageFile)$`)

func findClass(module, name string) (any, error) {
	switch full := module + "." + name; {
	case pilModule.MatchString(module) && pilClass.MatchString(name):
		return pickledClass{}, nil
	case full == "PIL.TiffImagePlugin.IFDRational", full == "PIL.PngImagePlugin.iTXt", full == "fractions.Fraction":
		return pickledNote{}, nil // in an image's notes, which nobody reads
	case full == "_codecs.encode":
		return latin1{}, nil
	case full == "builtins.object":
		return &types.ObjectClass{}, nil
	case full == "copyreg._reconstructor":
		return &types.Reconstructor{}, nil
	case full == "builtins.bytes", full == "__builtin__.bytes":
		return latin1{}, nil
	}
	return nil, fmt.Errorf("it names %s.%s, which is not on the list of what may be in it", module, name)
}

// pickledClass makes images, pickledNote nothing.
type (
	pickledClass struct{}
	pickledNote  struct{}
	noted        struct{}
)

func (pickledClass) PyNew(...any) (any, error) { return &pickledImage{}, nil }
func (pickledNote) PyNew(...any) (any, error)  { return &noted{}, nil }
func (pickledNote) Call(...any) (any, error)   { return &noted{}, nil }
func (*noted) PySetState(any) error            { return nil }

// latin1 is how pickles of old protocols write bytes: a text in latin-1.
type latin1 struct{}

func (latin1) Call(args ...any) (any, error) {
	if len(args) == 0 {
		return []byte{}, nil
	}
	s, ok := args[0].(string)
	if !ok {
		return nil, errors.New("bytes are made of something that is no text")
	}
	out := make([]byte, 0, len(s))
	for _, r := range s {
		if r > 0xff {
			return nil, errors.New("bytes are made of a text that is not latin-1")
		}
		out = append(out, byte(r))
	}
	return out, nil
}

func (c latin1) PyNew(args ...any) (any, error) { return c.Call(args...) }

// pickledImage is an image as Pillow pickles it: the pixels, not a file.
type pickledImage struct {
	mode    string
	w, h    int
	palette []byte
	data    []byte
}

// PySetState takes Pillow's state: [info, mode, size, palette, pixels, ...].
func (p *pickledImage) PySetState(state any) error {
	list, ok := sequence(state)
	if !ok || len(list) < 5 {
		return errors.New("the state of an image is not the list that Pillow saves")
	}
	size, ok := sequence(list[2])
	if !ok || len(size) != 2 {
		return errors.New("an image has no size")
	}
	p.mode, _ = list[1].(string)
	p.w, _ = size[0].(int)
	p.h, _ = size[1].(int)
	if list[3] != nil {
		if colours, ok := sequence(list[3]); ok {
			for _, c := range colours {
				n, _ := c.(int)
				p.palette = append(p.palette, byte(n))
			}
		}
	}
	switch data := list[4].(type) {
	case []byte:
		p.data = data
	case *types.ByteArray:
		p.data = *data
	case string: // Python 2
		p.data = []byte(data)
	default:
		return errors.New("an image has no pixels")
	}
	return nil
}

// sequence gives the items of a Python list or tuple.
func sequence(v any) ([]any, bool) {
	switch v := v.(type) {
	case *types.List:
		return *v, true
	case *types.Tuple:
		return *v, true
	}
	return nil, false
}

// Arguments of opcodes, by their form; all others have none.
const (
	oneByte   = "Khq\x82\x80"
	twoBytes  = "M\x83"
	fourBytes = "Jjr\x84"
	eight     = "G"
	oneLine   = "FILSVgpP"
	twoLines  = "ci"
	counted1  = "UC\x8a\x8c"
	counted4  = "TXB\x8b"
	counted8  = "\x8d\x8e\x96\x95"
)

// checkPickle goes over the opcodes and their arguments, so that no length is
// believed that the file does not have: the library allocates before it reads.
func checkPickle(data []byte) error {
	for i := 0; i < len(data); {
		op := data[i]
		i++
		rest := data[i:]
		n := uint64(0)
		switch {
		case op == '.':
			return nil
		case has(oneByte, op):
			n = 1
		case has(twoBytes, op):
			n = 2
		case has(fourBytes, op):
			n = 4
		case has(eight, op):
			n = 8
		case has(oneLine, op):
			n = line(rest)
		case has(twoLines, op):
			if n = line(rest); n <= uint64(len(rest)) {
				n += line(rest[n:])
			}
		case has(counted1, op) && len(rest) >= 1:
			n = 1 + uint64(rest[0])
		case has(counted4, op) && len(rest) >= 4:
			n = 4 + uint64(binary.LittleEndian.Uint32(rest))
		case has(counted8, op) && len(rest) >= 8:
			n = binary.LittleEndian.Uint64(rest)
			if n > uint64(len(rest)-8) {
				return fmt.Errorf("at byte %d a length of %d, with %d bytes left", i, n, len(rest)-8)
			}
			if n += 8; op == 0x95 {
				n = 8 // a frame: its content are opcodes
			}
		case has(counted1+counted4+counted8, op):
			n = uint64(len(rest)) + 1
		}
		if n > uint64(len(rest)) {
			return fmt.Errorf("cut short at byte %d", i)
		}
		i += int(n)
	}
	return errors.New("cut short: it has no end")
}

func has(set string, op byte) bool { return slices.Contains([]byte(set), op) }

// line is the length of a line with its end, one more than there is without.
func line(b []byte) uint64 {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return uint64(i) + 1
	}
	return uint64(len(b)) + 1
}
