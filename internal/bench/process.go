package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Used is what a process took.
type Used struct {
	Seconds, CPU float64 // by the clock and of the processors
	Peak         float64 // of memory, MB
}

// Run runs a program to its end and gives what it took and what it printed. The
// error holds all it said.
func Run(name string, args ...string) (u Used, output []byte, err error) {
	cmd, began := exec.Command(name, args...), time.Now()
	var errs strings.Builder
	cmd.Stderr = &errs
	if output, err = cmd.Output(); err != nil {
		return u, output, fmt.Errorf("%s %v: %w\n%s%s", filepath.Base(name), args, err, output, errs.String())
	}
	s := cmd.ProcessState
	u = Used{Seconds: time.Since(began).Seconds(), CPU: (s.UserTime() + s.SystemTime()).Seconds()}
	if r, ok := s.SysUsage().(*syscall.Rusage); ok {
		u.Peak = float64(r.Maxrss) / 1024
	}
	return u, output, nil
}

// Build makes programs of this module in dir.
func Build(dir string, packages ...string) error {
	cmd := exec.Command("go", append([]string{"build", "-o", dir}, packages...)...)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// ProcessorTime is that of this process so far.
func ProcessorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
