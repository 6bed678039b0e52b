package safetensors

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"

	"searchloop/internal/fail"
	"searchloop/internal/par"
)

const op = "read safetensors"

// Model is an open set of tensors, mapped into memory. Reading it is safe for
// concurrent use; Close is not.
type Model struct {
	tensors map[string]source
	names   []string
	meta    map[string]string
	release []func() error
}

// source is a tensor and where its bytes are.
type source struct {
	entry
	path  string
	bytes []byte
}

// Open opens the tensors of a model folder: model.safetensors when it is there,
// otherwise the shards that model.safetensors.index.json names.
func Open(dir string) (*Model, error) {
	path := filepath.Join(dir, FileName)
	if _, err := os.Stat(path); err == nil {
		return OpenFile(path)
	}
	index := filepath.Join(dir, IndexName)
	if _, err := os.Stat(index); errors.Is(err, fs.ErrNotExist) {
		return nil, fail.WithHint(fail.New(fail.BadInput, op, dir, "neither %s nor %s is there", FileName, IndexName),
			"pickled checkpoints (pytorch_model.bin) must be converted to safetensors")
	}
	return openIndex(dir, index)
}

// OpenFile opens a single file.
func OpenFile(path string) (*Model, error) {
	m := &Model{tensors: map[string]source{}, meta: map[string]string{}}
	if err := m.add(path, nil); err != nil {
		m.Close()
		return nil, err
	}
	return m.sorted(), nil
}

func openIndex(dir, path string) (*Model, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, op, path, err)
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(raw, &index); err != nil {
		return nil, fail.Wrap(fail.BadInput, op, path, err)
	}
	if len(index.WeightMap) == 0 {
		return nil, fail.New(fail.BadInput, op, path, "weight_map is missing or empty")
	}
	shards := map[string][]string{}
	for name, file := range index.WeightMap {
		if !filepath.IsLocal(file) {
			return nil, fail.New(fail.BadInput, op, path, "shard %q is outside the folder", file)
		}
		shards[file] = append(shards[file], name)
	}
	files := make([]string, 0, len(shards))
	for file := range shards {
		files = append(files, file)
	}
	slices.Sort(files)
	m := &Model{tensors: map[string]source{}, meta: map[string]string{}}
	for _, file := range files {
		slices.Sort(shards[file])
		if err := m.add(filepath.Join(dir, file), shards[file]); err != nil {
			m.Close()
			return nil, err
		}
	}
	return m.sorted(), nil
}

// add maps one file and takes in its tensors, which must include want.
func (m *Model) add(path string, want []string) error {
	data, release, err := mapFile(path)
	if err != nil {
		return fail.Wrap(fail.BadInput, op, path, err)
	}
	m.release = append(m.release, release)
	var tensors map[string]entry
	var meta map[string]string
	var body []byte
	// A file that is cut while it is mapped faults; that is no reason to crash.
	err = faulting(func() (err error) {
		tensors, meta, body, err = parse(data)
		return err
	})
	if err != nil {
		return fail.Wrap(fail.BadInput, op, path, err)
	}
	for _, name := range want {
		if _, ok := tensors[name]; !ok {
			return fail.New(fail.BadInput, op, path, "tensor %q, which %s places here, is not in it", name, IndexName)
		}
	}
	for name, e := range tensors {
		if other, ok := m.tensors[name]; ok {
			return fail.New(fail.BadInput, op, path, "tensor %q is also in %s", name, other.path)
		}
		m.tensors[name] = source{e, path, body[e.begin:e.end]}
	}
	for k, v := range meta {
		m.meta[k] = v
	}
	return nil
}

func (m *Model) sorted() *Model {
	m.names = make([]string, 0, len(m.tensors))
	for name := range m.tensors {
		m.names = append(m.names, name)
	}
	slices.Sort(m.names)
	return m
}

// Names lists the tensors, sorted. The caller must not change the slice.
func (m *Model) Names() []string { return m.names }

// Metadata is the files' __metadata__; of shards that disagree the last counts.
func (m *Model) Metadata() map[string]string { return m.meta }

// Info tells dtype and shape of a tensor. The caller must not change the shape.
func (m *Model) Info(name string) (dtype string, shape []int, ok bool) {
	s, ok := m.tensors[name]
	return s.dtype, s.shape, ok
}

// Float32 returns a copy of a tensor of F32, F16 or BF16.
func (m *Model) Float32(name string) ([]float32, error) {
	s, err := m.find(name)
	if err != nil {
		return nil, err
	}
	dst := make([]float32, s.elements)
	return dst, m.Read(name, dst)
}

// Shaped is Float32 of a tensor that must be there in the shape that a model's
// configuration asks for.
func (m *Model) Shaped(name string, shape ...int) ([]float32, error) {
	_, have, ok := m.Info(name)
	switch {
	case !ok:
		return nil, fail.New(fail.BadInput, "", "", "tensor %q is missing", name)
	case !slices.Equal(have, shape):
		return nil, fail.New(fail.BadInput, "", "", "tensor %q has shape %d where config.json asks for %d", name, have, shape)
	}
	return m.Float32(name)
}

// Read is Float32 into memory of the caller, which must have the right length.
func (m *Model) Read(name string, dst []float32) error {
	s, err := m.find(name)
	if err != nil {
		return err
	}
	if len(dst) != s.elements {
		return fail.New(fail.BadInput, op, s.path, "tensor %q has shape %d, that is %d numbers, not %d", name, s.shape, s.elements, len(dst))
	}
	width := int(bits[s.dtype] / 8)
	var mu sync.Mutex
	var fault error
	par.For(len(dst), 1<<16, func(lo, hi int) {
		err := faulting(func() error {
			widen(dst[lo:hi], s.bytes[lo*width:hi*width], s.dtype)
			return nil
		})
		if err != nil {
			mu.Lock()
			fault = err
			mu.Unlock()
		}
	})
	return fail.Wrap(fail.BadInput, op, s.path, fault)
}

func (m *Model) find(name string) (source, error) {
	s, ok := m.tensors[name]
	switch {
	case !ok:
		return s, fail.New(fail.BadInput, op, "", "no tensor %q", name)
	case s.dtype != "F32" && s.dtype != "F16" && s.dtype != "BF16":
		return s, fail.New(fail.BadInput, op, s.path, "tensor %q is %s; F32, F16 or BF16 is needed", name, s.dtype)
	}
	return s, nil
}

// Close unmaps the files. Slices that Float32 returned stay valid.
func (m *Model) Close() error {
	var first error
	for _, release := range m.release {
		if err := release(); err != nil && first == nil {
			first = err
		}
	}
	m.release, m.tensors, m.names = nil, map[string]source{}, nil
	return fail.Wrap(fail.Disk, "close safetensors", "", first)
}

// faulting runs f and turns a memory fault in it, which a mapped file gives when
// it has become shorter or its disk fails, into an error.
func faulting(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		fault, ok := v.(interface{ Addr() uintptr })
		if !ok {
			panic(v)
		}
		err = fmt.Errorf("file changed or failed while it was read: %v", fault)
	}()
	return f()
}
