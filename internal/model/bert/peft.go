package bert

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/gemm"
	"searchloop/internal/peft"
	"searchloop/internal/safetensors"
	"searchloop/internal/vec"
)

// AdapterFolder is where transformers' layout of jina-embeddings-v3 keeps an
// adapter: in a folder of the model's, named after its task ("retrieval_query").
func AdapterFolder(dir, adapter string) string {
	return filepath.Join(dir, strings.NewReplacer(".", "_", "-", "_").Replace(adapter))
}

// HasAdapterFolder says whether the model in dir has the adapter in a folder.
func HasAdapterFolder(dir, adapter string) bool {
	_, err := os.Stat(filepath.Join(AdapterFolder(dir, adapter), peft.ConfigFile))
	return err == nil
}

// adapterFiles is an adapter in files of its own. What it adds to a weight is B·A, in the
// names that transformers has for the model's layers.
type adapterFiles struct {
	m     *safetensors.Model
	path  string
	rank  int
	scale float32
	used  map[string]bool // tensors that were added
}

// maxRank bounds the rank of an adapter in files of its own.
const maxRank = 1 << 10

// openAdapter opens the adapter in a folder.
func openAdapter(dir string) (*adapterFiles, error) {
	c, err := peft.Read(op, dir)
	if err != nil {
		return nil, err
	}
	if c.Rank > maxRank {
		return nil, fail.New(fail.BadInput, op, filepath.Join(dir, peft.ConfigFile), "r is %d; at most %d is read", c.Rank, maxRank)
	}
	p := &adapterFiles{path: filepath.Join(dir, peft.WeightsFile), rank: c.Rank, scale: c.Scale(), used: map[string]bool{}}
	if p.m, err = safetensors.OpenFile(p.path); errors.Is(err, fs.ErrNotExist) {
		return nil, fail.WithHint(fail.Wrap(fail.BadInput, op, p.path, err), "adapters are read from safetensors")
	}
	return p, err
}

// modules are transformers' names for the layers that one of Jina's holds, which
// are three for the joined query, key and value.
func modules(name string) []string {
	at, part, ok := strings.Cut(strings.TrimPrefix(name, "encoder."), ".mixer.")
	switch {
	case !ok:
		return []string{at}
	case part == "out_proj":
		return []string{at + ".self_attn.o_proj"}
	}
	return []string{at + ".self_attn.q_proj", at + ".self_attn.k_proj", at + ".self_attn.v_proj"}
}

// addTo adds what the adapter has for the layer name to its weight [rows, cols].
func (p *adapterFiles) addTo(w []float32, name string, rows, cols int, embedding bool) error {
	list := modules(name)
	rows /= len(list)
	for i, module := range list {
		a, b := "lora_A.weight", "lora_B.weight"
		if embedding {
			a, b = "lora_embedding_A", "lora_embedding_B"
		}
		a, b = peft.Prefix+module+"."+a, peft.Prefix+module+"."+b
		_, _, hasA := p.m.Info(a)
		_, _, hasB := p.m.Info(b)
		if !hasA && !hasB {
			continue // not one of the adapter's
		}
		part := w[i*rows*cols : (i+1)*rows*cols]
		left, right := []int{rows, p.rank}, []int{p.rank, cols}
		if embedding { // of the table's transpose
			left, right = []int{cols, p.rank}, []int{p.rank, rows}
		}
		bw, err := p.m.Shaped(b, left...)
		if err != nil {
			return fail.Wrap(fail.BadInput, op, p.path, err)
		}
		aw, err := p.m.Shaped(a, right...)
		if err != nil {
			return fail.Wrap(fail.BadInput, op, p.path, err)
		}
		vec.Scale(bw, bw, p.scale)
		if embedding {
			aw, bw = transposed(bw, cols, p.rank), transposed(aw, p.rank, rows)
		}
		gemm.NN(part, bw, aw, rows, cols, p.rank, true)
		p.used[a], p.used[b] = true, true
	}
	return nil
}

// transposed is x [rows, cols] as [cols, rows].
func transposed(x []float32, rows, cols int) []float32 {
	out := make([]float32, len(x))
	for r := range rows {
		for c := range cols {
			out[c*rows+r] = x[r*cols+c]
		}
	}
	return out
}

// close checks that nothing of the adapter was left out.
func (p *adapterFiles) close() error {
	names := slices.DeleteFunc(slices.Clone(p.m.Names()), func(n string) bool { return p.used[n] })
	if err := p.m.Close(); err != nil || len(names) == 0 {
		return err
	}
	return fail.WithHint(fail.New(fail.BadInput, op, p.path, "%s changes nothing that the encoder has", names[0]), "is it an adapter of this model?")
}
