package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"searchloop/internal/recipe"
)

// Whatever variable holds a key of some job, a task of Slurm gets it as a file.
func TestEveryKeyTravels(t *testing.T) {
	named := regexp.MustCompile(`"([A-Z][A-Z0-9_]*_(?:KEY|TOKEN|PASSWORD))"`)
	list, found := secrets(new(recipe.Recipe)), 0
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "data" || d.Name() == "runs" || d.Name() == "build"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			found++
			if !slices.Contains(list, m[1]) {
				t.Errorf("%s: %s is not among the secrets of a launch", path, m[1])
			}
		}
		return err
	})
	if err != nil || found < 8 {
		t.Fatal(found, err)
	}
}
