//go:build cuda

package train

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/safetensors"
	"searchloop/internal/tensor"
)

func needGPU(t testing.TB) {
	t.Helper()
	d := &Device{class: "cuda"}
	if err := d.open(); err != nil {
		t.Skip(err)
	}
}

// A run on the GPU goes the way of one on the CPU, as far as bfloat16 carries: the
// losses, norms and KL of every step.
func TestGPUGoesTheCPUsWay(t *testing.T) {
	needGPU(t)
	w, o := qwenWorld(t, "BF16")
	o.Policy, o.Reference = w.at("policy"), w.at("reference")
	for name, set := range map[string][]string{"whole": nil, "frozen": {"grpo.freeze_vision=true"}, "lora": {"grpo.lora.rank=8", "grpo.lora.alpha=16"}} {
		set = append([]string{"grpo.optimizer.master=split"}, set...)
		cpu := lines(t, runGRPO(t, qwenKit, o, w.at("cpu "+name), set...))
		g := o
		g.Device = "cuda"
		gpu := lines(t, runGRPO(t, qwenKit, g, w.at("gpu "+name), set...))
		if len(gpu) != len(cpu) || gpu[0]["device"] != "cuda" || gpu[0]["dtype"] != "bfloat16" {
			t.Fatalf("%d lines, %v", len(gpu), gpu[0])
		}
		for i := range cpu {
			for _, key := range []string{"loss", "grad_norm", "kl", "entropy"} {
				a, b := num(t, cpu[i], key), num(t, gpu[i], key)
				t.Logf("%s step %d %s: cpu %.6g gpu %.6g", name, i+1, key, a, b)
				if math.Abs(a-b) > .05*math.Abs(a)+.01 {
					t.Errorf("%s step %d: %s is %g on the CPU, %g on the GPU", name, i+1, key, a, b)
				}
			}
		}
	}
}

// Two runs give the same bytes: whatever is computed again, wherever the
// optimizer's state stands, and when the run was stopped after every second pack.
func TestGPURunsAreEqual(t *testing.T) {
	needGPU(t)
	w, o := qwenWorld(t, "F32")
	o.Policy, o.Reference, o.Device = w.at("policy"), w.at("reference"), "cuda"
	for kind, base := range map[string][]string{"whole": nil, "lora": {"grpo.lora.rank=8"}} {
		quiet := runGRPO(t, qwenKit, o, w.at(kind), base...)
		for name, set := range map[string][]string{"again": nil, "full": {"grpo.recompute=full"}, "selective": {"grpo.recompute=selective"}, "offload": {"grpo.optimizer.offload=true"}} {
			sameCheckpoint(t, quiet, runGRPO(t, qwenKit, o, w.at(kind+" "+name), append(base[:len(base):len(base)], set...)...))
		}
		stopped := o
		stopped.Out = w.at(kind + " stopped")
		runs := 0
		for ; ; runs++ {
			r := toyRun(t, append(deviceSet[:len(deviceSet):len(deviceSet)], base...)...)
			k := qwenKit
			k.loadOn = func(on tensor.Trainer, dir string, freeze bool) (Policy, error) {
				p, err := loadQwen(on, dir, freeze)
				if err == nil && strings.HasSuffix(dir, "policy") {
					return halting{p.(qwen), r, new(int)}, nil
				}
				return p, err
			}
			err := grpo(context.Background(), r, stopped, k)
			if err == nil {
				break
			}
			if kindOf(err) != fail.Interrupted {
				t.Fatal(err)
			}
		}
		if runs < 2 {
			t.Errorf("stopped %d times only", runs)
		}
		sameCheckpoint(t, quiet, stopped.Out)
	}
}

// An epoch on one device goes on from an epoch on the other, masters and moments
// included.
func TestGPUAndCPUTakeTurns(t *testing.T) {
	needGPU(t)
	w, o := qwenWorld(t, "F32")
	o.Policy, o.Reference = w.at("policy"), w.at("reference")
	for e, device := range []string{"cuda", "cpu", "cuda"} {
		var log bytes.Buffer
		r := toyRun(t, deviceSet...)
		r.Log = slog.New(slog.NewTextHandler(&log, nil))
		o.Device, o.Out = device, w.at(fmt.Sprint("epoch", e))
		if err := grpo(context.Background(), r, o, qwenKit); err != nil {
			t.Fatal(err)
		}
		if carried := strings.Contains(log.String(), "continuing the policy's optimizer"); carried != (e > 0) {
			t.Errorf("epoch %d on %s: %s", e, device, log.String())
		}
		c, err := readCursor(filepath.Join(o.Out, StateDir))
		if err != nil || c.Updates != int64(6*(e+1)) {
			t.Errorf("epoch %d: %+v, %v", e, c, err)
		}
		o.Policy = o.Out
	}
}

// The masters of a run that does nothing are the policy's own weights, to the bit.
func TestGPUKeepsMasters(t *testing.T) {
	needGPU(t)
	w, o := qwenWorld(t, "F32")
	o.Policy, o.Reference, o.Device = w.at("policy"), w.at("reference"), "cuda"
	out := runGRPO(t, qwenKit, o, w.at("out"), "grpo.optimizer.lr=0", "grpo.optimizer.min_lr=0", "grpo.optimizer.weight_decay=0")
	c, err := readCursor(filepath.Join(out, StateDir))
	if err != nil {
		t.Fatal(err)
	}
	state, err := safetensors.OpenFile(filepath.Join(out, StateDir, c.File))
	if err != nil {
		t.Fatal(err)
	}
	before, err := safetensors.Open(o.Policy)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range before.Names() {
		a, _ := before.Float32(name)
		b, err := state.Float32("weight." + name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range a {
			if a[i] != b[i] {
				t.Fatalf("%s: weight %d was %g and is %g", name, i, a[i], b[i])
			}
		}
	}
}
