package job

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"searchloop/internal/manifest"
)

// The test binary is the toy job when the environment says so: signals, kills and
// locks are tried on real processes.
func TestMain(m *testing.M) {
	switch os.Getenv("SEARCHLOOP_TOY") {
	case "":
	case "deadly":
		Main("toy", "A toy whose rows kill it.", new(deadlyToy))
	default:
		Main("toy", "A toy.", new(toy))
	}
	os.Exit(m.Run())
}

type process struct {
	*osexec.Cmd
	stderr bytes.Buffer
	began  time.Time
}

func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	p := &process{Cmd: osexec.CommandContext(ctx, os.Args[0], args...), began: time.Now()}
	p.Env = append(append(os.Environ(), "SEARCHLOOP_TOY=1"), env...)
	p.Cmd.Stderr = &p.stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// code waits for the end; -1 means killed by a signal.
func (p *process) code() int {
	p.Wait()
	return p.ProcessState.ExitCode()
}

// journaled waits until the dataset's first journal holds more than n bytes.
func journaled(t *testing.T, out string, n int64) {
	t.Helper()
	for range 1000 {
		files, _ := filepath.Glob(filepath.Join(out, ".work", "*.journal"))
		for _, f := range files {
			if info, err := os.Stat(f); err == nil && info.Size() > n {
				return
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("nothing was journaled")
}

// hangs waits until the toy hangs in a row.
func hangs(t *testing.T, out string) {
	t.Helper()
	for range 1000 {
		if _, err := os.Stat(out + ".hangs"); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("the job never came to its row")
}

func TestTermEndsSoon(t *testing.T) {
	in, out := world(t)
	p := start(t, nil, "--in", in, "--out", out, "--sleep=100ms")
	journaled(t, out, 150)
	p.Process.Signal(syscall.SIGTERM)
	if code := p.code(); code != 75 {
		t.Fatalf("exit %d\n%s", code, p.stderr.String())
	}
	if s := summary(t, out+".summary.json"); s.Exit != 75 || !s.Resumable || s.Kind != "interrupted" {
		t.Errorf("%+v", s)
	}
	if c := mustRun(t, "--in", in, "--out", out); c.made == 0 || c.made == 10 {
		t.Errorf("made %d rows after the interruption", c.made)
	}
}

// A server that never answers cannot hold the job longer than the grace time.
func TestTermDuringAHang(t *testing.T) {
	for _, how := range []string{"--hang", "--deaf"} {
		in, out := world(t)
		p := start(t, nil, "--in", in, "--out", out, how, "--grace=600ms")
		hangs(t, out)
		at := time.Now()
		p.Process.Signal(syscall.SIGTERM)
		code := p.code()
		took := time.Since(at)
		if code != 75 || took < 350*time.Millisecond || took > 20*time.Second {
			t.Errorf("%s: exit %d after %v\n%s", how, code, took, p.stderr.String())
		}
		if s := summary(t, out+".summary.json"); s.Exit != 75 || !s.Resumable {
			t.Errorf("%s: %+v", how, s)
		}
	}
}

func TestSecondInterrupt(t *testing.T) {
	in, out := world(t)
	p := start(t, nil, "--in", in, "--out", out, "--deaf")
	hangs(t, out)
	p.Process.Signal(syscall.SIGINT)
	time.Sleep(20 * time.Millisecond)
	p.Process.Signal(syscall.SIGINT) // the same signal twice: from timeout(1) or a shell, not from a person
	time.Sleep(repeat + 100*time.Millisecond)
	at := time.Now()
	p.Process.Signal(syscall.SIGINT)
	if code, took := p.code(), time.Since(at); code != 130 || took > 20*time.Second {
		t.Fatalf("exit %d after %v\n%s", code, took, p.stderr.String())
	}
	if s := summary(t, out+".summary.json"); s.Exit != 130 || !s.Resumable {
		t.Errorf("%+v", s)
	}
}

func TestUsr1PrintsProgress(t *testing.T) {
	in, out := world(t)
	p := start(t, nil, "--in", in, "--out", out, "--sleep=60ms")
	journaled(t, out, 150)
	p.Process.Signal(syscall.SIGUSR1)
	if code := p.code(); code != 0 || !strings.Contains(p.stderr.String(), "/12 (") {
		t.Fatalf("exit %d\n%s", code, p.stderr.String())
	}
}

func TestTwoProcessesOneShard(t *testing.T) {
	in, out := world(t)
	gate := out + ".gate"
	first := start(t, nil, "--in", in, "--out", out, "--gate", gate)
	journaled(t, out, 50)
	second := start(t, nil, "--in", in, "--out", out)
	waiting := start(t, nil, "--in", in, "--out", out, "--wait")
	if code := second.code(); code != 0 || !strings.Contains(second.stderr.String(), "shard is held by ") {
		t.Fatalf("second: exit %d\n%s", code, second.stderr.String())
	}
	if _, err := manifest.Open(out); err == nil {
		t.Fatal("the second process did not leave while the first was at work")
	}
	time.Sleep(100 * time.Millisecond) // so that the waiting one waits, if the machine is not too busy
	os.WriteFile(gate, nil, 0o644)
	if code := first.code(); code != 0 {
		t.Fatalf("first: exit %d\n%s", code, first.stderr.String())
	}
	if code := waiting.code(); code != 0 || strings.Contains(waiting.stderr.String(), "rows 12/12") {
		t.Fatalf("waiting: exit %d\n%s", code, waiting.stderr.String())
	}
	_, quiet := world(t)
	mustRun(t, "--in", in, "--out", quiet)
	sameTree(t, tree(t, quiet), tree(t, out))
}

// SIGKILL at any moment costs at most what is in flight, and the end is the same.
func TestKill(t *testing.T) {
	in, quiet := world(t)
	mustRun(t, "--in", in, "--out", quiet, "--shards=2", "--rows=60")
	want := tree(t, quiet)
	rng := rand.New(rand.NewPCG(7, 7))
	for range 3 {
		_, out := world(t)
		kills := 0
		for {
			p := start(t, nil, "--in", in, "--out", out, "--shards=2", "--rows=60", "--sleep=2ms")
			ended := make(chan struct{})
			go killAfter(p, out, journals(out)+rng.Int64N(500), ended)
			code := p.code()
			close(ended)
			if code == 0 {
				break
			}
			if code != -1 {
				t.Fatalf("exit %d\n%s", code, p.stderr.String())
			}
			if kills++; kills > 60 {
				t.Fatal("no progress between kills")
			}
		}
		if kills == 0 {
			t.Log("this round was never killed in time")
		}
		sameTree(t, want, tree(t, out))
	}
}

// journals is the size of all journals of a dataset.
func journals(out string) (n int64) {
	files, _ := filepath.Glob(filepath.Join(out, ".work", "*.journal"))
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			n += info.Size()
		}
	}
	return n
}

// killAfter kills the process as soon as its journals hold more than n bytes.
func killAfter(p *process, out string, n int64, ended <-chan struct{}) {
	for journals(out) <= n {
		select {
		case <-ended:
			return
		case <-time.After(time.Millisecond):
		}
	}
	p.Process.Kill()
}
