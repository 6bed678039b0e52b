// Command licenses lists what is linked into the jobs, with every build tag: module,
// version, licences and the files that say so. A licence that is not among the allowed
// ones, a module without any, and a text that is not recognised are errors. It asks
// the module cache, no network.
//
//	go run ./internal/licenses --out build/licenses.csv
//
// Licences are recognised by google/licensecheck, which pkg.go.dev uses too, and named
// as SPDX does. What stands in a module's folders counts for packages of those folders.
package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/google/licensecheck"

	"searchloop/internal/atomicfile"
)

// allowed are licences that let a program be used, changed and passed on without
// giving its own source away. MPL-2.0 asks for the source of its own files alone, which
// are public and unchanged here. HPND, NCSA and OpenSSL stand in Arrow's notice beside
// its own licence, for code in other languages.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "FTL", "HPND", "ISC", "MIT", "MIT-0", "MPL-2.0", "NCSA", "OpenSSL", "Unlicense", "Zlib"}

// chosen is, for a module that may be used under one of several licences, what its
// text says of the one that is chosen.
var chosen = map[string]struct{ id, says string }{
	"github.com/golang/freetype": {"FTL", "your choice of exactly one of the following two licenses: * The FreeType License"},
}

const tags = "nodynamic,faiss,cuda"

func main() {
	out := flag.String("out", "build/licenses.csv", "file of the list")
	flag.Parse()
	if err := run(*out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

func run(out string, packages []string) error {
	if len(packages) == 0 {
		packages = []string{"./jobs/..."}
	}
	mods, err := linked(packages)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	w.Write([]string{"module", "version", "licenses", "files"})
	goRoot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	mods["std"] = &module{Path: "std", Version: runtime.Version(), Dir: strings.TrimSpace(string(goRoot))}
	var bad []error
	for _, path := range slices.Sorted(maps.Keys(mods)) {
		m := mods[path]
		ids, files, err := m.licenses()
		if err != nil {
			bad = append(bad, fmt.Errorf("%s %s: %w", m.Path, m.Version, err))
		}
		w.Write([]string{m.Path, m.Version, strings.Join(ids, " AND "), strings.Join(files, " ")})
	}
	w.Flush()
	if err := os.MkdirAll(filepath.Dir(out), 0o777); err != nil {
		return err
	}
	if err := atomicfile.WriteFile(out, text.Bytes()); err != nil {
		return err
	}
	fmt.Printf("%d modules, %d with a licence that is not allowed: %s\n", len(mods), len(bad), out)
	return errors.Join(bad...)
}

// module is one of those that are linked.
type module struct {
	Path, Version, Dir string
	folders            map[string]bool // of its packages
}

// linked are the modules whose packages the given ones are made of.
func linked(packages []string) (map[string]*module, error) {
	cmd := exec.Command("go", append([]string{"list", "-e", "-deps", "-tags", tags, "-json=ImportPath,Dir,Module"}, packages...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.String())
	}
	return parse(bytes.NewReader(text))
}

func parse(r io.Reader) (map[string]*module, error) {
	out := map[string]*module{}
	for d := json.NewDecoder(r); ; {
		var p struct {
			ImportPath, Dir string
			Module          *struct {
				Path, Version, Dir string
				Main               bool
				Replace            *struct{ Path, Version, Dir string }
			}
		}
		if err := d.Decode(&p); err == io.EOF {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if p.Module == nil || p.Module.Main {
			continue
		}
		m := out[p.Module.Path]
		if m == nil {
			m = &module{Path: p.Module.Path, Version: p.Module.Version, Dir: p.Module.Dir, folders: map[string]bool{}}
			if r := p.Module.Replace; r != nil {
				m.Version, m.Dir = r.Path+" "+r.Version, r.Dir
			}
			out[m.Path] = m
		}
		m.folders[p.Dir] = true
	}
}

var named = regexp.MustCompile(`(?i)^(licen[sc]e|copying|unlicense)`)

// licenses are those of the module's root and of the folders above its packages that
// are linked.
func (m *module) licenses() (ids, files []string, err error) {
	if m.Dir == "" {
		return nil, nil, errors.New("is not in the module cache; run go mod download")
	}
	for dir := range m.folders {
		for ; len(dir) > len(m.Dir) && strings.HasPrefix(dir, m.Dir); dir = filepath.Dir(dir) {
			m.folders[dir] = true
		}
	}
	if m.folders == nil {
		m.folders = map[string]bool{}
	}
	m.folders[m.Dir] = true
	for _, dir := range slices.Sorted(maps.Keys(m.folders)) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, nil, err
		}
		for _, e := range entries {
			if !e.Type().IsRegular() || !named.MatchString(e.Name()) || filepath.Ext(e.Name()) == ".go" {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, nil, err
			}
			name, _ := filepath.Rel(m.Dir, filepath.Join(dir, e.Name()))
			files = append(files, filepath.ToSlash(name))
			found, ferr := recognise(text)
			if c, ok := chosen[m.Path]; ok && strings.Contains(strings.Join(strings.Fields(string(text)), " "), c.says) {
				found, ferr = []string{c.id}, nil
			}
			if ferr != nil {
				return ids, files, fmt.Errorf("%s: %w", name, ferr)
			}
			for _, id := range found {
				if !slices.Contains(ids, id) {
					ids = append(ids, id)
				}
			}
		}
	}
	slices.Sort(ids)
	if len(ids) == 0 {
		return nil, files, errors.New("has no licence")
	}
	for _, id := range ids {
		if !slices.Contains(allowed, id) {
			err = errors.Join(err, fmt.Errorf("%s is not among %s", id, strings.Join(allowed, ", ")))
		}
	}
	return ids, files, err
}

// recognise names the licences of a text.
func recognise(text []byte) ([]string, error) {
	c := licensecheck.Scan(text)
	var ids []string
	for _, m := range c.Match {
		if !m.IsURL && !slices.Contains(ids, m.ID) {
			ids = append(ids, m.ID)
		}
	}
	if len(ids) == 0 {
		return nil, errors.New("its text is not that of a known licence; read it, and add what it is to internal/licenses")
	}
	return ids, nil
}
