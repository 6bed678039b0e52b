package train

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/manifest"
)

// Checkpoint is the schema of a policy folder that we made.
const (
	Checkpoint        = "searchloop/checkpoint"
	CheckpointVersion = 1
)

// Files of a checkpoint beside the policy's own; docs/checkpoint.md.
const (
	statsName   = "stats.json"
	rejectsName = "rejects.jsonl"
	timingsName = "timings.jsonl" // the clock's file: not listed in the manifest
	doneName    = "DONE"
)

// own are the files that belong to the making of a checkpoint and not to the
// policy, so that the next one does not inherit them.
var own = []string{manifest.File, MetricsName, statsName, rejectsName, timingsName, doneName, "summary.json", "rejected.jsonl"}

// largestCopied is far above any tokenizer and below any weights.
const largestCopied = 64 << 20

// policyFiles lists what a policy folder consists of: its weights and
// configuration, and the small files (tokenizer, preprocessor, chat template,
// licence) that go along unchanged.
func policyFiles(dir string) (weights, small []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, &fail.Error{Kind: fail.BadInput, Op: "read policy folder", Path: dir, Err: err, Hint: "a Hugging Face folder or a checkpoint of sft or grpo is needed"}
	}
	for _, e := range entries {
		name := e.Name()
		info, err := os.Stat(filepath.Join(dir, name)) // follows the links of a Hugging Face cache
		switch {
		case err != nil:
			return nil, nil, fail.Wrap(fail.BadInput, "read policy folder", filepath.Join(dir, name), err)
		case !info.Mode().IsRegular() || name[0] == '.' || slices.Contains(own, name):
		case strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".safetensors.index.json") || name == "config.json":
			weights = append(weights, name)
		case info.Size() <= largestCopied && !foreignWeights(name):
			small = append(small, name)
		}
	}
	return weights, small, nil
}

func foreignWeights(name string) bool {
	switch filepath.Ext(name) {
	case ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".gguf":
		return true
	}
	return false
}

// policyInputs adds a policy folder to a job's inputs: as the dataset it is, or
// file by file when it was downloaded.
func policyInputs(inputs map[string]string, role, dir string) error {
	if _, err := os.Stat(manifest.Path(dir)); err == nil {
		inputs[role] = dir
		return nil
	}
	weights, small, err := policyFiles(dir)
	if err != nil {
		return err
	}
	if len(weights) == 0 {
		return fail.WithHint(fail.New(fail.BadInput, "read policy folder", dir, "no config.json and no safetensors files"), "a Hugging Face folder or a checkpoint of sft or grpo is needed")
	}
	for _, name := range append(weights, small...) {
		inputs[role+"/"+name] = filepath.Join(dir, name)
	}
	return nil
}

// verifyPolicy compares a policy folder with its manifest, if it has one. The
// training state has a digest of its own.
func verifyPolicy(dir string) error {
	m, err := manifest.Read(manifest.Path(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := m.Require(dir, Checkpoint, CheckpointVersion); err != nil {
		return err
	}
	for _, p := range m.Parts {
		if !strings.HasPrefix(p.Name, StateDir+"/") {
			if err := p.Verify(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// identities are the names under which rollouts know the policy in a folder that
// we made: the digest of its manifest, and that of its weights.
func identities(dir string) []string {
	m, err := manifest.Read(manifest.Path(dir))
	if err != nil {
		return nil
	}
	names := []string{m.Digest()}
	var meta Meta
	if json.Unmarshal(m.Meta, &meta) == nil && meta.Policy != "" {
		names = append(names, meta.Policy)
	}
	return names
}

// WeightsDigest identifies the weights of a policy folder and nothing else: the
// SHA-256 of the names and SHA-256 of its safetensors files.
func WeightsDigest(dir string) (string, error) {
	weights, _, err := policyFiles(dir)
	if err != nil {
		return "", err
	}
	var list strings.Builder
	for _, name := range weights {
		if !strings.HasSuffix(name, ".safetensors") {
			continue
		}
		_, sum, err := manifest.HashFile(filepath.Join(dir, name))
		if err != nil {
			return "", fail.Wrap(fail.BadInput, "read weights", filepath.Join(dir, name), err)
		}
		list.WriteString(sum + "  " + name + "\n")
	}
	return manifest.Hash([]byte(list.String())), nil
}

// sealer is the part of job.Dataset that publish needs.
type sealer interface {
	SealFiles(names []string, meta any) error
}

// Meta is the Meta of a checkpoint's manifest.
type Meta struct {
	Kind    string `json:"kind"`   // sft, grpo or merge
	Policy  string `json:"policy"` // WeightsDigest of the folder
	Steps   int64  `json:"steps"`
	Rows    int64  `json:"rows"` // trained on
	Refused int64  `json:"refused"`
	Skipped int64  `json:"skipped_steps"`
	Device  string `json:"device,omitempty"` // that trained it: cpu, or a GPU by its name
	DType   string `json:"dtype,omitempty"`  // of weights and activations there
}

// publish completes a checkpoint folder whose training state is the last one: the
// policy in the layout it came in, what was learned about the rows, DONE, and the
// manifest at the very end. Everything in it is written again by a run that was
// killed in here.
func publish(d sealer, dir, from string, policy Policy, stats any, refused []refusedRow, path string, meta *Meta) error {
	weights, small, err := policyFiles(from)
	if err != nil {
		return err
	}
	if err := clearWeights(dir, weights); err != nil {
		return err
	}
	if err := policy.Save(dir); err != nil {
		return err
	}
	for _, name := range small {
		if err := copyFile(filepath.Join(dir, name), filepath.Join(from, name)); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(stats, "", "  ")
	if err != nil {
		return fail.Wrap(fail.Bug, "write statistics", dir, err)
	}
	if err := atomicfile.WriteFile(filepath.Join(dir, statsName), append(text, '\n')); err != nil {
		return err
	}
	if err := writeRejects(filepath.Join(dir, rejectsName), path, refused); err != nil {
		return err
	}
	if meta.Policy, err = WeightsDigest(dir); err != nil {
		return err
	}
	if err := atomicfile.WriteFile(filepath.Join(dir, doneName), []byte(meta.Policy+"\n")); err != nil {
		return err
	}
	names, err := checkpointFiles(dir, small)
	if err != nil {
		return err
	}
	if l, ok := policy.(*adapted); ok {
		names = append(names, l.files()...)
	}
	return d.SealFiles(names, meta)
}

// clearWeights removes weights in another layout, which a killed run from another
// policy may have left; they would be loaded together with ours.
func clearWeights(dir string, keep []string) error {
	old, _, err := policyFiles(dir)
	if err != nil {
		return err
	}
	for _, name := range old {
		if !slices.Contains(keep, name) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return fail.Wrap(fail.Disk, "remove", filepath.Join(dir, name), err)
			}
		}
	}
	return nil
}

// checkpointFiles lists the finished folder, exactly what this run wrote, and
// clears what killed attempts left of the training state.
func checkpointFiles(dir string, small []string) ([]string, error) {
	weights, _, err := policyFiles(dir)
	if err != nil {
		return nil, err
	}
	c, err := readCursor(filepath.Join(dir, StateDir))
	if err == nil {
		err = sweepStates(filepath.Join(dir, StateDir), c.File)
	}
	if err != nil {
		return nil, err
	}
	names := append(weights, small...)
	return append(names, MetricsName, statsName, rejectsName, doneName, StateDir+"/"+cursorName, StateDir+"/"+c.File), nil
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return fail.Wrap(fail.BadInput, "copy", from, err)
	}
	defer in.Close()
	out, err := atomicfile.Create(to)
	if err != nil {
		return err
	}
	defer out.Discard()
	if _, err := io.Copy(out, in); err != nil {
		return fail.Wrap(fail.Disk, "copy", to, err)
	}
	return out.Commit()
}

// writeRejects names every refused row: one JSON object a line, in the form of
// the rejects of other jobs.
func writeRejects(to, path string, refused []refusedRow) error {
	var text []byte
	for _, r := range refused {
		line, err := json.Marshal(struct {
			Path   string `json:"path"`
			Row    int64  `json:"row"`
			Sample string `json:"sample"`
			Kind   string `json:"kind"`
			Reason string `json:"reason"`
		}{cmp.Or(r.path, path), r.row, r.id, fail.BadInput.String(), r.reason.Error()})
		if err != nil {
			return fail.Wrap(fail.Bug, "write rejects", to, err)
		}
		text = append(append(text, line...), '\n')
	}
	return atomicfile.WriteFile(to, text)
}
