package slurm

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/recipe"
	"searchloop/internal/secret"
	"searchloop/internal/shard"
)

// script is what a task runs: it becomes the job itself, so that Slurm's signals
// reach it and no shell stands between.
func script(dir string, command, flags []string) (string, error) {
	exe, err := filepath.Abs(command[0])
	if err == nil {
		_, err = os.Stat(exe)
	}
	if err != nil {
		return "", fail.WithHint(fail.Wrap(fail.Usage, "write script", command[0], err), "build it first: make build")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "#!/bin/sh\nset -eu\ncd %s\nexec %s", quote(dir), quote(exe))
	for _, a := range slices.Concat(command[1:], flags) {
		if secret.Scrub(a) != a || hasPassword(a) {
			return "", fail.WithHint(fail.New(fail.Usage, "write script", "", "a flag of %s holds a secret, and Slurm keeps scripts on disk", filepath.Base(exe)),
				"put it into the environment variable that docs/slurm.md names")
		}
		b.WriteString(" " + argument(a))
	}
	return b.String() + "\n", nil
}

// argument quotes an argument, but for the task's number, which the shell puts in.
func argument(a string) string {
	if i := strings.Index(a, taskNumber); i >= 0 {
		return quote(a[:i]) + `"` + taskNumber + `"` + quote(a[i+len(taskNumber):])
	}
	return quote(a)
}

// taskNumber stands for the index of a task in its array.
const taskNumber = "$SLURM_ARRAY_TASK_ID"

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// hasPassword says whether an argument is a URL with a password in it.
func hasPassword(a string) bool {
	_, rest, ok := strings.Cut(a, "://")
	if !ok {
		return false
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	user, _, at := strings.Cut(rest, "@")
	return at && strings.Contains(user, ":")
}

// flags of sbatch for tasks of those needs.
func (c *Cluster) flags(job string, n recipe.Task) ([]string, error) {
	given := func(names ...string) bool {
		return slices.ContainsFunc(c.opt.Flags, func(f string) bool {
			name, _, _ := strings.Cut(f, "=")
			return slices.Contains(names, name)
		})
	}
	f := []string{"--nodes=1", "--ntasks=1", fmt.Sprintf("--cpus-per-task=%d", max(1, n.CPUs)), "--open-mode=append", "--kill-on-invalid-dep=yes"}
	switch {
	case n.MemoryGB > 0:
		f = append(f, fmt.Sprintf("--mem=%dM", int(math.Ceil(n.MemoryGB*1024))))
	case !given("--mem", "--mem-per-cpu", "--mem-per-gpu"):
		return nil, missing(job, "memory_gb", "8")
	}
	switch {
	case n.Minutes > 0:
		f = append(f, fmt.Sprintf("--time=%d", n.Minutes))
		lead := min(int(c.opt.Signal.Seconds()), n.Minutes*60/2)
		f = append(f, fmt.Sprintf("--signal=B:TERM@%d", lead))
	case given("--time"):
		f = append(f, fmt.Sprintf("--signal=B:TERM@%d", int(c.opt.Signal.Seconds())))
	default:
		return nil, missing(job, "minutes", "120")
	}
	if n.GPUs > 0 {
		kind := "gpu"
		if n.GPU != "" {
			kind += ":" + n.GPU
		}
		f = append(f, fmt.Sprintf("--gres=%s:%d", kind, n.GPUs))
	}
	if c.opt.Requeue {
		f = append(f, "--requeue")
	} else {
		f = append(f, "--no-requeue")
	}
	return append(f, c.opt.Flags...), nil
}

// missing is the error of a recipe that does not say what a cluster must know.
func missing(job, field, example string) error {
	return fail.WithHint(fail.New(fail.Usage, "launch "+job, "", "the recipe has neither launch.%s.%s nor launch.default.%s", job, field, field),
		fmt.Sprintf("add it, or --set launch.%s.%s=%s", job, field, example))
}

// arrays cuts tasks into arrays that the cluster takes: indices up to its limit,
// and no more tasks than may be queued at once.
func arrays(tasks shard.List, l *limits) []shard.List {
	numbers := slices.Sorted(maps.Keys(tasks))
	size := l.index + 1
	if l.queue > 0 {
		size = min(size, l.queue)
	}
	if len(numbers) <= size && (len(numbers) == 0 || numbers[len(numbers)-1] <= l.index) {
		return []shard.List{tasks}
	}
	var out []shard.List
	for len(numbers) > 0 {
		k := min(size, len(numbers))
		part := shard.List{}
		for i, t := range numbers[:k] {
			part[i] = tasks[t]
		}
		out, numbers = append(out, part), numbers[k:]
	}
	return out
}
