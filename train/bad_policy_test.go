package train

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/safetensors"
	"searchloop/rollout/trajectory"
)

// tensors are those of a policy folder, to be written again with something wrong.
func tensors(t *testing.T, dir string) []safetensors.Tensor {
	t.Helper()
	f, err := safetensors.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []safetensors.Tensor
	for _, name := range f.Names() {
		dtype, shape, _ := f.Info(name)
		x, err := f.Float32(name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, safetensors.Tensor{Name: name, DType: dtype, Shape: shape, F32: x})
	}
	return out
}

// A policy that is not what it claims to be is refused by file and tensor, before
// anything is trained.
func TestBadPolicies(t *testing.T) {
	good := t.TempDir()
	qwenFolder(t, good, 3)
	raw, err := os.ReadFile(filepath.Join(good, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	header := int(binary.LittleEndian.Uint64(raw))
	for name, c := range map[string]struct {
		bytes  func() []byte
		change func(x []safetensors.Tensor) []safetensors.Tensor
		says   string
	}{
		"empty":           {bytes: func() []byte { return nil }, says: "model.safetensors"},
		"cut":             {bytes: func() []byte { return raw[:len(raw)-4] }, says: "model.safetensors"},
		"header too long": {bytes: func() []byte { return append(binary.LittleEndian.AppendUint64(nil, 1<<50), raw[8:]...) }, says: "model.safetensors"},
		"header cut":      {bytes: func() []byte { return append(binary.LittleEndian.AppendUint64(nil, uint64(header/2)), raw[8:]...) }, says: "model.safetensors"},
		"offsets that lie": {bytes: func() []byte {
			return []byte(strings.Replace(string(raw), `"data_offsets":[0,`, `"data_offsets":[4,`, 1))
		}, says: "model.safetensors"},
		"missing tensor": {change: func(x []safetensors.Tensor) []safetensors.Tensor { return x[1:] }, says: "missing"},
		"wrong shape": {change: func(x []safetensors.Tensor) []safetensors.Tensor {
			x[0].Shape = []int{len(x[0].F32)}
			return x
		}, says: "shape"},
		"NaN":      {change: func(x []safetensors.Tensor) []safetensors.Tensor { x[2].F32[1] = float32(math.NaN()); return x }, says: "NaN at 1"},
		"infinity": {change: func(x []safetensors.Tensor) []safetensors.Tensor { x[2].F32[0] = float32(math.Inf(1)); return x }, says: "+Inf at 0"},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "model.safetensors")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if c.change != nil {
			err = safetensors.Write(path, c.change(tensors(t, good)), nil)
		} else {
			err = os.WriteFile(path, c.bytes(), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := LoadQwen(dir, false); kindOf(err) != fail.BadInput || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Rollouts without a row, and files without a byte.
func TestEmptyRollouts(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 2, func([]trajectory.Row, []trajectory.Judged) ([]trajectory.Row, []trajectory.Judged) { return nil, nil })
	if err := grpo(context.Background(), toyRun(t), w.options("out"), toyKit); kindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "no rows") {
		t.Errorf("no rows: %v", err)
	}
	w = newToyWorld(t, t.TempDir(), 2, nil)
	part := filepath.Join(w.at("rollouts"), "part-00000-of-00001.parquet")
	if err := os.Truncate(part, 0); err != nil {
		t.Fatal(err)
	}
	if err := grpo(context.Background(), toyRun(t), w.options("out"), toyKit); kindOf(err) != fail.BadInput || !strings.Contains(err.Error(), part) {
		t.Errorf("an empty file: %v", err)
	}
}
