package qwenvl

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/safetensors"
	"searchloop/internal/tensor"
)

const headName = "lm_head.weight"

// Load is LoadOn the CPU.
func Load(dir string) (*Model, error) { return LoadOn(tensor.CPU, dir) }

// LoadOn reads a model folder into the memory of a back end: config.json and
// model.safetensors, or its index and shards. Every tensor of the model must be
// there in its shape, and no other.
func LoadOn(be tensor.Backend, dir string) (*Model, error) { return LoadChecked(be, dir, nil) }

// LoadChecked is LoadOn that shows every tensor as it is in the files; an error of
// check ends it. check may be nil.
func LoadChecked(be tensor.Backend, dir string, check func(name string, x []float32) error) (*Model, error) {
	return loading{}.load(be, dir, func(name string, _ []int, x []float32) error {
		if check == nil {
			return nil
		}
		return check(name, x)
	})
}

// loading is what may differ between the ways to load.
type loading struct {
	encode bool                   // for Encode alone
	spare  func(name string) bool // tensors that are no part of the model
}

func (o loading) load(be tensor.Backend, dir string, each func(name string, shape []int, x []float32) error) (*Model, error) {
	const op = "load model"
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, op, dir, err)
	}
	cfg, err := ParseConfig(raw)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, op, filepath.Join(dir, "config.json"), err)
	}
	files, err := safetensors.Open(dir)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, op, dir, err)
	}
	defer files.Close()
	if cfg.HasVision() {
		_, _, cfg.ShortNames = files.Info("visual.patch_embed.proj.weight")
	}
	if o.encode {
		if err := cfg.forEncoding(); err != nil {
			return nil, fail.Wrap(fail.BadInput, op, filepath.Join(dir, "config.json"), err)
		}
	}
	cfg.findExpertLayout(func(name string) []int { _, shape, _ := files.Info(name); return shape })
	src := source{config: raw, meta: maps.Clone(files.Metadata())}
	if err := src.readIndex(dir); err != nil {
		return nil, fail.Wrap(fail.BadInput, op, dir, err)
	}
	// Shapes are compared before anything is allocated for them.
	shapes := shapesOf(cfg)
	for name, want := range shapes {
		_, got, ok := files.Info(name)
		if !ok {
			return nil, fail.New(fail.BadInput, op, dir, "tensor %s is missing", name)
		}
		if !slices.Equal(got, want) {
			return nil, fail.New(fail.BadInput, op, dir, "tensor %s has shape %v, config.json asks for %v", name, got, want)
		}
	}
	for _, name := range files.Names() {
		if _, ok := shapes[name]; ok {
			continue
		}
		if name == headName && cfg.Tied {
			src.extra = append(src.extra, name)
			continue
		}
		if o.spare != nil && o.spare(name) {
			continue
		}
		return nil, fail.New(fail.BadInput, op, dir, "tensor %s does not belong to this model", name)
	}
	if o.encode {
		cfg.widen(be.(tensor.Encoding).Widths())
	}
	m := build(be, cfg)
	m.source = src
	for _, p := range m.params {
		x, err := files.Float32(p.Name)
		if err != nil {
			m.Free()
			return nil, fail.Wrap(fail.BadInput, op, dir, err)
		}
		if err := each(p.Name, shapes[p.Name], x); err != nil {
			m.Free()
			return nil, err
		}
		from := shapes[p.Name]
		if o.encode && strings.HasSuffix(p.Name, patchName) {
			x, from = oneFrame(x, from)
		}
		m.be.Upload(p.W, widened(x, from, p.Shape))
		p.dtype, _, _ = files.Info(p.Name)
	}
	return m, nil
}

// shapesOf lists what build would make, without its memory.
func shapesOf(cfg Config) map[string][]int {
	shapes := map[string][]int{}
	for _, p := range plan(cfg).params {
		shapes[p.Name] = p.Shape
	}
	return shapes
}

func (s *source) readIndex(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, safetensors.FileName)); err == nil {
		return nil
	}
	raw, err := os.ReadFile(filepath.Join(dir, safetensors.IndexName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err == nil {
		err = json.Unmarshal(raw, &index)
	}
	s.index, s.files = raw, index.WeightMap
	return err
}

// Save writes the model to dir as it was loaded: the same files with the same
// names, shapes and dtypes, and config.json unchanged. A model of Init gets one
// file. Every file appears whole or not at all.
func (m *Model) Save(dir string) error {
	const op = "save model"
	shards := map[string][]safetensors.Tensor{}
	var room []float32 // of a device's weights, one tensor at a time
	add := func(name, dtype string, p *Param) {
		file := safetensors.FileName
		if m.source.files != nil {
			file = m.source.files[name]
		}
		t := safetensors.Tensor{Name: name, DType: dtype, Shape: p.Shape, F32: p.W.Host()}
		if t.F32 == nil {
			t.Values = func() []float32 {
				if cap(room) < p.W.Len() {
					room = make([]float32, p.W.Len())
				}
				m.be.Download(room[:p.W.Len()], p.W)
				return room[:p.W.Len()]
			}
		}
		shards[file] = append(shards[file], t)
	}
	for _, p := range m.params {
		add(p.Name, p.dtype, p)
		if p.off == m.embed.off {
			for _, name := range m.source.extra {
				add(name, p.dtype, p)
			}
		}
	}
	for _, file := range slices.Sorted(maps.Keys(shards)) {
		if err := safetensors.Write(filepath.Join(dir, file), shards[file], m.source.meta); err != nil {
			return fail.Wrap(fail.Disk, op, dir, err)
		}
	}
	if m.source.index != nil {
		path := filepath.Join(dir, safetensors.IndexName)
		if err := atomicfile.WriteFile(path, m.source.index); err != nil {
			return fail.Wrap(fail.Disk, op, path, err)
		}
	}
	path := filepath.Join(dir, "config.json")
	return fail.Wrap(fail.Disk, op, path, atomicfile.WriteFile(path, m.source.config))
}
