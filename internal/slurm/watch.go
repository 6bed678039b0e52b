package slurm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/launch"
	"searchloop/internal/manifest"
)

// task is one line of squeue.
type task struct {
	id     string // of the array
	index  int    // -1: of every index that has no line of its own, as Slurm tells of arrays that were cancelled while they waited
	state  string
	reason string
	name   string
}

// over are the states in which a task is over, and what became of it.
var over = map[string]launch.Fate{
	"COMPLETED": launch.Done, "CANCELLED": launch.Cancelled, "FAILED": launch.Failed, "TIMEOUT": launch.Failed, "OUT_OF_MEMORY": launch.Failed, "DEADLINE": launch.Failed,
	"PREEMPTED": launch.Lost, "NODE_FAIL": launch.Lost, "BOOT_FAIL": launch.Lost, "REVOKED": launch.Lost,
}

// live says whether the task may still write. A state that nobody has heard of is one
// to wait for.
func (t *task) live() bool {
	_, is := over[t.state]
	return !is
}

// queue asks once for the tasks of those names, also for those that ended a while
// ago.
func (c *Cluster) queue(ctx context.Context, names []string) ([]task, error) {
	out, err := call(ctx, nil, "squeue", "-h", "-r", "-a", "--states=all", "--name="+strings.Join(names, ","), "-o", "%F|%K|%T|%j|%r")
	if err != nil {
		return nil, err
	}
	var list []task
	for line := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimSpace(line), "|", 5)
		if len(f) != 5 || !slices.Contains(names, f[3]) {
			continue
		}
		index := -1
		if n, err := strconv.Atoi(f[1]); err == nil {
			index = n
		}
		list = append(list, task{f[0], index, f[2], f[4], f[3]})
	}
	return list, nil
}

// look is queue, repeated while the controller is away.
func (c *Cluster) look(ctx context.Context, names []string) ([]task, error) {
	began := time.Now()
	for {
		list, err := c.queue(ctx, names)
		if err == nil {
			return list, nil
		}
		if ctx.Err() != nil {
			return nil, launch.Interrupted()
		}
		if time.Since(began) > c.opt.Patience {
			return nil, fail.WithHint(fail.New(fail.Service, "ask Slurm for tasks", "", "%v", err), "run again when the controller answers: the tasks go on without it")
		}
		if err := launch.Sleep(ctx, c.opt.Poll); err != nil {
			return nil, err
		}
	}
}

// watch is a wait for tasks.
type watch struct {
	c        *Cluster
	a        *launch.Array
	s        *state
	ends     map[int]launch.End
	pause    time.Duration
	empty    int       // looks in a row that found nobody
	silent   time.Time // since when squeue fails
	told     map[string]bool
	manifest string // what the dataset's manifest looked like at the beginning
}

func newWatch(c *Cluster, a *launch.Array, s *state) *watch {
	return &watch{c: c, a: a, s: s, ends: map[int]launch.End{}, pause: c.opt.Poll, told: map[string]bool{}, manifest: sealed(a.Out)}
}

// sealed is a mark that changes when the dataset's manifest does.
func sealed(out string) string {
	info, err := os.Stat(manifest.Path(out))
	if err != nil {
		return ""
	}
	return fmt.Sprint(info.Size(), info.ModTime().UnixNano())
}

// queued is the number of tasks that are not over, as far as is known.
func (w *watch) queued() int {
	n := 0
	for _, x := range w.s.Arrays {
		n += x.Size
	}
	return n - len(w.ends)
}

// wait looks until nobody is left, or the dataset is finished.
func (w *watch) wait(ctx context.Context) (map[int]launch.End, error) {
	for {
		over, err := w.step(ctx)
		if err != nil {
			return w.ends, w.leave(err)
		}
		if over {
			return w.ends, nil
		}
	}
}

// step waits for one look at the queue and takes it. Between two looks it watches
// for the manifest, which whoever makes the last shard writes.
func (w *watch) step(ctx context.Context) (done bool, err error) {
	next := time.Now().Add(w.pause)
	for time.Now().Before(next) {
		if now := sealed(w.a.Out); now != "" && now != w.manifest {
			if _, err := manifest.Open(w.a.Out); err == nil {
				w.drain(ctx)
				return true, nil
			}
		}
		if err := launch.Sleep(ctx, min(500*time.Millisecond, w.c.opt.Poll)); err != nil {
			return false, err
		}
	}
	w.pause = min(w.pause*3/2, w.c.opt.PollMost)
	names := w.s.names()
	if len(names) == 0 {
		return true, nil
	}
	list, err := w.c.queue(ctx, names)
	switch {
	case ctx.Err() != nil:
		return false, launch.Interrupted()
	case err != nil: // not knowing is not failing
		if w.silent.IsZero() {
			w.silent = time.Now()
			w.c.r.Log.Warn("Slurm does not say how the tasks are; they go on all the same", "because", err)
		}
		if time.Since(w.silent) > w.c.opt.Patience {
			return false, fail.WithHint(fail.New(fail.Service, "ask Slurm for tasks", "", "%v", err), "run again when the controller answers: the tasks go on without it")
		}
		return false, nil
	}
	w.silent = time.Time{}
	return w.take(list), nil
}

// drain lets tasks end whose dataset is finished: they write how they ended, and have
// nothing else to do. It does not wait for one that hangs.
func (w *watch) drain(ctx context.Context) {
	names := w.s.names()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && ctx.Err() == nil; {
		list, err := w.c.queue(ctx, names)
		if err == nil {
			w.take(list)
			if !slices.ContainsFunc(list, func(t task) bool { return t.live() && t.state != "PENDING" }) {
				if slices.ContainsFunc(list, func(t task) bool { return t.live() }) {
					w.c.cancel(names) // others have made what they were to make
				}
				return
			}
		}
		if launch.Sleep(ctx, min(time.Second, w.c.opt.Poll)) != nil {
			return
		}
	}
}

// take notes what squeue said; true when nobody is left, twice in a row.
func (w *watch) take(list []task) bool {
	live := 0
	var rest []task
	for _, t := range list {
		for _, x := range w.s.Arrays {
			if x.Name != t.name {
				continue
			}
			if t.index < 0 {
				if t.live() {
					live++
				}
				rest = append(rest, t)
				continue
			}
			n := x.Tasks[t.index]
			if t.live() {
				live++
				delete(w.ends, n) // requeued
				w.stuck(t)
				continue
			}
			end := launch.End{Fate: over[t.state], How: t.state, Log: filepath.Join(launch.Logs(w.a.Out), fmt.Sprintf("%s_%d.log", t.id, t.index))}
			if _, known := w.ends[n]; !known {
				w.pause = w.c.opt.Poll // something happens: look again soon
			}
			w.ends[n] = end
		}
	}
	for _, t := range rest {
		for _, x := range w.s.Arrays {
			for _, n := range x.Tasks {
				if _, known := w.ends[n]; x.Name == t.name && !known && !t.live() {
					w.ends[n] = launch.End{Fate: over[t.state], How: t.state}
				}
			}
		}
	}
	if live > 0 {
		w.empty = 0
		return false
	}
	w.empty++
	w.pause = min(w.pause, time.Second)
	return w.empty >= 2
}

// stuck says once why tasks wait, when they may wait for ever.
func (w *watch) stuck(t task) {
	for _, r := range []string{"Held", "Invalid", "Never", "Limit", "Down", "Inactive", "held"} {
		if t.state == "PENDING" && strings.Contains(t.reason, r) && !w.told[t.reason] {
			w.told[t.reason] = true
			w.c.r.Log.Warn("tasks wait, and may wait for long", "job", t.id, "reason", t.reason, "see", "squeue -j "+t.id)
		}
	}
}

// leave takes the own tasks off, when err is that somebody asked for it, and waits
// until they have written down what they have. Whoever sends a second signal ends
// this process, and leaves them.
func (w *watch) leave(err error) error {
	if fail.KindOf(err) != fail.Interrupted || len(w.s.Arrays) == 0 {
		return err
	}
	names := w.s.names()
	var ids []string
	for _, x := range w.s.Arrays {
		if x.ID != "" {
			ids = append(ids, x.ID)
		}
	}
	w.c.r.Log.Warn("cancelling; a second signal leaves the tasks running, and the next launch finds them", "jobs", strings.Join(ids, ","))
	w.c.cancel(names)
	ctx := context.Background()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		list, qerr := w.c.queue(ctx, names)
		if qerr == nil && !slices.ContainsFunc(list, func(t task) bool { return t.live() }) {
			break
		}
	}
	return err
}

// cancel takes the tasks of those names off. Only the name says that they are ours.
func (c *Cluster) cancel(names []string) {
	for _, n := range names {
		if _, err := call(context.Background(), nil, "scancel", "--name="+n); err != nil {
			c.r.Log.Warn("tasks could not be cancelled", "name", n, "because", err)
		}
	}
}
