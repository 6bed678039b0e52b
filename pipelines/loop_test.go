// Package pipelines tests the loop as a user runs it: make, the built jobs, and
// a small recipe on a small world.
package pipelines

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
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

// TestMain takes the jobs of bin/ when make finds them up to date, and builds them
// otherwise.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("6") // most tests wait: for disks, servers, the clock
	}
	if exec.Command("make", "-C", "..", "-q", "build").Run() == nil {
		binaries, _ = filepath.Abs("../bin")
		os.Exit(run(m))
	}
	dir, err := os.MkdirTemp("", "searchloop-bin-")
	if err != nil {
		panic(err)
	}
	build := exec.Command("go", "build", "-tags=nodynamic", "-ldflags=-s -w", "-o", dir+"/", "./jobs/...")
	build.Dir = ".."
	build.Env = append(os.Environ(), "GOEXPERIMENT=simd", "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "the jobs do not build:", err)
		os.Exit(1)
	}
	binaries = dir
	code := run(m)
	os.RemoveAll(dir)
	os.Exit(code)
}

func run(m *testing.M) int {
	code := m.Run()
	os.RemoveAll(finished())
	return code
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
	for _, sub := range []string{"pipelines", "pipelines/recipes", "pipelines/benchmarks", "bin"} {
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

// killInside makes a dataset and kills everything, make included, when the job
// that writes it has been alive for the given time. It reports whether the job was
// caught: alive, and its dataset not finished.
func (p place) killInside(job, out string, after time.Duration) bool {
	p.t.Helper()
	var text bytes.Buffer
	cmd := p.make(out + "/manifest.json")
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case err := <-done:
			if err != nil {
				p.t.Fatalf("make failed on the way to %s: %v\n%s", out, err, text.String())
			}
			return false
		case <-time.After(2 * time.Millisecond):
		}
		if running(cmd.Process.Pid, job, out) {
			time.Sleep(after)
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-done
			_, err := os.Stat(filepath.Join(p.dir, out, "manifest.json"))
			return err != nil
		}
	}
}

// running says whether a process of the group runs bin/job for the folder out.
func running(group int, job, out string) bool {
	procs, _ := os.ReadDir("/proc")
	for _, f := range procs {
		pid, err := strconv.Atoi(f.Name())
		if err != nil || pid <= group {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", f.Name(), "cmdline"))
		if err != nil || !bytes.HasPrefix(line, []byte("bin/"+job+"\x00")) || !bytes.Contains(line, []byte("\x00--out\x00"+out+"\x00")) {
			continue
		}
		if g, err := syscall.Getpgid(pid); err == nil && g == group {
			return true
		}
	}
	return false
}

// data lists every data file below data/ and runs/ with its digest. Manifests hold
// times, so they are compared by what they say of their data. What tells the time
// or names absolute paths is left out.
func (p place) data() map[string]string {
	p.t.Helper()
	out := map[string]string{}
	for _, top := range []string{"data", "runs"} {
		err := filepath.WalkDir(filepath.Join(p.dir, top), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && strings.HasSuffix(path, ".launch") {
				return fs.SkipDir // of a launcher that was killed after its dataset was sealed
			}
			if err != nil || d.IsDir() {
				return err
			}
			name, _ := filepath.Rel(p.dir, path)
			base := d.Name()
			if strings.HasSuffix(base, "summary.json") || strings.Contains(base, ".summary-") || strings.HasPrefix(base, "timings") || base == "lens_cached_data.jsonl" && top == "data" && !strings.HasPrefix(name, "data/world") {
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

// parts is what a manifest says of its origin and its parts; side parts may hold
// timings.
func parts(t *testing.T, text []byte) []byte {
	var m struct {
		Spec  string
		Parts []struct {
			Name   string
			Rows   int64
			SHA256 string
			Side   bool
		}
	}
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	fmt.Fprintln(&b, m.Spec)
	for _, p := range m.Parts {
		if p.Side {
			p.SHA256 = ""
		}
		fmt.Fprintln(&b, p.Name, p.Rows, p.SHA256)
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

// chain is every job once or more, in an order in which make can ask for their
// datasets.
var chain = []struct{ job, out string }{
	{"world", "data/world"},
	{"prep", "data/questions/demo-train"},
	{"lens", "data/lens/demo-train"},
	{"prep", "data/corpora/demo/text/passages"},
	{"encoder", "data/corpora/demo/encoder"},
	{"embed", "data/corpora/demo/text/vectors"},
	{"index", "data/corpora/demo/text/index"},
	{"rollout", "runs/mini/epoch-0/rollouts"},
	{"policy", "runs/mini/base"},
	{"sft", "runs/mini/epoch-0/checkpoint"},
	{"rollout", "runs/mini/epoch-1/rollouts"},
	{"judge", "runs/mini/epoch-1/judged"},
	{"grpo", "runs/mini/epoch-1/checkpoint"},
	{"evaluate", "runs/mini/evals/demo/epoch-1"},
}

// seconds is how long the job that made a dataset took.
func (p place) seconds(out string) float64 {
	var s struct{ Seconds float64 }
	text, err := os.ReadFile(filepath.Join(p.dir, out+".summary.json"))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return s.Seconds
}

// Every job is killed up to three times, early, in the middle and late, each time
// going on from what the last kill left.
func TestKillingAnyJobChangesNothing(t *testing.T) {
	t.Parallel()
	quiet := newPlace(t)
	quiet.run("loop", "EPOCH=1")

	rough := newPlace(t)
	rng := rand.New(rand.NewPCG(1, 2))
	caught := 0
	for _, c := range chain {
		kills, took := 0, quiet.seconds(c.out)
		for try := 0; try < 3; try++ {
			at := (float64(try) + rng.Float64()) / 3 * took
			if kills == 0 && try == 2 {
				at = 0 // it was over twice: now or never
			}
			if rough.killInside(c.job, c.out, time.Duration(at*float64(time.Second))) {
				kills++
				continue
			}
			if kills > 0 {
				break
			}
			if err := os.RemoveAll(filepath.Join(rough.dir, c.out)); err != nil { // over before it could be killed: once more
				t.Fatal(err)
			}
		}
		if kills == 0 {
			t.Errorf("%s for %s could not be caught alive", c.job, c.out)
		}
		caught += kills
	}
	t.Logf("%d kills in %d jobs", caught, len(chain))
	rough.run("loop", "EPOCH=1")
	compare(t, quiet.data(), rough.data())
}

func TestNothingToDoRunsNoJob(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.run("loop", "EPOCH=1")
	if out := p.run("loop", "EPOCH=1"); strings.Contains(out, "bin/") {
		t.Errorf("a second make ran jobs:\n%s", out)
	}
	if out := p.run("-n", "loop", "EPOCH=1"); strings.Contains(out, "bin/") {
		t.Errorf("make -n would run jobs:\n%s", out)
	}
	if out := p.run("plan", "EPOCH=1"); !strings.Contains(out, "nothing to do") {
		t.Errorf("the plan of a finished run:\n%s", out)
	}

	// Pruned: what went is not made again, and jobs that look find it right.
	p.run("prune", "KEEP_LAST=1", "KEEP_BEST=0")
	if found, _ := filepath.Glob(filepath.Join(p.dir, "runs/mini/epoch-*/checkpoint/trainer/state-*")); len(found) != 1 {
		t.Errorf("states left: %v", found)
	}
	if out := p.run("-n", "loop", "EPOCH=1"); strings.Contains(out, "bin/") {
		t.Errorf("make -n after pruning would run jobs:\n%s", out)
	}

	// Touched but equal: jobs may look, nothing may change, and the next make is quiet.
	before := p.data()
	now := time.Now()
	if err := os.Chtimes(filepath.Join(p.dir, "data/world/train.parquet"), now, now); err != nil {
		t.Fatal(err)
	}
	p.run("loop", "EPOCH=1")
	compare(t, before, p.data())
	if out := p.run("loop", "EPOCH=1"); strings.Contains(out, "bin/") {
		t.Errorf("make after an equal input still ran jobs:\n%s", out)
	}
}

func TestChangedInputRebuildsWhatDependsOnIt(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	one, many := newPlace(t), newPlace(t)
	one.run("loop", "EPOCH=1", "SHARDS=2")
	many.run("-j4", "loop", "EPOCH=1", "SHARDS=2", "FOLLOW=1")
	compare(t, one.data(), many.data())
}
