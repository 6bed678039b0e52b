// Package benchmark reads what pipelines/benchmarks says of a benchmark: where its
// questions come from, how many there are, by which metric it is scored, with
// which recipes, and what the published systems reached. It reads no questions and
// computes nothing. See docs/benchmarks.md.
package benchmark

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"searchloop/eval/score"
	"searchloop/internal/fail"
	"searchloop/internal/recipe"
)

// Dir is where benchmarks are looked up by name.
const Dir = "pipelines/benchmarks"

// Benchmark is one file of Dir. The first keys are what make reads line by line;
// values there may hold make's variables.
type Benchmark struct {
	Name      string `yaml:"name" json:"name"` // of the file, too
	Doc       string `yaml:"doc" json:"doc"`
	From      string `yaml:"from" json:"from"` // where people get the files
	Format    string `yaml:"format" json:"format"`
	In        string `yaml:"in" json:"-"`
	Flags     string `yaml:"flags,omitempty" json:"-"`
	LensCache string `yaml:"lens_cache,omitempty" json:"-"`
	LensTar   string `yaml:"lens_tar,omitempty" json:"-"`

	Split string `yaml:"split" json:"split"`
	Count int    `yaml:"count,omitempty" json:"count,omitempty"` // questions of the whole benchmark; 0 when its authors say none
	// CountChecked says how far the count was looked up: see Checked of Published.
	CountChecked string `yaml:"count_checked,omitempty" json:"count_checked,omitempty"`

	Metric  string   `yaml:"metric" json:"metric"`   // a name of package score
	Recipes []string `yaml:"recipes" json:"recipes"` // workflows that are usual for it, the first being the default
	// SearchFree are the categories whose questions need no search; all others do.
	SearchFree []string        `yaml:"search_free,omitempty" json:"search_free,omitempty"`
	Published  []Published     `yaml:"published,omitempty" json:"published,omitempty"`
	Mapping    *recipe.Mapping `yaml:"mapping,omitempty" json:"-"`
}

// Published is a figure that somebody else reached.
type Published struct {
	System string  `yaml:"system" json:"system"`
	Value  float64 `yaml:"value" json:"value"` // per cent
	From   string  `yaml:"from" json:"from"`   // citation
	// Checked says where the figure was read: authors (in their paper, its abstract or
	// their repository), restated (by others, who name the paper), or unverified: no
	// source could be read, or those that were read disagree.
	Checked string `yaml:"checked" json:"checked"`
	Note    string `yaml:"note,omitempty" json:"note,omitempty"`
}

// checks are the values of Checked, and what a reader is told.
var checks = map[string]string{"authors": "read at its authors", "restated": "as restated by others", "unverified": "unverified"}

// Said is Checked in words.
func (p Published) Said() string { return checks[p.Checked] }

// CountSaid is CountChecked in words.
func (b *Benchmark) CountSaid() string { return checks[b.CountChecked] }

// Load reads the benchmark of a name, or of a path to a YAML file.
func Load(nameOrPath string) (*Benchmark, error) {
	path := nameOrPath
	if !strings.ContainsAny(path, "/.") {
		path = filepath.Join(Dir, path+".yaml")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fail.WithHint(fail.Wrap(fail.Usage, "read benchmark", path, err), "benchmarks: "+strings.Join(Names(Dir), ", "))
	}
	b := new(Benchmark)
	if err := yaml.UnmarshalWithOptions(text, b, yaml.Strict()); err != nil {
		return nil, fail.Wrap(fail.Usage, "read benchmark", path, err)
	}
	if err := b.check(strings.TrimSuffix(filepath.Base(path), ".yaml")); err != nil {
		return nil, fail.Wrap(fail.Usage, "read benchmark", path, err)
	}
	return b, nil
}

// Of is Load for the name of a question set, which need be no benchmark: one
// without a file is scored by the judge's verdict.
func Of(name string) (*Benchmark, error) {
	if _, err := os.Stat(filepath.Join(Dir, name+".yaml")); errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(name, "/.") {
		return &Benchmark{Name: name, Metric: score.Judge}, nil
	}
	return Load(name)
}

// Names lists the benchmarks of a folder.
func Names(dir string) []string {
	files, _ := filepath.Glob(filepath.Join(dir, "*.yaml"))
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".yaml")
	}
	slices.Sort(files)
	return files
}

func (b *Benchmark) check(file string) error {
	if _, err := score.Named(b.Metric); err != nil {
		return err
	}
	switch {
	case b.Name != file:
		return errors.New("name is " + b.Name + ", the file is " + file + ".yaml")
	case b.Doc == "" || b.From == "" || b.Format == "" || b.In == "" || b.Split == "":
		return errors.New("one of doc, from, format, in, split is missing")
	case b.Count < 0:
		return errors.New("count is below 0")
	case b.Count > 0 && b.CountSaid() == "":
		return errors.New("count_checked is authors, restated or unverified, and not \"" + b.CountChecked + "\"")
	case len(b.Recipes) == 0:
		return errors.New("recipes names none")
	case (b.Format == "map") != (b.Mapping != nil):
		return errors.New("format map needs a mapping, and no other format takes one")
	}
	for _, p := range b.Published {
		if p.System == "" || p.From == "" || p.Value < 0 || p.Value > 100 {
			return errors.New("a published figure lacks its system, its source, or is no per cent: " + p.System)
		}
		if p.Said() == "" {
			return errors.New("checked is authors, restated or unverified, and not \"" + p.Checked + "\": " + p.System)
		}
	}
	if b.Mapping != nil {
		return b.Mapping.Check()
	}
	return nil
}
