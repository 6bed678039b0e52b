package benchmark

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/fail"
)

func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	good := "name: x\ndoc: d\nfrom: f\nformat: verl\nin: i\nsplit: test\nmetric: judge\nrecipes: [demo]\n"
	load := func(text string) (*Benchmark, error) {
		path := filepath.Join(dir, "x.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return Load(path)
	}
	if b, err := load(good + "published: [{system: s, value: 37.5, from: a paper, checked: restated}]\n"); err != nil || b.Published[0].Value != 37.5 {
		t.Fatalf("%+v %v", b, err)
	}
	for name, text := range map[string]string{
		"unknown key":    good + "colour: red\n",
		"other name":     strings.Replace(good, "name: x", "name: y", 1),
		"no metric":      strings.Replace(good, "metric: judge", "metric: taste", 1),
		"no recipe":      strings.Replace(good, "[demo]", "[]", 1),
		"no source":      strings.Replace(good, "from: f", "from: ''", 1),
		"no per cent":    good + "published: [{system: s, value: 375, from: a paper, checked: restated}]\n",
		"no citation":    good + "published: [{system: s, value: 37.5, checked: restated}]\n",
		"unknown check":  good + "published: [{system: s, value: 37.5, from: a paper, checked: surely}]\n",
		"no check":       good + "published: [{system: s, value: 37.5, from: a paper}]\n",
		"unsaid count":   good + "count: 5\n",
		"lone mapping":   good + "mapping: {question: [q], answers: [a]}\n",
		"map without":    strings.Replace(good, "format: verl", "format: map", 1),
		"bad mapping":    strings.Replace(good, "format: verl", "format: map", 1) + "mapping: {question: [q]}\n",
		"negative count": good + "count: -1\n",
		"no YAML":        "\t{",
	} {
		if _, err := load(text); fail.KindOf(err) != fail.Usage || !strings.Contains(err.Error(), "x.yaml") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Load("no-such-benchmark"); fail.KindOf(err) != fail.Usage {
		t.Errorf("%v", err)
	}
	if b, err := Of("some-questions"); err != nil || b.Metric != "judge" {
		t.Errorf("%+v %v", b, err)
	}
}
