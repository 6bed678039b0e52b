package pipelines

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/eval/benchmark"
)

// Every benchmark's file is whole, and make reads of it what the jobs read.
func TestBenchmarks(t *testing.T) {
	p := newPlace(t)
	out, err := p.make("-pn", "help", "RAW=raw", "SHARED=shared").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	variables := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\n"), " := "); ok {
			variables[name] = value
		}
	}
	names := benchmark.Names("benchmarks")
	if len(names) < 20 {
		t.Errorf("%d benchmarks", len(names))
	}
	expand := strings.NewReplacer("$(RAW)", "raw", "$(SHARED)", "shared", "$(WORLD)", "data/world", "$(wildcard raw/fvqa/fvqa_test_image_search_results_cache.pkl)", "")
	for _, name := range names {
		b, err := benchmark.Load(filepath.Join("benchmarks", name+".yaml"))
		if err != nil {
			t.Error(err)
			continue
		}
		for variable, want := range map[string]string{"Q_FORMAT": b.Format, "Q_IN": b.In, "Q_FLAGS": b.Flags, "L_CACHE": b.LensCache, "L_TAR": b.LensTar} {
			if got := variables[variable+"."+name]; got != expand.Replace(expand.Replace(want)) {
				t.Errorf("%s.%s is %q in make, %q in the file", variable, name, got, want)
			}
		}
		for _, r := range b.Recipes {
			if exec.Command("test", "-f", "recipes/"+r+".yaml").Run() != nil {
				t.Errorf("%s: there is no recipe %s", name, r)
			}
		}
	}
}

// A benchmark whose files were not fetched says where they come from.
func TestBenchmarkWithoutFiles(t *testing.T) {
	p := newPlace(t)
	out, err := p.make("data/questions/chartqa/manifest.json").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "huggingface.co/datasets/lmms-lab/ChartQA") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = p.make("data/questions/nq/manifest.json").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "FlashRAG_datasets, nq/test.jsonl") {
		t.Errorf("%v\n%s", err, out)
	}
}
