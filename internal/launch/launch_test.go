package launch

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
	"searchloop/internal/shard"
)

// toy makes a part of one line. It can lose its process, or show its part late, as a
// network file system does.
type toy struct {
	job.Flags
	Out   string
	Die   int           `default:"-1"` // shard that is killed once
	Dies  int           `default:"-1"` // shard that is killed each time
	Late  time.Duration // the part is seen only so long after its manifest
	Never bool          // or not at all
}

func (c *toy) Run(_ context.Context, r *job.Run) error {
	d, err := r.Dataset(job.Spec{Dir: c.Out, Schema: "toy", Version: 1, Ext: "jsonl"})
	if err != nil || d.Complete() || d.DryRun() {
		return err
	}
	err = d.Each(func(s *job.Shard) error {
		if mark := c.Out + ".died"; s.Shard.I == c.Die {
			if _, err := os.Stat(mark); err != nil {
				os.WriteFile(mark, nil, 0o644)
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
		if s.Shard.I == c.Dies {
			fmt.Fprintln(os.Stderr, "about to die")
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		w, err := s.Part()
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "{\"shard\": %d}\n", s.Shard.I)
		return s.Commit(1, manifest.Counts{In: 1, OK: 1})
	})
	if err != nil {
		return err
	}
	if c.Late > 0 || c.Never {
		hidden, part := c.Out+".hidden", filepath.Join(c.Out, shard.Spec{I: 0, N: 1}.Name("part", "jsonl"))
		if err := os.Rename(part, hidden); err != nil {
			return err
		}
		if !c.Never {
			exec.Command("sh", "-c", fmt.Sprintf("sleep %v; mv '%s' '%s'", c.Late.Seconds(), hidden, part)).Start()
		}
		return nil
	}
	return d.Seal(nil)
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "toy" {
		os.Exit(job.Exec("toy", "a toy", &toy{}, os.Args[2:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func local(t *testing.T, cpus int, needs recipe.Task, opt Options, flags ...string) (out string, err error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out = filepath.Join(t.TempDir(), "out")
	return out, again(t, job.Testing(t), exe, out, cpus, needs, opt, flags...)
}

// again launches toy for the dataset in out.
func again(t *testing.T, r *job.Run, exe, out string, cpus int, needs recipe.Task, opt Options, flags ...string) error {
	t.Helper()
	slots, err := OpenSlots(t.TempDir(), cpus, 100, nil)
	if err != nil {
		t.Fatal(err)
	}
	if opt.Attempts == 0 {
		opt.Attempts = 3
	}
	s := Stage{Job: "toy", Command: append([]string{exe, "toy", "--out", out}, flags...), Needs: needs}
	return Make(t.Context(), r, s, NewLocal(slots), opt)
}

// A plan of starting over is one of all shards, also when they are all made.
func TestPlanOfAFreshStart(t *testing.T) {
	needs := recipe.Task{CPUs: 2, Shards: 1}
	out, err := local(t, 4, needs, Options{}, "--shards", "3")
	if err != nil {
		t.Fatal(err)
	}
	exe, _ := os.Executable()
	for flag, want := range map[string]string{"": "", "--fresh": "3 processes of 2 CPUs"} {
		r := job.Testing(t)
		var said bytes.Buffer
		r.Out = &said
		flags := append([]string{"--shards", "3", "--dry-run"}, strings.Fields(flag)...)
		if err := again(t, r, exe, out, 4, needs, Options{}, flags...); err != nil || !strings.Contains(said.String(), want) || want == "" && said.Len() > 0 {
			t.Errorf("%q: %v %q", flag, err, said.String())
		}
	}
}

func TestAPoolMakesTheDataset(t *testing.T) {
	out, err := local(t, 4, recipe.Task{CPUs: 2, Shards: 2}, Options{}, "--shards", "9", "--die", "4")
	if err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Open(out)
	if err != nil || m.Rows() != 9 || len(m.Data()) != 9 || m.Verify(out) != nil {
		t.Fatal(m, err)
	}
	if _, err := os.Stat(Dir(out)); err == nil {
		t.Error("the launch folder is left over")
	}
}

// What a launcher left that was killed after its dataset was sealed is gone after the
// next.
func TestLeftOversOfAKilledLauncher(t *testing.T) {
	needs := recipe.Task{CPUs: 2}
	out, err := local(t, 4, needs, Options{}, "--shards", "2")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(Logs(out), 0o755); err != nil {
		t.Fatal(err)
	}
	exe, _ := os.Executable()
	if err := again(t, job.Testing(t), exe, out, 4, needs, Options{}, "--shards", "2"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(Dir(out)); err == nil {
		t.Error("the launch folder is left over")
	}
}

// F21: a shard that kills its process each time is named after three tries, and all
// others are made.
func TestF21PoisonIsNamed(t *testing.T) {
	out, err := local(t, 4, recipe.Task{CPUs: 2, Shards: 1}, Options{}, "--shards", "5", "--dies", "3")
	if fail.KindOf(err) != fail.Bug || !strings.Contains(err.Error(), "shards 3 of 5 are missing") || !strings.Contains(err.Error(), "failed 3 times") || !strings.Contains(err.Error(), "about to die") {
		t.Fatal(err)
	}
	if made, _ := filepath.Glob(filepath.Join(out, "part-*.jsonl")); len(made) != 4 {
		t.Error(made)
	}
}

// F34: a done marker that is visible before its data.
func TestFilesThatComeLate(t *testing.T) {
	if _, err := local(t, 2, recipe.Task{}, Options{Latency: 20 * time.Second}, "--late", "3s"); err != nil {
		t.Errorf("three seconds late: %v", err)
	}
	_, err := local(t, 2, recipe.Task{}, Options{Latency: time.Second}, "--never")
	if fail.KindOf(err) != fail.Service || !strings.Contains(err.Error(), "part-00000-of-00001.jsonl") {
		t.Errorf("never: %v", err)
	}
}

// Launchers of a machine share it: never more than it has, and no GPU twice.
func TestSlotsAreShared(t *testing.T) {
	dir := t.TempDir()
	var inUse, most, twice atomic.Int64
	var held sync.Map
	var wg sync.WaitGroup
	for range 3 { // launchers
		s, err := OpenSlots(dir, 4, 10, []string{"0", "1"})
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			wg.Go(func() {
				c, err := s.take(t.Context(), recipe.Task{CPUs: 2, MemoryGB: 1, GPUs: 1})
				if err != nil {
					t.Error(err)
					return
				}
				n := inUse.Add(1)
				for most.Load() < n && !most.CompareAndSwap(most.Load(), n) {
				}
				if _, there := held.LoadOrStore(c.GPUs[0], true); there {
					twice.Add(1)
				}
				time.Sleep(20 * time.Millisecond)
				held.Delete(c.GPUs[0])
				inUse.Add(-1)
				c.free()
			})
		}
	}
	wg.Wait()
	if most.Load() > 2 || twice.Load() > 0 {
		t.Errorf("%d at once, a GPU was given twice %d times", most.Load(), twice.Load())
	}
	s, _ := OpenSlots(dir, 4, 10, nil)
	if _, err := s.room(recipe.Task{CPUs: 5}); fail.KindOf(err) != fail.Usage {
		t.Error(err)
	}
	// What a killed launcher held is free.
	if err := os.WriteFile(filepath.Join(dir, "1-x.slot"), []byte(`{"CPUs":4}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := s.try(recipe.Task{CPUs: 4}); c == nil || err != nil {
		t.Error(c, err)
	}
}

func TestGroups(t *testing.T) {
	missing := []int{1, 3, 4, 5, 9}
	if l := group(missing, 1); len(l) != 5 || l[9].String() != "9" {
		t.Error(l)
	}
	if l := group(missing, 2); len(l) != 3 || l[0].String() != "1,3" || l[1].String() != "4-5" || l[2].String() != "9" {
		t.Error(l)
	}
	for _, c := range []struct{ missing, room, said, want int }{{64, 2, 0, 16}, {64, 0, 0, 1}, {3, 10, 0, 1}, {64, 2, 5, 5}} {
		if got := each(c.missing, c.room, c.said); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
