package train

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/model/qwenvl"
)

// hooked is a toy that calls back after every backward pass.
type hooked struct {
	*toy
	after func(n int)
}

type hookedPass struct {
	Pass
	h *hooked
}

func (h *hooked) Forward(b *qwenvl.Batch) (Pass, error) {
	p, err := h.toy.Forward(b)
	return hookedPass{p, h}, err
}

func (p hookedPass) Backward(rows, targets []int32, temperature float32, dlogp, dentropy []float32) {
	p.Pass.Backward(rows, targets, temperature, dlogp, dentropy)
	p.h.after(p.h.backwards)
}

// hookKit is toyKit whose policies call after(policy, n) after their n-th backward pass.
func hookKit(after func(t *toy, n int)) kit {
	k := toyKit
	k.load = func(dir string, freeze bool) (Policy, error) {
		p, err := loadToy(dir, freeze)
		if err != nil {
			return nil, err
		}
		t := p.(*toy)
		return &hooked{t, func(n int) { after(t, n) }}, nil
	}
	return k
}

var trained = []string{"DONE", "config.json", "metrics.jsonl", "model.safetensors", "rejects.jsonl", "stats.json", "trainer/cursor.json"}

// sameCheckpoint compares two finished folders byte by byte, the manifest but for
// its times.
func sameCheckpoint(t testing.TB, a, b string) {
	t.Helper()
	sameFiles(t, a, b, trained)
	x, err := manifest.Open(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := manifest.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	if x.Digest() != y.Digest() {
		t.Error("the manifests differ")
	}
	entries, _ := os.ReadDir(filepath.Join(b, StateDir))
	if len(entries) != 2 {
		t.Errorf("%d files in the training state", len(entries))
	}
}

func TestStopAndContinue(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 10, nil)
	for _, set := range [][]string{{"grpo.save_steps=0"}, {"grpo.save_steps=2", "grpo.old_logprobs=recompute"}} {
		name := fmt.Sprint("quiet", len(set))
		quiet := mustGRPO(t, w, name, set...)
		o := w.options(name + "-stopped")
		runs := 0
		for ; ; runs++ {
			r := toyRun(t, set...)
			err := grpo(context.Background(), r, o, hookKit(func(_ *toy, n int) {
				if n >= 1+2*runs {
					r.Stop()
				}
			}))
			if err == nil {
				break
			}
			if kindOf(err) != fail.Interrupted {
				t.Fatal(err)
			}
			if _, err := manifest.Open(o.Out); err == nil {
				t.Fatal("a stopped run is sealed")
			}
		}
		if runs < 3 {
			t.Errorf("stopped %d times only", runs)
		}
		sameCheckpoint(t, quiet, o.Out)
	}
}

// The context ends when the grace time is over: nothing is saved, nothing lost.
func TestCancelled(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 10, nil)
	quiet := mustGRPO(t, w, "quiet")
	o := w.options("out")
	ctx, cancel := context.WithCancel(context.Background())
	if err := grpo(ctx, toyRun(t), o, hookKit(func(_ *toy, n int) {
		if n == 12 {
			cancel()
		}
	})); kindOf(err) != fail.Interrupted {
		t.Fatal(err)
	}
	if err := grpo(context.Background(), toyRun(t), o, toyKit); err != nil {
		t.Fatal(err)
	}
	sameCheckpoint(t, quiet, o.Out)
}

// States in which the folder of an unfinished run can be found.
func TestDamagedStates(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 10, nil)
	quiet := mustGRPO(t, w, "quiet")
	state := func(dir string) string {
		names, _ := filepath.Glob(filepath.Join(dir, StateDir, "state-*"))
		return names[0]
	}
	for name, damage := range map[string]func(dir string) error{
		"nothing":    func(string) error { return nil },
		"truncated":  func(dir string) error { return os.Truncate(state(dir), 500) },
		"state gone": func(dir string) error { return os.Remove(state(dir)) },
		"cursor broken": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, StateDir, cursorName), []byte("{"), 0o666)
		},
		"cursor gone": func(dir string) error { return os.Remove(filepath.Join(dir, StateDir, cursorName)) },
		"bit flipped": func(dir string) error {
			b, err := os.ReadFile(state(dir))
			if err != nil {
				return err
			}
			b[len(b)-100] ^= 1
			return os.WriteFile(state(dir), b, 0o666)
		},
		"metrics short":    func(dir string) error { return os.Truncate(filepath.Join(dir, MetricsName), 10) },
		"metrics gone":     func(dir string) error { return os.Remove(filepath.Join(dir, MetricsName)) },
		"metrics too long": func(dir string) error { return appendTo(filepath.Join(dir, MetricsName), "{\"step\": 9") },
		"half a model": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "model.safetensors"), []byte("x"), 0o666)
		},
		"other layout": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "model-00001-of-00002.safetensors"), []byte("x"), 0o666)
		},
		"older state left": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, StateDir, "state-00000001.safetensors"), []byte("x"), 0o666)
		},
		"other run": func(dir string) error {
			path := filepath.Join(dir, StateDir, cursorName)
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			var c Cursor
			json.Unmarshal(text, &c)
			return os.WriteFile(path, []byte(strings.Replace(string(text), c.Run, strings.Repeat("0", 64), 1)), 0o666)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := w.options("damaged " + name)
			r := toyRun(t)
			err := grpo(context.Background(), r, o, hookKit(func(_ *toy, n int) {
				if n == 16 {
					r.Stop()
				}
			}))
			if kindOf(err) != fail.Interrupted {
				t.Fatal(err)
			}
			if err := damage(o.Out); err != nil {
				t.Fatal(err)
			}
			if err := grpo(context.Background(), toyRun(t), o, toyKit); err != nil {
				t.Fatal(err)
			}
			sameCheckpoint(t, quiet, o.Out)
		})
	}
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

// A changed recipe makes the folder stale; what it held is not mixed in.
func TestStaleCheckpointIsMadeAnew(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 6, nil)
	out := mustGRPO(t, w, "out")
	fresh := mustGRPO(t, w, "other", "grpo.updates=2")
	mustGRPO(t, w, "out", "grpo.updates=2")
	sameCheckpoint(t, fresh, out)
	r := toyRun(t, "grpo.updates=2")
	r.Fresh = true
	if err := grpo(context.Background(), r, w.options("out"), toyKit); err != nil {
		t.Fatal(err)
	}
	sameCheckpoint(t, fresh, out)
	// Stopped, then continued with another recipe.
	r = toyRun(t)
	o := w.options("third")
	if err := grpo(context.Background(), r, o, hookKit(func(_ *toy, n int) { r.Stop() })); kindOf(err) != fail.Interrupted {
		t.Fatal(err)
	}
	if err := grpo(context.Background(), toyRun(t, "grpo.updates=2"), o, toyKit); err != nil {
		t.Fatal(err)
	}
	sameCheckpoint(t, fresh, o.Out)
}

// A gradient that is no number costs its step; ten in a row end the run, and the
// policy that is left is the last good one.
func TestGradientThatIsNoNumber(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 10, nil)
	nan := func(from, to int) kit {
		return hookKit(func(m *toy, n int) { m.nan = func(n int) bool { return n >= from && n < to } })
	}
	o := w.options("some")
	if err := grpo(context.Background(), toyRun(t), o, nan(6, 8)); err != nil {
		t.Fatal(err)
	}
	skipped := 0
	for _, l := range lines(t, o.Out) {
		if l["skipped"].(bool) {
			skipped++
			if l["grad_norm"] != nil {
				t.Errorf("%v", l)
			}
		}
	}
	if c, err := readCursor(filepath.Join(o.Out, StateDir)); err != nil || skipped < 1 || c.Skipped != int64(skipped) || c.Updates != 6-c.Skipped {
		t.Errorf("%+v, %d lines, %v", c, skipped, err)
	}
	o = w.options("all")
	err := grpo(context.Background(), toyRun(t, "grpo.passes=5"), o, nan(10, 1e9))
	if kindOf(err) != fail.Bound || !strings.Contains(err.Error(), "10 steps in a row") {
		t.Errorf("%v", err)
	}
	if _, err := manifest.Open(o.Out); err == nil {
		t.Error("it is sealed")
	}
}

const childEnv = "SEARCHLOOP_TRAIN_CHILD" // "recipe|root|out|overrides", and "|next" for a second epoch after it

func TestMain(m *testing.M) {
	if child := os.Getenv(childEnv); child != "" {
		f := strings.Split(child, "|")
		r := job.NewRun("grpo", job.Flags{ProgressMode: "none", RecipePath: f[0], Set: strings.Split(f[3], " ")}, os.Stdout, os.Stderr)
		o := toyWorld{f[1]}.options(f[2])
		err := grpo(context.Background(), r, o, toyKit)
		if err == nil && len(f) > 4 {
			r = job.NewRun("grpo", r.Flags, os.Stdout, os.Stderr)
			o.Policy, o.Out = o.Out, o.Out+"-"+f[4]
			err = grpo(context.Background(), r, o, toyKit)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(fail.ExitCode(err))
	}
	os.Exit(m.Run())
}

var killSet = []string{"grpo.passes=8", "grpo.old_logprobs=recompute", "grpo.max_mismatch=0"}

// Killed at ten random moments and once between its epochs, and run again each
// time, a run of two epochs ends with the bytes of one that nobody disturbed.
func TestKillAtRandom(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 12, nil)
	quiet := mustGRPO(t, w, "quiet", killSet...)
	o := w.options("quiet-next")
	o.Policy = quiet
	if err := grpo(context.Background(), toyRun(t, killSet...), o, toyKit); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(w.root, "toy.yaml")
	if err := os.WriteFile(path, []byte(toyRecipe), 0o666); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// ended runs a child that is killed when the moment comes, and says whether it
	// came to its end before.
	ended := func(moment <-chan time.Time) bool {
		c := exec.Command(exe, "-test.run=^$")
		c.Env = append(os.Environ(), childEnv+"="+path+"|"+w.root+"|killed|"+strings.Join(killSet, " ")+"|next")
		if !testing.Verbose() {
			c.Stderr = os.Stderr
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- c.Wait() }()
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return true
		case <-moment:
			c.Process.Kill()
			<-done
			return false
		}
	}
	check := func() {
		sameCheckpoint(t, quiet, w.at("killed"))
		sameCheckpoint(t, o.Out, w.at("killed-next"))
	}
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	kills, boundary, most := 0, false, 20*time.Millisecond
	for began := time.Now(); kills < 10 || !boundary; {
		if kills >= 10 {
			boundary = !ended(sealed(w.at("killed")))
		} else if ended(time.After(time.Duration(rng.Int64N(int64(most))))) {
			check() // too quick for this machine: from the beginning
			for _, dir := range []string{"killed", "killed-next"} {
				if err := os.RemoveAll(w.at(dir)); err != nil {
					t.Fatal(err)
				}
			}
		} else {
			kills++
			most += 4 * time.Millisecond
		}
		if time.Since(began) > time.Minute {
			t.Fatal("it does not get anywhere")
		}
	}
	if !ended(nil) {
		t.Fatal("nobody killed it")
	}
	check()
}

// sealed fires when the dataset in dir is finished.
func sealed(dir string) <-chan time.Time {
	c := make(chan time.Time, 1)
	go func() {
		for {
			if _, err := os.Stat(manifest.Path(dir)); err == nil {
				c <- time.Now()
				return
			}
			time.Sleep(100 * time.Microsecond)
		}
	}()
	return c
}
