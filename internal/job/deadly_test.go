package job

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"searchloop/internal/journal"
	"searchloop/internal/manifest"
)

// deadlyToy makes rows side by side; some kill the process.
type deadlyToy struct {
	Flags
	Out    string
	Panics []string // rows that panic in their goroutine
	Aborts []string // rows that die as C code does
	Lost   bool     // the process is killed from outside at its fifth row
}

func (c *deadlyToy) Run(ctx context.Context, r *Run) error {
	d, err := r.Dataset(Spec{Dir: c.Out, Schema: "deadly", Version: 1, Ext: "jsonl"})
	if err != nil || d.Complete() {
		return err
	}
	if err := d.Each(func(s *Shard) error { return c.shard(ctx, s) }); err != nil {
		return err
	}
	return d.Seal(nil)
}

func (c *deadlyToy) shard(ctx context.Context, s *Shard) error {
	j, err := s.Journal()
	if err != nil {
		return err
	}
	samples, err := s.Samples(ctx, 4)
	if err != nil {
		return err
	}
	const rows = 12
	for i := range rows {
		if key := fmt.Sprintf("k%02d", i); !j.Has(key) {
			samples.Named(key, func(_ context.Context, deadly bool) error { return c.row(j, key, deadly) })
		}
	}
	if err := samples.Wait("make rows"); err != nil {
		return err
	}
	part, err := s.Part()
	if err != nil {
		return err
	}
	failed := int64(0)
	for i := range rows {
		text, _ := j.Get(fmt.Sprintf("k%02d", i))
		failed += int64(strings.Count(string(text), "failed"))
		fmt.Fprintf(part, "%s\n", text)
	}
	return s.Commit(rows, manifest.Counts{In: rows, OK: rows - failed, Failed: failed})
}

func (c *deadlyToy) row(j *journal.Journal, key string, deadly bool) error {
	if deadly {
		return j.Append(key, []byte(key+" failed"))
	}
	time.Sleep(20 * time.Millisecond) // so that others are in flight
	if slices.Contains(c.Panics, key) {
		panic(key)
	}
	if slices.Contains(c.Aborts, key) {
		syscall.Kill(os.Getpid(), syscall.SIGABRT)
		select {}
	}
	if c.Lost && key == "k04" {
		if err := os.WriteFile(c.Out+".lost", nil, 0o644); err != nil {
			return err
		}
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	return j.Append(key, []byte(key+" well"))
}

// F21: a sample that kills its process is found although others are in flight beside it,
// and left out at the third run; every other row is made. A second one is found
// after the first.
func TestF21DeadlySamples(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		runs int
		bad  string
	}{
		"a panic in a goroutine":  {[]string{"--panics=k05"}, 3, "k05"},
		"an abort as C code does": {[]string{"--aborts=k05"}, 3, "k05"},
		"two":                     {[]string{"--aborts=k05", "--panics=k06"}, 4, "k05 k06"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "out")
			args := append(c.args, "--out", out)
			for run := 1; ; run++ {
				p := start(t, []string{"SEARCHLOOP_TOY=deadly"}, args...)
				code := p.code()
				if run < c.runs && (code == 0 || code == 3) || run == c.runs && code != 0 {
					t.Fatalf("run %d: exit %d\n%s", run, code, p.stderr.String())
				}
				if run == c.runs {
					break
				}
			}
			text, err := os.ReadFile(filepath.Join(out, "part-00000-of-00001.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				key, fate, _ := strings.Cut(strings.TrimSpace(line), " ")
				if want := strings.Contains(c.bad, key); want != (fate == "failed") {
					t.Errorf("%s: %s", key, fate)
				}
			}
			if m, err := manifest.Open(out); err != nil || m.Counts.In != 12 || m.Counts.Failed != int64(len(strings.Fields(c.bad))) {
				t.Error(m, err)
			}
			if _, err := os.Stat(filepath.Join(out, ".work")); err == nil {
				t.Error("what was written of deaths is left over")
			}
		})
	}
}

// A process that is killed from outside says nothing of its samples, however often.
func TestKilledFromOutsideIsNoSamplesFault(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	for range 3 {
		if p := start(t, []string{"SEARCHLOOP_TOY=deadly"}, "--lost", "--out", out); p.code() != -1 {
			t.Fatal(p.stderr.String())
		}
	}
	if _, err := os.Stat(out + ".lost"); err != nil {
		t.Fatal(err)
	}
	p := start(t, []string{"SEARCHLOOP_TOY=deadly"}, "--out", out)
	if code := p.code(); code != 0 || strings.Contains(p.stderr.String(), "one by one") {
		t.Fatalf("exit %d\n%s", code, p.stderr.String())
	}
	if text, _ := os.ReadFile(filepath.Join(out, "part-00000-of-00001.jsonl")); strings.Contains(string(text), "failed") {
		t.Errorf("%s", text)
	}
}
