package train

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
)

// prunable is a run of three epochs, each the next one's policy, with an
// evaluation of the first three policies.
type prunable struct {
	w   toyWorld
	run string
}

func newPrunable(t *testing.T) prunable {
	p := prunable{w: newToyWorld(t, t.TempDir(), 6, nil)}
	p.run = p.w.at("run")
	for e := 1; e <= 3; e++ {
		p.grpo(t, e)
	}
	for e, accuracy := range map[int]float64{1: .5, 2: .25, 3: .1} {
		dir := filepath.Join(p.run, "evals", "b", fmt.Sprintf("epoch-%d", e))
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf(`{"accuracy": {"mean": %g}}`, accuracy)
		if err := os.WriteFile(filepath.Join(dir, "metrics.json"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p prunable) at(epoch int) string {
	return filepath.Join(p.run, fmt.Sprintf("epoch-%d", epoch), "checkpoint")
}

func (p prunable) try(t *testing.T, epoch int, out string) error {
	o := p.w.options("")
	o.Out = out
	if epoch > 1 {
		o.Policy, o.Reference = p.at(epoch-1), p.at(1)
	}
	return grpo(context.Background(), toyRun(t, "grpo.max_mismatch=0", "grpo.updates=1"), o, toyKit)
}

func (p prunable) grpo(t *testing.T, epoch int) {
	t.Helper()
	if err := p.try(t, epoch, p.at(epoch)); err != nil {
		t.Fatal(err)
	}
}

func (p prunable) prune(t *testing.T, o PruneOptions, dry bool) {
	t.Helper()
	o.Run = p.run
	r := job.Testing(t)
	r.DryRunFlag = dry
	if err := Prune(r, o); err != nil {
		t.Fatal(err)
	}
}

func (p prunable) digest(t *testing.T, epoch int) string {
	t.Helper()
	m, err := manifest.Open(p.at(epoch))
	if err != nil {
		t.Fatal(err)
	}
	return m.Digest()
}

func (p prunable) states(epoch int) int {
	found, _ := filepath.Glob(filepath.Join(p.at(epoch), StateDir, "state-*"))
	return len(found)
}

func TestPrune(t *testing.T) {
	p := newPrunable(t)
	before, second := p.digest(t, 1), p.digest(t, 2)
	old := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(manifest.Path(p.at(1)), old, old); err != nil {
		t.Fatal(err)
	}
	p.prune(t, PruneOptions{KeepLast: 1}, true)
	if p.states(1) != 1 {
		t.Fatal("a dry run removes")
	}
	p.prune(t, PruneOptions{KeepLast: 1, KeepBest: 1, Bench: "b"}, false)
	if p.states(1) != 1 || p.states(2) != 0 || p.states(3) != 1 {
		t.Fatalf("states left: %d %d %d", p.states(1), p.states(2), p.states(3))
	}
	p.prune(t, PruneOptions{KeepLast: 2, KeepBest: 1}, false) // epoch 2 has the reward, by the rows of epoch 3
	if p.states(1) != 0 {
		t.Fatal("epoch 1 is neither among the last nor the best")
	}
	info, err := os.Stat(manifest.Path(p.at(1)))
	if err != nil || !info.ModTime().Equal(old) {
		t.Errorf("the manifest's time moved to %v: make would run again", info.ModTime())
	}
	if p.digest(t, 1) != before || p.digest(t, 2) != second {
		t.Error("a pruned checkpoint has another digest")
	}
	for e := 1; e <= 3; e++ {
		p.grpo(t, e) // nothing to do
	}
	if p.states(1) != 0 || p.states(2) != 0 {
		t.Error("pruned epochs were made again")
	}

	// A job that needs the state says so, and how to have it again.
	err = p.try(t, 3, p.w.at("elsewhere"))
	if kindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "pruned by prune --keep-last 1") || !strings.Contains(err.Error(), "manifest.json") {
		t.Errorf("%v", err)
	}
	for e := 1; e <= 2; e++ {
		if err := os.Remove(manifest.Path(p.at(e))); err != nil {
			t.Fatal(err)
		}
		p.grpo(t, e)
	}
	if p.digest(t, 1) != before || p.digest(t, 2) != second || p.states(2) != 1 {
		t.Error("made again, it is another checkpoint")
	}
	if err := p.try(t, 3, p.w.at("elsewhere")); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, p.at(3), p.w.at("elsewhere"), []string{"model.safetensors", MetricsName})
}

// With the weights gone too, whoever wants them is told.
func TestPruneWeights(t *testing.T) {
	p := newPrunable(t)
	p.prune(t, PruneOptions{KeepLast: 1, Weights: true}, false)
	if _, err := os.Stat(filepath.Join(p.at(1), "model.safetensors")); err != nil {
		t.Error("the reference of the last epoch lost its weights")
	}
	if _, err := os.Stat(filepath.Join(p.at(2), "model.safetensors")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the second epoch has its weights still")
	}
	if err := verifyPolicy(p.at(2)); kindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "pruned by") {
		t.Errorf("%v", err)
	}
	p.grpo(t, 3)
}

// A run that died between the manifest and the files is taken up.
func TestPruneContinues(t *testing.T) {
	p := newPrunable(t)
	file := filepath.Join(p.at(1), StateDir, "state-00000002.safetensors")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p.prune(t, PruneOptions{KeepLast: 2}, false)
	if err := os.WriteFile(file, text, 0o666); err != nil {
		t.Fatal(err)
	}
	p.digest(t, 1)
	p.prune(t, PruneOptions{KeepLast: 2}, false)
	if p.states(1) != 0 || p.states(2) != 1 {
		t.Errorf("%d and %d states", p.states(1), p.states(2))
	}
}

// Without a measure nobody knows which is best: everything stays.
func TestPruneKeepsTheUnmeasured(t *testing.T) {
	p := newPrunable(t)
	p.prune(t, PruneOptions{KeepLast: 1, KeepBest: 1, Bench: "other"}, false)
	if p.states(1) != 1 || p.states(2) != 1 {
		t.Error("an epoch that was never measured lost its state")
	}
	for _, o := range []PruneOptions{{Run: p.run}, {Run: p.run, KeepLast: 1, KeepBest: -1}, {Run: p.w.at("policy"), KeepLast: 1}} {
		if err := Prune(job.Testing(t), o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}
