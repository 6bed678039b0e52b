// Package pipelines tests the loop as a user runs it: make, the built jobs, and
// a small recipe on a small world.
package pipelines

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mini is the demo made so small that an epoch takes a second.
const mini = `extends: demo
name: mini
model: {hidden: 32, layers: 1, heads: 2, kv_heads: 2, head_dim: 16, intermediate: 64, vision_hidden: 16}
sft: {epochs: 1}
rollout: {questions: 6}
sampling:
  train: {n: 4, temperature: 1, top_p: 1, top_k: 0}
protocol: {response_tokens: 256, turn_tokens: 48}
`

var binaries string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "searchloop-bin-")
	if err != nil {
		panic(err)
	}
	build := exec.Command("go", "build", "-o", dir+"/", "./jobs/...")
	build.Dir = ".."
	build.Env = append(os.Environ(), "GOEXPERIMENT=simd", "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "the jobs do not build:", err)
		os.Exit(1)
	}
	binaries = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// place is a folder that looks like the project to make, with data and runs of
// its own.
type place struct {
	t   *testing.T
	dir string
}

func newPlace(t *testing.T) place {
	t.Helper()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("make is not installed")
	}
	dir := t.TempDir()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Makefile", "go.mod", "go.sum"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	// A folder of links, so that a mini recipe can stand beside the real ones.
	for _, sub := range []string{"pipelines", "pipelines/recipes", "bin"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
		from := filepath.Join(root, sub)
		if sub == "bin" {
			from = binaries
		}
		entries, err := os.ReadDir(from)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !e.IsDir() {
				if err := os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, sub, e.Name())); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	write(t, filepath.Join(dir, "pipelines/recipes/mini.yaml"), mini)
	write(t, filepath.Join(dir, "bin/.built"), "")
	return place{t, dir}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// make is a make command in a process group of its own.
func (p place) make(args ...string) *exec.Cmd {
	cmd := exec.Command("make", append([]string{"RECIPE=mini", "RUN=mini", "WORLD_FLAGS=--train 12 --test 4 --test-questions 20 --train-questions 100"}, args...)...)
	cmd.Dir = p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "MAKE") }), "JOBFLAGS=--progress none")
	return cmd
}

// run runs make to its end and returns what it printed.
func (p place) run(args ...string) string {
	p.t.Helper()
	var out bytes.Buffer
	cmd := p.make(args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		p.t.Fatalf("make %s: %v\n%s", strings.Join(args, " "), err, out.String())
	}
	return out.String()
}

// killWhenRunning runs make until a job of that name has been alive for a random
// moment and then kills everything. It reports whether the job was caught.
func (p place) killWhenRunning(job string, rng *rand.Rand, args ...string) bool {
	p.t.Helper()
	cmd := p.make(args...)
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case err := <-done:
			if err != nil {
				p.t.Fatalf("make failed while waiting for %s: %v", job, err)
			}
			return false
		case <-time.After(time.Millisecond):
		}
		if running(cmd.Process.Pid, job) {
			time.Sleep(time.Duration(rng.IntN(120)) * time.Millisecond)
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-done
			return true
		}
	}
}

// running says whether a process of the group runs bin/job.
func running(group int, job string) bool {
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range procs {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		line, err := os.ReadFile(f)
		if err != nil || !bytes.HasPrefix(line, []byte("bin/"+job+"\x00")) {
			continue
		}
		if g, err := syscall.Getpgid(pid); err == nil && g == group {
			return true
		}
	}
	return false
}

// data lists every data file below data/ and runs/ with its digest. Manifests
// hold times and summaries hold durations, so manifests are compared by what
// they say of their parts and summaries not at all.
func (p place) data() map[string]string {
	p.t.Helper()
	out := map[string]string{}
	for _, top := range []string{"data", "runs"} {
		err := filepath.WalkDir(filepath.Join(p.dir, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			name, _ := filepath.Rel(p.dir, path)
			base := d.Name()
			if strings.HasSuffix(base, ".summary.json") || strings.HasPrefix(base, "timings-") || strings.HasSuffix(base, ".lock") {
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if strings.HasPrefix(base, "part-") && strings.HasSuffix(base, ".json") || base == "manifest.json" {
				text = parts(p.t, text)
			}
			out[name] = fmt.Sprintf("%x", sha256.Sum256(text))
			return nil
		})
		if err != nil {
			p.t.Fatal(err)
		}
	}
	return out
}

// parts is what a manifest says of its data parts.
func parts(t *testing.T, text []byte) []byte {
	var m struct {
		Schema string
		Parts  []struct {
			Name   string
			Rows   int64
			SHA256 string
		}
	}
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, p := range m.Parts {
		if !strings.HasPrefix(p.Name, "timings-") {
			fmt.Fprintln(&b, p.Name, p.Rows, p.SHA256)
		}
	}
	return b.Bytes()
}

func compare(t *testing.T, quiet, other map[string]string) {
	t.Helper()
	for name, sum := range quiet {
		switch got, ok := other[name]; {
		case !ok:
			t.Errorf("%s is missing", name)
		case got != sum:
			t.Errorf("%s differs", name)
		}
	}
	for name := range other {
		if _, ok := quiet[name]; !ok {
			t.Errorf("%s is left over", name)
		}
	}
}

func TestKillingAnyJobChangesNothing(t *testing.T) {
	quiet := newPlace(t)
	quiet.run("loop", "EPOCH=1")
	want := quiet.data()

	rough := newPlace(t)
	rng := rand.New(rand.NewPCG(1, 2))
	jobs := []string{"world", "prep", "lens", "encoder", "embed", "index", "rollout", "policy", "sft", "rollout", "judge", "grpo", "rollout", "evaluate"}
	for _, job := range jobs {
		if !rough.killWhenRunning(job, rng, "loop", "EPOCH=1") {
			t.Logf("%s was over before it could be killed", job)
		}
	}
	rough.run("loop", "EPOCH=1")
	compare(t, want, rough.data())
}

func TestNothingToDoRunsNoJob(t *testing.T) {
	p := newPlace(t)
	p.run("loop", "EPOCH=1")
	if out := p.run("loop", "EPOCH=1"); strings.Contains(out, "bin/") {
		t.Errorf("a second make ran jobs:\n%s", out)
	}

	// Touched but equal: jobs may look, nothing may change, and the next make is quiet.
	before := p.data()
	now := time.Now().Add(time.Second)
	if err := os.Chtimes(filepath.Join(p.dir, "data/world/manifest.json"), now, now); err != nil {
		t.Fatal(err)
	}
	p.run("loop", "EPOCH=1")
	compare(t, before, p.data())
	if out := p.run("loop", "EPOCH=1"); strings.Contains(out, "bin/") {
		t.Errorf("make after an equal input still ran jobs:\n%s", out)
	}
}

func TestChangedInputRebuildsWhatDependsOnIt(t *testing.T) {
	p := newPlace(t)
	p.run("index", "data")
	passages := filepath.Join(p.dir, "data/world/passages.jsonl")
	text, err := os.ReadFile(passages)
	if err != nil {
		t.Fatal(err)
	}
	write(t, passages, strings.Replace(string(text), "Trade goes to", "Trade moves to", 1))
	out := p.run("index", "data")
	for _, must := range []string{"text/passages", "text/vectors", "text/index"} {
		if !strings.Contains(out, must) {
			t.Errorf("%s was not rebuilt", must)
		}
	}
	for _, mustNot := range []string{"bin/lens", "data/questions", "bin/world"} {
		if strings.Contains(out, mustNot) {
			t.Errorf("%s ran, though nothing it depends on changed:\n%s", mustNot, out)
		}
	}
}

func TestParallelMakeEndsWithTheSameData(t *testing.T) {
	one, many := newPlace(t), newPlace(t)
	one.run("loop", "EPOCH=1", "SHARDS=2")
	many.run("-j4", "loop", "EPOCH=1", "SHARDS=2")
	compare(t, one.data(), many.data())
}
