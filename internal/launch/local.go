package launch

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/recipe"
)

// Local runs tasks as processes of this machine, as many at once as its slots hold.
type Local struct{ slots *Slots }

// NewLocal makes the launcher of this machine.
func NewLocal(slots *Slots) *Local { return &Local{slots} }

// Room is how many tasks fit on the machine.
func (l *Local) Room(_ context.Context, n recipe.Task) (int, error) { return l.slots.room(n) }

// Check says how the tasks would be run.
func (l *Local) Check(_ context.Context, a *Array) ([]string, error) {
	room, err := l.slots.room(a.Needs)
	if err != nil {
		return nil, err
	}
	return []string{fmt.Sprintf("%d processes of %d CPUs, %d at once on this machine", len(a.Tasks), max(1, a.Needs.CPUs), room)}, nil
}

// Attach has nothing to wait for: tasks end with their launcher.
func (l *Local) Attach(context.Context, *Array) error { return nil }

// Close does nothing.
func (l *Local) Close() error { return nil }

// Run runs the tasks in order.
func (l *Local) Run(ctx context.Context, a *Array) (map[int]End, error) {
	list := filepath.Join(Dir(a.Out), "local.shards")
	if err := atomicfile.WriteFile(list, a.Tasks.Text(a.N)); err != nil {
		return nil, err
	}
	tasks := slices.Sorted(maps.Keys(a.Tasks))
	places := len(tasks)
	if a.Needs.Tasks > 0 {
		places = min(places, a.Needs.Tasks)
	}
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		ends = map[int]End{}
		sem  = make(chan struct{}, places)
		err  error
	)
	for _, t := range tasks {
		var c *claim
		select {
		case sem <- struct{}{}:
			if c, err = l.slots.take(ctx, a.Needs); err != nil {
				<-sem
			}
		case <-ctx.Done():
			err = Interrupted()
		}
		if err != nil {
			break
		}
		wg.Go(func() {
			defer func() { c.free(); <-sem }()
			end := l.task(ctx, a, list, t, c)
			mu.Lock()
			ends[t] = end
			mu.Unlock()
		})
	}
	wg.Wait()
	if err == nil && ctx.Err() != nil {
		err = Interrupted()
	}
	return ends, err
}

// task runs one task to its end.
func (l *Local) task(ctx context.Context, a *Array, list string, t int, c *claim) End {
	log := filepath.Join(Logs(a.Out), fmt.Sprintf("local_%d.log", t))
	err := l.process(ctx, &a.Stage, c, log, "--shard-list", list, "--task", strconv.Itoa(t), "--progress", "none")
	code, ran := exited(err)
	switch {
	case err == nil:
		return End{Done, "exit 0", log}
	case !ran:
		return End{Failed, err.Error(), log}
	case code < 0:
		return End{Failed, "killed by a signal", log}
	}
	return End{Failed, fmt.Sprintf("exit %d", code), log}
}

// process runs the job with its output in a file. Its thread is kept, because a
// process that is to die with its parent dies with the thread that began it.
func (l *Local) process(ctx context.Context, s *Stage, c *claim, log string, flags ...string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	cmd := s.process(ctx, flags...)
	cmd.Stdout, cmd.Stderr = f, f
	if len(l.slots.GPUs) > 0 {
		cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES="+strings.Join(c.GPUs, ","))
	}
	if c.CPUs < l.slots.CPUs { // the rest is for others
		cmd.Env = append(cmd.Env, "GOMAXPROCS="+strconv.Itoa(max(1, c.CPUs)))
	}
	return cmd.Run()
}

// Serve starts the servers as processes of this machine.
func (l *Local) Serve(ctx context.Context, s Server, out, file string) (func(), error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	stop := func() { cancel(); wg.Wait() }
	var places []string
	for i := range s.N {
		addr := fmt.Sprintf("%s.%d", file, i)
		places = append(places, addr)
		os.Remove(addr)
		c, err := l.slots.take(ctx, s.Needs)
		if err != nil {
			stop()
			return nil, err
		}
		st := Stage{Job: s.Name, Command: s.Command}
		wg.Go(func() {
			defer c.free()
			log := filepath.Join(Logs(out), fmt.Sprintf("server-%s-%d.log", s.Name, i))
			for began := time.Now(); ctx.Err() == nil; began = time.Now() { // a server that dies is started again, in peace
				l.process(ctx, &st, c, log, "--addr", "127.0.0.1:0", "--addr-file", addr)
				select {
				case <-ctx.Done():
				case <-time.After(max(0, 2*time.Second-time.Since(began))):
				}
			}
		})
	}
	if err := Gather(ctx, places, file, 5*time.Minute); err != nil {
		stop()
		return nil, fail.WithHint(err, "its output is in "+Logs(out))
	}
	return stop, nil
}

// Devices are the GPUs of this machine: what CUDA_VISIBLE_DEVICES lists, or what
// nvidia-smi knows.
func Devices() []string {
	if v, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES"); ok {
		return strings.FieldsFunc(v, func(r rune) bool { return r == ',' })
	}
	out, err := exec.Command("nvidia-smi", "--query-gpu=index", "--format=csv,noheader").Output()
	if err != nil {
		return nil
	}
	return strings.Fields(string(out))
}
