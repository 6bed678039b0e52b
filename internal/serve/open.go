package serve

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"searchloop/internal/chat"
	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/model/qwenvl"
	"searchloop/internal/picture"
	"searchloop/internal/token"
)

// open loads a model's folder.
func open(dir string) (*parts, error) {
	const op = "open policy"
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fail.Wrap(fail.Usage, op, dir, err)
	}
	p := &parts{name: filepath.Base(abs)}
	if err := verify(dir); err != nil {
		return nil, err
	}
	if p.tok, err = token.LoadBPE(dir); err != nil {
		return nil, err
	}
	if p.format, err = chat.FormatOf(dir); err != nil {
		return nil, err
	}
	m, err := qwenvl.Load(dir)
	if err != nil {
		return nil, err
	}
	p.model = qwen{m}
	spec := p.model.Spec()
	if p.tok.Size() > spec.Vocab {
		return nil, fail.New(fail.BadInput, op, dir, "the tokenizer has %d tokens, the model %d", p.tok.Size(), spec.Vocab)
	}
	if spec.Images {
		if p.processor, err = picture.LoadProcessor(dir); err != nil {
			return nil, err
		}
		if n := 3 * p.processor.TemporalPatch * p.processor.PatchSize * p.processor.PatchSize; n != spec.PatchDim || p.processor.MergeSize != spec.Merge {
			return nil, fail.New(fail.BadInput, op, dir, "preprocessor_config.json makes patches of %d values merged %d×%d, config.json wants %d and %d×%d",
				n, p.processor.MergeSize, p.processor.MergeSize, spec.PatchDim, spec.Merge, spec.Merge)
		}
	}
	if p.end, err = endMarks(dir, p.tok); err != nil {
		return nil, err
	}
	p.policy, err = Digest(dir)
	return p, err
}

// endMarks are the tokens that end a turn: <|im_end|>, <|endoftext|> and what
// generation_config.json says.
func endMarks(dir string, tok *token.BPE) ([]int32, error) {
	var ids []int32
	for _, name := range []string{"<|im_end|>", "<|endoftext|>"} {
		if id, ok := tok.ID(name); ok {
			ids = append(ids, id)
		}
	}
	path := filepath.Join(dir, "generation_config.json")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ids, nil
	}
	var c struct {
		EOS json.RawMessage `json:"eos_token_id"`
	}
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err == nil && len(c.EOS) > 0 && string(c.EOS) != "null" {
		var one int32
		var many []int32
		if json.Unmarshal(c.EOS, &one) == nil {
			many = []int32{one}
		} else {
			err = json.Unmarshal(c.EOS, &many)
		}
		ids = append(ids, many...)
	}
	return ids, fail.Wrap(fail.BadInput, "open policy", path, err)
}

// verify compares the policy's files with the folder's manifest, if it has one: a
// flipped bit in a weight would play on unseen. What lies in folders below it (the
// training state) is not read here.
func verify(dir string) error {
	m, err := manifest.Read(manifest.Path(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, p := range m.Data() {
		if !strings.Contains(p.Name, "/") {
			if err := p.Verify(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// Digest names the weights in a model's folder: the digest of its manifest, or,
// of a folder without one, of its weights, configuration and tokenizer. The latter
// reads all of them.
func Digest(dir string) (string, error) {
	m, err := manifest.Open(dir)
	if err == nil {
		return m.Digest(), nil
	}
	if _, stat := os.Stat(manifest.Path(dir)); stat == nil {
		return "", err // there is one, but it is damaged
	}
	files, err := fs.Glob(os.DirFS(dir), "*.safetensors")
	if err != nil {
		return "", fail.Wrap(fail.BadInput, "open policy", dir, err)
	}
	for i, f := range files {
		files[i] = filepath.Join(dir, f)
	}
	for _, name := range []string{"config.json", "generation_config.json", "preprocessor_config.json", token.File} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			files = append(files, filepath.Join(dir, name))
		}
	}
	slices.Sort(files)
	h := sha256.New()
	for _, f := range files {
		_, sum, err := manifest.HashFile(f)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %s\n", sum, filepath.Base(f))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
