package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/recipe"
)

// Slots is what this machine has for tasks. It is shared by all launchers of the
// machine, so that stages which make runs side by side do not take the same GPU.
type Slots struct {
	dir      string
	CPUs     int
	MemoryGB float64
	GPUs     []string // their names in CUDA_VISIBLE_DEVICES
}

// claim is what one task holds: a file, locked as long as its launcher lives.
type claim struct {
	CPUs     int
	MemoryGB float64
	GPUs     []string
	file     *os.File
}

// OpenSlots uses the folder dir for what is taken.
func OpenSlots(dir string, cpus int, memoryGB float64, gpus []string) (*Slots, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fail.Wrap(fail.Disk, "make folder", dir, err)
	}
	return &Slots{dir, cpus, memoryGB, gpus}, nil
}

// room is how many tasks of those needs fit on the empty machine; an error when
// not even one does.
func (s *Slots) room(n recipe.Task) (int, error) {
	k := s.CPUs / max(1, n.CPUs)
	if n.MemoryGB > 0 {
		k = min(k, int(s.MemoryGB/n.MemoryGB))
	}
	if n.GPUs > 0 {
		k = min(k, len(s.GPUs)/n.GPUs)
	}
	if k < 1 {
		return 0, fail.WithHint(fail.New(fail.Usage, "find room for a task", "", "it needs %d CPUs, %g GB and %d GPUs; this machine has %d, %g and %d", n.CPUs, n.MemoryGB, n.GPUs, s.CPUs, s.MemoryGB, len(s.GPUs)),
			"ask for less: --set launch.JOB.cpus=1")
	}
	if n.Tasks > 0 {
		k = min(k, n.Tasks)
	}
	return k, nil
}

// take waits until there is room for a task and takes it.
func (s *Slots) take(ctx context.Context, n recipe.Task) (*claim, error) {
	for {
		c, err := s.try(n)
		if c != nil || err != nil {
			return c, err
		}
		if err := Sleep(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

func (s *Slots) try(n recipe.Task) (*claim, error) {
	gate, err := os.OpenFile(filepath.Join(s.dir, "gate"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fail.Wrap(fail.Disk, "take a slot", s.dir, err)
	}
	defer gate.Close()
	for {
		if err = syscall.Flock(int(gate.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, fail.Wrap(fail.Disk, "take a slot", s.dir, err)
	}
	taken, err := s.taken()
	if err != nil {
		return nil, err
	}
	cpus, memory, free := s.CPUs, s.MemoryGB, slices.Clone(s.GPUs)
	for _, c := range taken {
		cpus, memory = cpus-c.CPUs, memory-c.MemoryGB
		free = slices.DeleteFunc(free, func(g string) bool { return slices.Contains(c.GPUs, g) })
	}
	if n.CPUs > cpus || n.MemoryGB > memory || n.GPUs > len(free) {
		return nil, nil
	}
	c := &claim{CPUs: n.CPUs, MemoryGB: n.MemoryGB, GPUs: free[:n.GPUs]}
	if c.file, err = os.CreateTemp(s.dir, fmt.Sprintf("%d-*.slot", os.Getpid())); err != nil {
		return nil, fail.Wrap(fail.Disk, "take a slot", s.dir, err)
	}
	if err := syscall.Flock(int(c.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		c.free()
		return nil, fail.Wrap(fail.Disk, "take a slot", s.dir, err)
	}
	text, _ := json.Marshal(c)
	if _, err := c.file.Write(text); err != nil {
		c.free()
		return nil, fail.Wrap(fail.Disk, "take a slot", s.dir, err)
	}
	return c, nil
}

// taken reads the claims of living launchers and removes those of dead ones.
func (s *Slots) taken() (list []claim, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fail.Wrap(fail.Disk, "read folder", s.dir, err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".slot") {
			continue
		}
		path := filepath.Join(s.dir, e.Name())
		f, err := os.Open(path)
		if err != nil {
			continue // freed just now
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			os.Remove(path)
			f.Close()
			continue
		}
		f.Close()
		var c claim
		if text, err := os.ReadFile(path); err == nil && json.Unmarshal(text, &c) == nil {
			list = append(list, c)
		}
	}
	return list, nil
}

func (c *claim) free() {
	os.Remove(c.file.Name())
	c.file.Close()
}
