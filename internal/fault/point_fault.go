//go:build fault

package fault

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Enabled says whether Point does anything.
const Enabled = true

var (
	mu   sync.Mutex
	hits = map[string]int{}
)

// Point kills the process or returns an error when the environment says so.
func Point(name string) error {
	mu.Lock()
	defer mu.Unlock()
	if file := os.Getenv("SEARCHLOOP_POINTS"); file != "" { // lists the points reached, for loops over all of them
		if f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
			fmt.Fprintln(f, name)
			f.Close()
		}
	}
	if _, ok := due("SEARCHLOOP_KILL_AT", name); ok {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	if errno, ok := due("SEARCHLOOP_FAIL_AT", name); ok {
		switch errno {
		case "EIO":
			return syscall.EIO
		case "EACCES":
			return syscall.EACCES
		case "EXDEV":
			return syscall.EXDEV
		case "EDQUOT":
			return syscall.EDQUOT
		}
		return syscall.ENOSPC
	}
	return nil
}

// due counts name against variable and says whether its turn has come.
func due(variable, name string) (errno string, ok bool) {
	f := strings.Split(os.Getenv(variable), ":")
	if len(f) < 2 {
		return "", false
	}
	prefix, wild := strings.CutSuffix(f[0], "*")
	if name != f[0] && !(wild && strings.HasPrefix(name, prefix)) {
		return "", false
	}
	hits[variable]++
	if len(f) > 2 {
		errno = f[2]
	}
	n, _ := strconv.Atoi(f[1])
	return errno, n == hits[variable]
}
