package recipe

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/fail"
)

func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil { // recipes are found from the root of the project
		panic(err)
	}
	os.Exit(m.Run())
}

func TestDemoExtendsMMDeepResearch(t *testing.T) {
	r, err := Load("demo", nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Name != "demo" || r.GRPO.ClipHigh != 0.28 || r.Protocol.MaxToolCalls != 3 || r.SFT.Optimizer.Beta1 != 0.9 {
		t.Errorf("wrong merge: %+v", r)
	}
	text, err := r.YAML()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "again.yaml")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	again, err := Load(path, nil)
	if err != nil {
		t.Fatalf("a printed recipe does not load: %v", err)
	}
	if b, _ := again.YAML(); string(b) != string(text) {
		t.Error("a printed recipe loads as another one")
	}
}

func TestOverride(t *testing.T) {
	r, err := Load("demo", []string{"grpo.optimizer.lr=2e-6", "sampling.train={n: 3, temperature: 0.5, top_p: 1, top_k: 0}"})
	if err != nil {
		t.Fatal(err)
	}
	if r.GRPO.Optimizer.LR != 2e-6 || r.Sampling.Train.N != 3 {
		t.Errorf("overrides lost: %+v", r.Sampling)
	}
}

func TestMistakesAreUsageErrorsThatNameThePlace(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		path string
		set  []string
		want []string
	}{
		"misspelt key":        {file("a.yaml", "name: x\nsampling:\n  train: {n: 8, temprature: 1}\n"), nil, []string{"a.yaml", "row 3", "temprature"}},
		"misspelt override":   {"demo", []string{"grpo.learning_rate=1"}, []string{"grpo.learning_rate=1", "learning_rate"}},
		"override of a value": {"demo", []string{"seed.x=1"}, []string{"seed.x=1", "not a section"}},
		"override without =":  {"demo", []string{"seed"}, []string{"want KEY=VALUE"}},
		"no such recipe":      {"nope", nil, []string{"nope.yaml", "demo"}},
		"extends itself":      {file("loop.yaml", "extends: loop\n"), nil, []string{"extends itself"}},
		"not YAML":            {file("b.yaml", "name: [x\n"), nil, []string{"b.yaml"}},
		"wrong type":          {file("c.yaml", "seed: many\n"), nil, []string{"c.yaml", "seed"}},
		"misspelt field":      {file("d.yaml", "extends: base\nmappings:\n  mine: {question: [q], answer: [a]}\n"), nil, []string{"d.yaml", "row 3", "answer"}},
		"mapping of nothing":  {"demo", []string{"mappings.mine={question: [q]}"}, []string{"mappings.mine", "answers"}},
		"user in an address":  {"demo", []string{"judge.url=http://user:pass@host/v1"}, []string{"judge.url", "keys come from the environment"}},
		"key in an address":   {"demo", []string{"rollout.policy_urls=[\"http://host/v1?key=abc\"]"}, []string{"rollout.policy_urls", "keys come from the environment"}},
		"no address":          {"demo", []string{"rollout.policy_urls=[host]"}, []string{"rollout.policy_urls"}},
		"judge and panel":     {"demo", []string{"judge.url=http://host/v1", "judge.panel=[{model: a, url: http://a/v1}]"}, []string{"judge.url", "judge.panel"}},
		"wrong choice":        {"demo", []string{"grpo.aggregation=mean"}, []string{"grpo.aggregation", "token-mean"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(c.path, c.set)
			if err == nil {
				t.Fatal("accepted")
			}
			if fail.KindOf(err) != fail.Usage {
				t.Errorf("kind %v, want usage", fail.KindOf(err))
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not mention %q", err, w)
				}
			}
		})
	}
}

// Fields that a recipe does not use do not enter what jobs hash, so that what
// was made before they existed is not stale.
func TestUnusedFieldsAreNotHashed(t *testing.T) {
	for _, name := range []string{"demo", "mm-deepresearch"} {
		r, err := Load(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal([]any{r.SFT, r.GRPO})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"loss", "tau_positive", "old_kl", "norm_tokens", "failed", "zero_variance", "overlong", "correction", "lora", "kl_importance"} {
			if strings.Contains(string(text), `"`+key+`"`) {
				t.Errorf("%s: %s is in %s", name, key, text)
			}
		}
		if y, _ := r.YAML(); strings.Contains(string(y), "correction") || strings.Contains(string(y), "lora") {
			t.Errorf("%s prints sections it does not have:\n%s", name, y)
		}
	}
}
