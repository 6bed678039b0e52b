// Package sandbox runs a program that strangers wrote where it can reach nothing:
// in bubblewrap, without network, with a read-only view of the system's programs and
// libraries, a small folder of its own, and limits on processor time, memory,
// processes, output and time. Code goes in; what it printed comes out.
//
// Without bubblewrap, or where the system forbids user namespaces, there is no
// sandbox, and nothing is run. The package restricts no system call beyond what
// namespaces and dropped capabilities do.
package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"searchloop/internal/fail"
)

// Limits of one run.
const (
	Seconds   = 30       // from start to end, and of processor time
	Memory    = 1 << 30  // address space of a process, in bytes
	Processes = 64       // and threads
	Space     = 64 << 20 // of the folder of its own, in bytes
	MaxOutput = 64 << 10 // bytes kept of what it prints
)

// Python runs Python programs. Safe for concurrent use; as many run at once as
// there are processors.
type Python struct {
	bwrap   string
	args    []string
	slots   chan struct{}
	seconds int
}

// Output is what a program did.
type Output struct {
	Text     string // stdout and stderr as they came, at most MaxOutput bytes
	Exit     int    // exit status; 128 + signal for one that was killed
	TimedOut bool
	Cut      bool // it printed more than Text holds
}

const hint = "install bubblewrap (bwrap) and python3, and allow unprivileged user namespaces"

// OpenPython finds bubblewrap and an interpreter and tries them. An error is of kind
// Usage: there is no sandbox here, and it says why.
func OpenPython(ctx context.Context) (*Python, error) {
	missing := func(format string, args ...any) (*Python, error) {
		return nil, fail.WithHint(fail.New(fail.Usage, "open sandbox", "", format, args...), hint)
	}
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		return missing("bubblewrap is not installed")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		return missing("python3 is not installed")
	}
	// The interpreter itself, not a shim, and where its library lies.
	out, err := exec.CommandContext(ctx, python, "-I", "-c", "import sys; print(sys.executable); print(sys.base_prefix)").Output()
	interpreter, prefix, ok := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil || !ok || !filepath.IsAbs(interpreter) {
		return missing("python3 does not say where it is")
	}
	p := &Python{bwrap: bwrap, args: arguments(interpreter, prefix), slots: make(chan struct{}, runtime.NumCPU()), seconds: Seconds}
	o, err := p.Run(ctx, "print(6*7)")
	if err != nil {
		return nil, err
	}
	if o.Exit != 0 || strings.TrimSpace(o.Text) != "42" {
		first, _, _ := strings.Cut(strings.TrimSpace(o.Text), "\n")
		return missing("bubblewrap does not run here: %s", first)
	}
	return p, nil
}

// system are the folders of programs and libraries.
var system = []string{"/usr", "/bin", "/lib", "/lib64", "/lib32", "/etc/ld.so.cache", "/etc/alternatives"}

// arguments put the interpreter into a world of its own.
func arguments(interpreter, prefix string) []string {
	args := []string{"--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--uid", "65534", "--gid", "65534", "--hostname", "sandbox", "--clearenv"}
	for _, kv := range [][2]string{{"PATH", "/usr/bin:/bin"}, {"HOME", "/tmp"}, {"LANG", "C.UTF-8"}, {"PYTHONHASHSEED", "0"}} {
		args = append(args, "--setenv", kv[0], kv[1])
	}
	for _, dir := range system {
		st, err := os.Lstat(dir)
		switch {
		case err != nil:
		case st.Mode()&os.ModeSymlink != 0:
			if to, err := os.Readlink(dir); err == nil {
				args = append(args, "--symlink", to, dir)
			}
		default:
			args = append(args, "--ro-bind", dir, dir)
		}
	}
	for _, dir := range []string{prefix, filepath.Dir(interpreter)} {
		if !strings.HasPrefix(dir+"/", "/usr/") && !strings.HasPrefix(dir+"/", "/bin/") {
			args = append(args, "--ro-bind", dir, dir)
		}
	}
	args = append(args, "--proc", "/proc", "--dev", "/dev", "--size", strconv.Itoa(Space), "--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/tmp")
	limits := fmt.Sprintf(`ulimit -v %d && ulimit -t %d && ulimit -f %d && ulimit -c 0 && ulimit -n 256 && ulimit -p %d; exec "$@"`, Memory>>10, Seconds, Space>>9, Processes)
	// -I: no modules of the user or the folder; -: the program comes as input.
	return append(args, "--", "/bin/sh", "-c", limits, "sh", interpreter, "-I", "-u", "-")
}

// Run runs a program. That it fails is no error: errors are ctx's, or that the
// sandbox cannot be started.
func (p *Python) Run(ctx context.Context, code string) (Output, error) {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return Output{}, fail.Wrap(fail.Interrupted, "run Python", "", context.Cause(ctx))
	}
	timed, cancel := context.WithTimeout(ctx, time.Duration(p.seconds)*time.Second)
	defer cancel()
	cmd := exec.CommandContext(timed, p.bwrap, p.args...)
	cmd.Env = []string{} // not even bubblewrap itself sees a key
	cmd.Stdin = strings.NewReader(code)
	out := &bounded{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		return Output{}, fail.Wrap(fail.Interrupted, "run Python", "", context.Cause(ctx))
	}
	o := Output{Text: strings.ToValidUTF8(out.buf.String(), "�"), Cut: out.cut, TimedOut: timed.Err() != nil}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		if o.Exit = exit.ExitCode(); o.Exit < 0 {
			o.Exit = 128 + 9
		}
	case o.TimedOut:
		o.Exit = 128 + 9
	case err != nil:
		return Output{}, fail.Wrap(fail.Bug, "run Python", p.bwrap, err)
	}
	return o, nil
}

// bounded keeps the first MaxOutput bytes written to it and drops the rest. The two
// streams of a command that are the same writer are written one at a time.
type bounded struct {
	buf bytes.Buffer
	cut bool
}

func (b *bounded) Write(p []byte) (int, error) {
	keep := min(len(p), MaxOutput-b.buf.Len())
	b.cut = b.cut || keep < len(p)
	b.buf.Write(p[:keep])
	return len(p), nil
}
