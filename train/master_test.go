package train

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/recipe"
	"searchloop/internal/safetensors"
	"searchloop/internal/tensor"
)

// A whole run with the split master is one with the float32 master, to the bit,
// also when it was stopped on the way; and the policy's weights are in bfloat16.
func TestSplitMaster(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 8, nil)
	whole := mustGRPO(t, w, "whole", "grpo.optimizer.master=float32", "grpo.max_mismatch=0")
	halves := mustGRPO(t, w, "split", "grpo.optimizer.master=split", "grpo.max_mismatch=0")
	same := []string{"model.safetensors", MetricsName, StateDir + "/state-00000006.safetensors"}
	sameFiles(t, whole, halves, same)

	o := w.options("stopped")
	r := toyRun(t, "grpo.optimizer.master=split", "grpo.max_mismatch=0")
	err := grpo(context.Background(), r, o, hookKit(func(_ *toy, n int) {
		if n == 8 {
			r.Stop()
		}
	}))
	if kindOf(err) != fail.Interrupted {
		t.Fatal(err)
	}
	if err := grpo(context.Background(), toyRun(t, "grpo.optimizer.master=split", "grpo.max_mismatch=0"), o, toyKit); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, whole, o.Out, same)

	f, err := safetensors.Open(whole)
	if err != nil {
		t.Fatal(err)
	}
	state, err := safetensors.OpenFile(filepath.Join(whole, same[2]))
	if err != nil {
		t.Fatal(err)
	}
	seen, _ := f.Float32("out")
	master, _ := state.Float32("weight.out")
	for i, x := range master {
		if high, _ := tensor.Halves(x); seen[i] != high {
			t.Fatalf("weight %d is %g, its master %g", i, seen[i], x)
		}
	}
	if slices.Equal(seen, master) {
		t.Error("the master is rounded too")
	}
}

// What the policy cannot show yet is not lost: a hundred updates far below the
// last bit of a bfloat16 add up.
func TestSmallUpdatesAddUp(t *testing.T) {
	for _, how := range []string{MasterFloat32, MasterSplit} {
		p := []Param{{Name: "w", Shape: []int{1}, W: f(.02), G: f(.5), NoDecay: true}}
		opt, err := NewAdamW(recipe.Optimizer{Beta1: .9, Beta2: .999, Eps: 1e-8, Master: how}, p)
		if err != nil {
			t.Fatal(err)
		}
		seen := p[0].W[0]
		for range 100 {
			opt.Step(1e-6)
		}
		near(t, how+": moved", float64(.02-opt.masters(0, new([]float32))[0]), 1e-4, 1e-6)
		if p[0].W[0] == seen {
			t.Errorf("%s: the policy does not see it", how)
		}
	}
	if _, err := NewAdamW(recipe.Optimizer{Beta1: .9, Beta2: .999, Eps: 1e-8, Master: "bf16"}, nil); kindOf(err) != fail.Usage {
		t.Errorf("%v", err)
	}
}
