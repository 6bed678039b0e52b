package slurm

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/launch"
	"searchloop/internal/shard"
)

// order is one call of sbatch.
type order struct {
	name, run string
	indices   []int
	script    string // file
	log       string // pattern
	flags     []string
	most      int // tasks at once; 0 = no bound
}

// args are sbatch's, but for --export.
func (o *order) args() []string {
	list := "--array=" + shard.Ranges(o.indices)
	if o.most > 0 {
		list += fmt.Sprintf("%%%d", o.most)
	}
	return slices.Concat([]string{"--parsable", "--job-name=" + o.name, "--comment=" + o.run, list, "--output=" + o.log}, o.flags)
}

// submit has Slurm take an order. A call that fails may have been heard all the
// same: before it is made again the queue is asked for its name.
func (c *Cluster) submit(ctx context.Context, o *order) (id string, err error) {
	env, err := c.export(o.run)
	if err != nil {
		return "", err
	}
	args := append(o.args(), exportAll, o.script)
	began, told := time.Now(), false
	for {
		out, err := call(ctx, env, "sbatch", args...)
		if err == nil {
			id, _, _ = strings.Cut(strings.TrimSpace(out), ";")
			return id, nil
		}
		if ctx.Err() != nil {
			return "", launch.Interrupted()
		}
		if permanent(err.Error()) {
			return "", fail.WithHint(fail.New(fail.Usage, "submit to Slurm", "", "%v", err), "correct launch.* of the recipe or SBATCH_FLAGS; sbatch "+strings.Join(args, " "))
		}
		if time.Since(began) > c.opt.Patience {
			return "", fail.WithHint(fail.New(fail.Service, "submit to Slurm", "", "%v", err), "run again when the controller answers: what is finished is kept")
		}
		if !told {
			c.r.Log.Warn("Slurm does not take the job; trying again", "because", err)
			told = true
		}
		if err := launch.Sleep(ctx, c.opt.Poll); err != nil {
			return "", err
		}
		if tasks, err := c.queue(ctx, []string{o.name}); err == nil && len(tasks) > 0 {
			return tasks[0].id, nil // it was heard
		}
	}
}

// permanent says whether sbatch would refuse again: everything else, such as a full
// queue or a busy controller, passes.
func permanent(text string) bool {
	for _, s := range []string{"nvalid", "nrecognized", "not available", "not found", "annot be satisfied", "xceeds", "denied", "must specify", "not permitted", "unknown"} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// Check has sbatch --test-only look at what Run would submit.
func (c *Cluster) Check(ctx context.Context, a *launch.Array) ([]string, error) {
	l, err := c.config(ctx)
	if err != nil {
		return nil, err
	}
	flags, err := c.flags(a.Job, a.Needs)
	if err != nil {
		return nil, err
	}
	text, err := c.script(a, "LIST")
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp("", "launch-*.sh")
	if err != nil {
		return nil, fail.Wrap(fail.Disk, "write script", "", err)
	}
	defer os.Remove(f.Name())
	if _, err := f.WriteString(text); err != nil {
		return nil, fail.Wrap(fail.Disk, "write script", f.Name(), err)
	}
	f.Close()
	parts := arrays(a.Tasks, l)
	lines := []string{fmt.Sprintf("%d tasks in %d arrays (greatest index %d, at most %d in the queue)", len(a.Tasks), len(parts), l.index, l.queue)}
	for _, p := range parts {
		o := order{name: "sl-" + a.Job + "-test", run: "test", indices: slices.Sorted(maps.Keys(p)), log: "/dev/null", flags: flags, most: a.Needs.Tasks}
		args := append(o.args(), exportAll)
		lines = append(lines, "sbatch "+strings.Join(args, " "))
		// What it has to say it says on stderr, also when all is well.
		out, err := call(ctx, nil, "sh", append([]string{"-c", `exec sbatch "$@" 2>&1`, "sh", "--test-only"}, append(args, f.Name())...)...)
		if err != nil {
			return lines, fail.New(fail.Usage, "sbatch --test-only", "", "%s", strings.TrimSpace(out+" "+err.Error()))
		}
		lines = append(lines, strings.TrimSpace(out))
	}
	return lines, nil
}

// script of an array whose shard list is at that path.
func (c *Cluster) script(a *launch.Array, list string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fail.Wrap(fail.Disk, "find the working folder", "", err)
	}
	return script(dir, a.Command, []string{"--shard-list", list, "--progress", "line"})
}

// Attach takes up what an earlier submitter has left.
func (c *Cluster) Attach(ctx context.Context, a *launch.Array) error {
	s, err := recall(a.Out)
	if s == nil || err != nil {
		return err
	}
	var ids []string
	tasks, err := c.look(ctx, s.names())
	if err != nil {
		return err
	}
	live := 0
	for _, t := range tasks {
		if t.live() {
			live++
			if !slices.Contains(ids, t.id) {
				ids = append(ids, t.id)
			}
		}
	}
	switch {
	case live == 0:
		return nil
	case s.Command != digest(a):
		c.r.Log.Warn("tasks of another command are at work on the dataset; cancelling them", "jobs", strings.Join(ids, ","))
		c.cancel(s.names())
	default:
		c.r.Log.Info("attached to tasks of an earlier launch", "jobs", strings.Join(ids, ","), "tasks", live)
	}
	_, err = newWatch(c, a, s).wait(ctx)
	return err
}

// Run submits the tasks and waits for them.
func (c *Cluster) Run(ctx context.Context, a *launch.Array) (map[int]launch.End, error) {
	l, err := c.config(ctx)
	if err != nil {
		return nil, err
	}
	flags, err := c.flags(a.Job, a.Needs)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(launch.Dir(a.Out))
	if err != nil {
		return nil, fail.Wrap(fail.Disk, "find folder", a.Out, err)
	}
	s := begin(a)
	w := newWatch(c, a, s)
	byShard := map[int]int{} // a task by its first shard
	for t, set := range a.Tasks {
		byShard[set[0]] = t
	}
	for i, part := range arrays(a.Tasks, l) {
		name := fmt.Sprintf("sl-%s-%s-%d", a.Job, s.Run, i)
		path := filepath.Join(dir, name)
		text, err := c.script(a, path+".shards")
		if err != nil {
			return nil, err
		}
		if err := atomicfile.WriteFile(path+".shards", part.Text(a.N)); err != nil {
			return nil, err
		}
		if err := atomicfile.WriteFile(path+".sh", []byte(text)); err != nil {
			return nil, err
		}
		// Wait until the queue has room for it.
		for l.queue > 0 && w.queued()+len(part) > l.queue && w.queued() > 0 {
			if over, err := w.step(ctx); err != nil {
				return w.ends, w.leave(err)
			} else if over {
				return w.ends, nil
			}
		}
		x := array{Name: name, Tasks: map[int]int{}, Size: len(part)}
		for index, set := range part {
			x.Tasks[index] = byShard[set[0]]
		}
		s.Arrays = append(s.Arrays, x)
		if err := s.save(); err != nil {
			return nil, w.leave(err)
		}
		o := order{name: name, run: s.Run, indices: slices.Sorted(maps.Keys(part)), script: path + ".sh", log: filepath.Join(dir, "logs", "%A_%a.log"), flags: flags, most: a.Needs.Tasks}
		id, err := c.submit(ctx, &o)
		if err != nil {
			return nil, w.leave(err)
		}
		s.Arrays[len(s.Arrays)-1].ID = id
		if err := s.save(); err != nil {
			return nil, w.leave(err)
		}
		c.r.Log.Info("submitted", "job", id, "tasks", len(part), "name", name)
	}
	return w.wait(ctx)
}
