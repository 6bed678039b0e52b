package jinav4

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/gemm"
	"searchloop/internal/peft"
	"searchloop/internal/safetensors"
	"searchloop/internal/vec"
)

const adapterFolder = "adapters"

// maxRank bounds the rank of an adapter.
const maxRank = 1 << 10

// adapter is that of one task in a file that holds all tasks'. For a layer it is
//
//	base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.retrieval.weight [rank, in]
//	base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_B.retrieval.weight [out, rank]
//
// whatever the layer's weight is called in the model's own files.
type adapter struct {
	m     *safetensors.Model
	path  string
	task  string
	rank  int
	scale float32
	left  map[string]bool // the task's tensors that nothing was done with yet
}

func openAdapter(dir, task string) (*adapter, error) {
	c, err := peft.Read(op, dir)
	if err != nil {
		return nil, err
	}
	if c.Rank > maxRank {
		return nil, fail.New(fail.BadInput, op, filepath.Join(dir, peft.ConfigFile), "r is %d; at most %d is read", c.Rank, maxRank)
	}
	a := &adapter{path: filepath.Join(dir, peft.WeightsFile), task: task, rank: c.Rank, scale: c.Scale(), left: map[string]bool{}}
	if a.m, err = safetensors.OpenFile(a.path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fail.WithHint(fail.Wrap(fail.BadInput, op, a.path, err), "adapters are read from safetensors")
		}
		return nil, err
	}
	var tasks []string
	for _, name := range a.m.Names() {
		of := taskOf(name)
		switch {
		case of == task:
			a.left[name] = true
		case of != "" && !slices.Contains(tasks, of):
			tasks = append(tasks, of)
		}
	}
	if len(a.left) == 0 {
		err := fail.New(fail.BadInput, op, a.path, "no adapter for the task %q; there are those for %q", task, tasks)
		return nil, errors.Join(err, a.m.Close())
	}
	for name := range a.left {
		if strings.Contains(name, "multi_vector_projector.") {
			delete(a.left, name) // of the vectors that are not made
		}
	}
	return a, nil
}

// taskOf is the task that a tensor's name ends in.
func taskOf(name string) string {
	name, ok := strings.CutSuffix(name, ".weight")
	at := strings.LastIndexByte(name, '.')
	if !ok || at < 0 || !strings.HasSuffix(name[:at], ".lora_A") && !strings.HasSuffix(name[:at], ".lora_B") {
		return ""
	}
	return name[at+1:]
}

// add adds what the adapter has for a weight of the decoder to it.
func (a *adapter) add(name string, shape []int, w []float32) error {
	layer, ok := strings.CutSuffix(strings.TrimPrefix(strings.TrimPrefix(name, "model."), "language_model."), ".weight")
	down := peft.Prefix + "model.language_model." + layer + ".lora_A." + a.task + ".weight"
	up := strings.Replace(down, ".lora_A.", ".lora_B.", 1)
	if !ok || len(shape) != 2 || !a.left[down] && !a.left[up] {
		return nil // not one of the adapter's
	}
	out, in := shape[0], shape[1]
	aw, err := a.m.Shaped(down, a.rank, in)
	if err != nil {
		return fail.Wrap(fail.BadInput, op, a.path, err)
	}
	bw, err := a.m.Shaped(up, out, a.rank)
	if err != nil {
		return fail.Wrap(fail.BadInput, op, a.path, err)
	}
	vec.Scale(bw, bw, a.scale)
	gemm.NN(w, bw, aw, out, in, a.rank, true)
	delete(a.left, down)
	delete(a.left, up)
	return nil
}

// close checks, where everything else went well, that nothing of the adapter was left
// out.
func (a *adapter) close(check bool) error {
	err := a.m.Close()
	if check && len(a.left) > 0 {
		var names []string
		for n := range a.left {
			names = append(names, n)
		}
		err = errors.Join(fail.WithHint(fail.New(fail.BadInput, op, a.path, "%s changes nothing that the encoder has", slices.Min(names)), "is it an adapter of this model?"), err)
	}
	return err
}
