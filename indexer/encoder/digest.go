package encoder

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"searchloop/internal/fail"
)

// parts are the patterns of the files that decide what an encoder's vectors are.
// Manifests, notes and other frameworks' weights do not.
var parts = []string{
	"config.json", "*.safetensors", "*.safetensors.index.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
	"vocab.txt", "added_tokens.json", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "searchloop.json", "*_Pooling/config.json",
	"preprocessor_config.json", "*/adapter_config.json", "*/adapter_model.safetensors",
}

// Digest is the identity of the encoder in dir: the SHA-256 over the names and
// contents of the files it is made of.
func Digest(dir string) (string, error) {
	var names []string
	for _, p := range parts {
		found, err := filepath.Glob(filepath.Join(escape(dir), p))
		if err != nil {
			return "", fail.Wrap(fail.Bug, "read encoder", dir, err)
		}
		names = append(names, found...)
	}
	if !slices.Contains(names, filepath.Join(dir, "config.json")) {
		return "", &fail.Error{Kind: fail.BadInput, Op: "read encoder", Path: dir, Err: fmt.Errorf("no config.json"),
			Hint: "name a folder with config.json, model.safetensors and a tokenizer, such as the encoder job writes or a downloaded E5"}
	}
	slices.Sort(names)
	all := sha256.New()
	for _, name := range names {
		sum, err := fileDigest(name)
		if err != nil {
			return "", fail.Wrap(fail.BadInput, "read encoder", name, err)
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return "", fail.Wrap(fail.Bug, "read encoder", name, err)
		}
		fmt.Fprintf(all, "%s %s\n", sum, filepath.ToSlash(rel))
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}

func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// escape takes the meaning of patterns from a folder's name.
func escape(dir string) string {
	out := make([]byte, 0, len(dir))
	for _, c := range []byte(filepath.Clean(dir)) {
		if c == '*' || c == '?' || c == '[' || c == '\\' {
			out = append(out, '\\')
		}
		out = append(out, c)
	}
	return string(out)
}
