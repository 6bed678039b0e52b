package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/fault"
	"searchloop/internal/manifest"
	"searchloop/internal/safetensors"
)

// StateDir is the folder of a checkpoint that holds what training continues
// from. The format is in docs/checkpoint.md.
const StateDir = "trainer"

const cursorName = "cursor.json"

// Cursor says where a run stands. It is written last and replaced whole, so that
// the state it names is always complete. There is no random state in it: every
// shuffle is a function of the recipe's seed and the pass.
type Cursor struct {
	Version int    `json:"version"`
	Kind    string `json:"kind"` // sft or grpo
	// Run identifies parameters and inputs; a state of another run is not continued.
	Run   string `json:"run"`
	Step  int64  `json:"step"`  // steps done
	Steps int64  `json:"steps"` // steps planned
	// Of the optimizer. Updates goes on counting over the epochs of a GRPO run.
	Updates int64 `json:"updates"`
	Skipped int64 `json:"skipped"`
	InARow  int64 `json:"skipped_in_a_row"`
	Metrics int64 `json:"metrics_bytes"` // length of metrics.jsonl at this step

	File   string `json:"file"` // float32 weights and both moments
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

const cursorVersion = 1

const opState = "read training state"

// readCursor returns fs.ErrNotExist when there is none.
func readCursor(dir string) (*Cursor, error) {
	path := filepath.Join(dir, cursorName)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, opState, path, err)
	}
	c := new(Cursor)
	if err := json.Unmarshal(text, c); err != nil {
		return nil, fail.Wrap(fail.BadInput, opState, path, err)
	}
	if c.Version != cursorVersion || !filepath.IsLocal(c.File) || c.Step < 0 {
		return nil, fail.New(fail.BadInput, opState, path, "version %d or its content is not of this program", c.Version)
	}
	return c, nil
}

// writeState makes the present weights and moments the state in dir. The older
// state goes only when the new one is complete. Collective: rank 0 writes.
func writeState(dir string, c Cursor, params []Param, opt *AdamW) error {
	var room []float32
	for i, p := range params {
		if _, ok := numbers(opt.masters(i, &room)); !ok {
			return fail.New(fail.Bound, "write training state", dir, "the weights of %s are no numbers any more; the last state is kept", p.Name)
		}
	}
	c.Version, c.File = cursorVersion, fmt.Sprintf("state-%08d.safetensors", c.Step)
	c.Updates, c.Skipped = opt.Updates, opt.Skipped
	tensors := make([]safetensors.Tensor, 0, 3*len(params))
	for i, p := range params {
		read := func() []float32 { room = sized(room, p.size()); return room }
		for kind, values := range map[string]func() []float32{
			"weight.": func() []float32 { return opt.masters(i, &room) },
			"m.":      func() []float32 { x := read(); opt.read(i, nil, x, nil); return x },
			"v.":      func() []float32 { x := read(); opt.read(i, nil, nil, x); return x },
		} {
			tensors = append(tensors, safetensors.Tensor{Name: kind + p.Name, DType: "F32", Shape: p.Shape, Values: values})
		}
	}
	path := filepath.Join(dir, c.File)
	if opt.group.Rank() > 0 { // hand over what the file needs, in its order
		slices.SortFunc(tensors, func(x, y safetensors.Tensor) int { return strings.Compare(x.Name, y.Name) })
		for _, t := range tensors {
			t.Values()
		}
		return nil
	}
	if err := safetensors.Write(path, tensors, nil); err != nil {
		return err
	}
	var err error
	if c.Bytes, c.SHA256, err = manifest.HashFile(path); err != nil {
		return fail.Wrap(fail.Disk, "write training state", path, err)
	}
	if err := fault.Point("train.state"); err != nil {
		return fail.Wrap(fail.Disk, "write training state", path, err)
	}
	text, err := json.MarshalIndent(&c, "", "  ")
	if err != nil {
		return fail.Wrap(fail.Bug, "write training state", dir, err)
	}
	if err := atomicfile.WriteFile(filepath.Join(dir, cursorName), append(text, '\n')); err != nil {
		return err
	}
	return sweepStates(dir, c.File)
}

// sweepStates removes every state but one, and what dead writers left.
func sweepStates(dir, keep string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fail.Wrap(fail.Disk, "clear old training states", dir, err)
	}
	for _, e := range entries {
		if n := e.Name(); n != keep && strings.HasPrefix(n, "state-") && strings.HasSuffix(n, ".safetensors") {
			if err := os.Remove(filepath.Join(dir, n)); err != nil {
				return fail.Wrap(fail.Disk, "clear old training states", dir, err)
			}
		}
	}
	return atomicfile.Sweep(dir)
}

// open checks that the state c names is there, undamaged and of the policy's
// shapes.
func (c *Cursor) open(dir string, params []Param) (*safetensors.Model, error) {
	path := filepath.Join(dir, c.File)
	n, sum, err := manifest.HashFile(path)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, opState, path, err)
	}
	if n != c.Bytes || sum != c.SHA256 {
		return nil, fail.New(fail.BadInput, opState, path, "%d bytes with another SHA-256 than %s says", n, cursorName)
	}
	f, err := safetensors.OpenFile(path)
	if err != nil {
		return nil, err
	}
	for _, p := range params {
		for _, kind := range []string{"weight.", "m.", "v."} {
			if _, shape, ok := f.Info(kind + p.Name); !ok || !slices.Equal(shape, p.Shape) {
				f.Close()
				return nil, fail.New(fail.BadInput, opState, path, "%s is missing or has another shape than the policy's", kind+p.Name)
			}
		}
	}
	return f, nil
}

// read copies an opened state. The moments always, the weights if asked for.
// Collective.
func (c *Cursor) read(f *safetensors.Model, params []Param, opt *AdamW, weights bool) error {
	var room []float32
	for i, p := range params {
		room = sized(room, p.size())
		for kind, to := range map[string]*[3][]float32{"weight.": {room}, "m.": {nil, room}, "v.": {nil, nil, room}} {
			if kind == "weight." && !weights {
				continue
			}
			if err := f.Read(kind+p.Name, room); err != nil {
				return err
			}
			opt.write(i, to[0], to[1], to[2])
		}
	}
	opt.Updates, opt.Skipped = c.Updates, c.Skipped
	opt.spread()
	return nil
}

// resume continues the run of that identity if dir holds its state and the
// metrics reach up to it. Otherwise it returns nil and, when that is worth a
// word, why; params and opt are then as they were.
func resume(dir, metrics, run string, params []Param, opt *AdamW) (c *Cursor, why string, err error) {
	c, err = readCursor(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "", nil
	case err != nil:
		return nil, err.Error(), nil
	case c.Run != run:
		return nil, "the training state is of other inputs or parameters", nil
	}
	if info, err := os.Stat(metrics); err != nil || info.Size() < c.Metrics {
		return nil, metrics + " is missing or shorter than the training state says", nil
	}
	f, err := c.open(dir, params)
	if err != nil {
		return nil, err.Error(), nil
	}
	defer f.Close()
	return c, "", c.read(f, params, opt, true)
}

// numbers gives the place of the first infinity or NaN.
func numbers(x []float32) (int, bool) {
	for i, w := range x {
		if w-w != 0 {
			return i, false
		}
	}
	return 0, true
}
