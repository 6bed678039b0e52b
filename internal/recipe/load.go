package recipe

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"

	"searchloop/internal/fail"
)

// Dir is where recipes are looked up by name.
const Dir = "pipelines/recipes"

// Load reads the recipe at nameOrPath (a name means Dir/name.yaml), merges what
// it extends, applies overrides of the form "a.b=value" (value is YAML) and
// decodes the result. An unknown key anywhere is a usage error that names the
// file and line.
func Load(nameOrPath string, overrides []string) (*Recipe, error) {
	path := nameOrPath
	if !strings.ContainsAny(path, "/.") {
		path = filepath.Join(Dir, path+".yaml")
	}
	tree, err := merged(path, nil)
	if err != nil {
		return nil, err
	}
	r, err := decode(tree)
	if err != nil {
		_, hint, cause := explain(err)
		return nil, &fail.Error{Kind: fail.Usage, Op: "read recipe", Path: path, Err: cause, Hint: hint}
	}
	for _, o := range overrides {
		if err := override(tree, o); err != nil {
			return nil, err
		}
		if r, err = decode(tree); err != nil {
			_, hint, cause := explain(err)
			return nil, &fail.Error{Kind: fail.Usage, Op: "--set", Path: o, Err: cause, Hint: hint}
		}
	}
	if err := r.check(); err != nil {
		return nil, fail.Wrap(fail.Usage, "check recipe", path, err)
	}
	return r, nil
}

// decode turns a merged tree into a Recipe and refuses keys it does not know.
func decode(tree map[string]any) (*Recipe, error) {
	text, err := yaml.Marshal(tree)
	if err != nil {
		return nil, err
	}
	r := new(Recipe)
	if err := yaml.UnmarshalWithOptions(text, r, yaml.Strict()); err != nil {
		return nil, err
	}
	return r, nil
}

// merged reads path and lays it over what it extends.
func merged(path string, seen []string) (map[string]any, error) {
	for _, s := range seen {
		if s == path {
			return nil, fail.New(fail.Usage, "read recipe", path, "extends itself: %s", strings.Join(append(seen, path), " → "))
		}
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fail.WithHint(fail.Wrap(fail.Usage, "read recipe", path, err), "recipes: "+strings.Join(names(), ", "))
	}
	if err != nil {
		return nil, fail.Wrap(fail.Usage, "read recipe", path, err)
	}
	// Strictly against the struct first, so that a wrong key is reported with the
	// line of the file it stands in.
	if err := yaml.UnmarshalWithOptions(text, new(Recipe), yaml.Strict()); err != nil {
		line, hint, cause := explain(err)
		return nil, &fail.Error{Kind: fail.Usage, Op: "read recipe", Path: path, Row: line, Err: cause, Hint: hint}
	}
	tree := map[string]any{}
	if err := yaml.NewDecoder(bytes.NewReader(text)).Decode(&tree); err != nil {
		return nil, fail.Wrap(fail.Usage, "read recipe", path, err)
	}
	parent, _ := tree["extends"].(string)
	delete(tree, "extends")
	if parent == "" {
		return tree, nil
	}
	base, err := merged(filepath.Join(filepath.Dir(path), parent+".yaml"), append(seen, path))
	if err != nil {
		return nil, err
	}
	return overlay(base, tree), nil
}

// overlay lays b over a: maps are merged, everything else is replaced.
func overlay(a, b map[string]any) map[string]any {
	for k, v := range b {
		am, aok := a[k].(map[string]any)
		bm, bok := v.(map[string]any)
		if aok && bok {
			a[k] = overlay(am, bm)
		} else {
			a[k] = v
		}
	}
	return a
}

func override(tree map[string]any, o string) error {
	path, value, ok := strings.Cut(o, "=")
	if !ok || path == "" {
		return fail.New(fail.Usage, "--set", o, "want KEY=VALUE, for example grpo.kl=0.01")
	}
	var v any
	if err := yaml.Unmarshal([]byte(value), &v); err != nil {
		_, _, cause := explain(err)
		return fail.Wrap(fail.Usage, "--set", o, cause)
	}
	keys := strings.Split(path, ".")
	for i, k := range keys[:len(keys)-1] {
		next, ok := tree[k].(map[string]any)
		if !ok {
			if tree[k] != nil {
				return fail.New(fail.Usage, "--set", o, "%s is not a section", strings.Join(keys[:i+1], "."))
			}
			next = map[string]any{}
			tree[k] = next
		}
		tree = next
	}
	tree[keys[len(keys)-1]] = v
	return nil
}

// YAML renders the merged recipe, for --print-recipe.
func (r *Recipe) YAML() ([]byte, error) { return yaml.Marshal(r) }

// Tool returns the tool of that name.
func (r *Recipe) Tool(name string) (Tool, bool) {
	for _, t := range r.Tools {
		if t.Name == name {
			return t, true
		}
	}
	return Tool{}, false
}

func names() []string {
	files, _ := filepath.Glob(filepath.Join(Dir, "*.yaml"))
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".yaml")
	}
	return files
}
