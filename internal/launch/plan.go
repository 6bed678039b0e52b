package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/shard"
)

// state is what the job says of its dataset.
type state struct {
	out      string
	n        int
	complete bool
	missing  []int
}

// ask has the job look at its dataset. A job that refuses does so in its own words
// on stderr.
func (s *Stage) ask(ctx context.Context, flags ...string) (state, error) {
	var out, errs bytes.Buffer
	cmd := s.process(ctx, append([]string{"--dry-run", "--json", "--trust", "--progress", "none"}, flags...)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return state{}, s.refused(ctx, err, lastLine(errs.Bytes()))
	}
	return s.read(out.Bytes())
}

// read takes a plan apart, as --dry-run --json prints it.
func (s *Stage) read(text []byte) (state, error) {
	var plans []job.Plan
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&plans); err != nil {
		return state{}, fail.WithHint(fail.New(fail.Usage, "plan "+s.Job, "", "its --dry-run --json prints no plan: %v", err), "only jobs that make a dataset can be launched")
	}
	if len(plans) != 1 || plans[0].Dataset == "" {
		return state{}, fail.New(fail.Usage, "plan "+s.Job, "", "it makes %d datasets; one that makes one can be launched", len(plans))
	}
	p := plans[0]
	st := state{out: p.Dataset, n: max(1, len(p.Shards)), complete: p.Complete}
	for _, sh := range p.Shards {
		spec, err := shard.Parse(sh.Shard)
		if err != nil {
			return state{}, fail.Wrap(fail.Bug, "plan "+s.Job, "", err)
		}
		st.n = spec.N
		if sh.State != "done" && !p.Complete {
			st.missing = append(st.missing, spec.I)
		}
	}
	return st, nil
}

// Process is a process of the command with further arguments. A signal to this
// process's group is not one to it; it is told to end when ctx ends or when this
// process is killed, and has a minute then. The thread that starts it must live as long:
// the kernel takes its end for the parent's.
func Process(ctx context.Context, command []string, more ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, command[0], append(slices.Clone(command[1:]), more...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	return cmd
}

// process is the job's process with further flags.
func (s *Stage) process(ctx context.Context, flags ...string) *exec.Cmd {
	cmd := Process(ctx, s.Command, flags...)
	// Whatever array task this process itself may be, the job is another.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "SLURM_ARRAY_") || strings.HasPrefix(v, "JOB_COMPLETION_INDEX=")
	})
	return cmd
}

// refused is the error of a job that did not end well.
func (s *Stage) refused(ctx context.Context, err error, last string) error {
	if ctx.Err() != nil {
		return Interrupted()
	}
	code, ok := exited(err)
	if !ok {
		return fail.WithHint(fail.Wrap(fail.Usage, "start", s.Command[0], err), "build it first: make build")
	}
	kind, _ := fail.OfExit(code)
	return fail.New(kind, s.Job, "", "%s", strings.TrimPrefix(last, s.Job+": "))
}

// exited is the exit code of a process that ran; -1 when a signal killed it.
func exited(err error) (int, bool) {
	if err == nil {
		return 0, true
	}
	if e, ok := err.(*exec.ExitError); ok {
		return e.ExitCode(), true
	}
	return 0, false
}

// direct runs the job in the foreground: it finds its shards made, finishes the
// dataset if nobody has, and ends with the code that is the stage's.
func (s *Stage) direct(ctx context.Context, flags ...string) error {
	cmd := s.process(ctx, flags...)
	var last tail
	cmd.Stdout, cmd.Stderr = os.Stdout, &last
	if err := cmd.Run(); err != nil {
		return s.refused(ctx, err, lastLine(last.text))
	}
	return nil
}

// tail passes on to stderr and keeps the end.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if len(t.text) > 1<<16 {
		t.text = slices.Clone(t.text[len(t.text)-1<<14:])
	}
	return os.Stderr.Write(p)
}

func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// take removes flags from the command that are for the launcher to carry out, and
// says which of them were there.
func (s *Stage) take(names ...string) map[string]bool {
	found := map[string]bool{}
	s.Command = slices.DeleteFunc(slices.Clone(s.Command), func(a string) bool {
		name := strings.TrimLeft(a, "-")
		if a != name && slices.Contains(names, name) {
			found[name] = true
		}
		return a != name && slices.Contains(names, name)
	})
	return found
}

// group puts missing shards into tasks. When a task makes one shard, it has the
// shard's number.
func group(missing []int, each int) shard.List {
	list := shard.List{}
	if each <= 1 {
		for _, i := range missing {
			list[i] = shard.Set{i}
		}
		return list
	}
	for t := 0; len(missing) > 0; t++ {
		k := min(each, len(missing))
		list[t], missing = shard.Set(missing[:k:k]), missing[k:]
	}
	return list
}

// each is how many shards a task makes: what the recipe says, or so many that every
// place gets two tasks one after the other. Fewer would let the slowest task
// keep all others waiting, more would be spent on starting them.
func each(missing, room, said int) int {
	switch {
	case said > 0:
		return said
	case room <= 0:
		return 1
	}
	return max(1, (missing+2*room-1)/(2*room))
}

func numbers(list []int, n int) string {
	return shard.Ranges(list) + " of " + strconv.Itoa(n)
}

// Planned asks the job which shards are missing and puts them into tasks, as Make
// does before it runs them, for the benchmark of that; it returns how many shards
// there are to make.
func Planned(ctx context.Context, s Stage) (int, error) {
	st, err := s.ask(ctx)
	if err != nil {
		return 0, err
	}
	group(st.missing, each(len(st.missing), 64, s.Needs.Shards)).Text(st.n)
	return len(st.missing), nil
}
