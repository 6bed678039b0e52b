package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	testName = regexp.MustCompile(`(?m)^func (Test((?:[FGT][0-9]+)+)\w*)\(`)
	number   = regexp.MustCompile(`[FGT][0-9]+`)
)

// numbered is every fault and defect with its tests: those that the list names, and
// those below root whose own name has the number.
func numbered(root string) ([]fault, error) {
	found := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || slices.Contains([]string{"testdata", "build", "data", "runs", "bin"}, name)) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte("func Test")) {
			return err
		}
		pkg, err := filepath.Rel(root, filepath.Dir(path))
		for _, m := range testName.FindAllStringSubmatch(string(text), -1) {
			for _, id := range number.FindAllString(m[2], -1) {
				found[id] = append(found[id], filepath.ToSlash(pkg)+"."+m[1])
			}
		}
		return err
	})
	list := slices.Concat(faults, defects)
	for i := range list {
		f := &list[i]
		f.tests = slices.Clone(f.tests)
		for _, t := range found[f.id] {
			if !slices.Contains(f.tests, t) {
				f.tests = append(f.tests, t)
			}
		}
	}
	return list, err
}
