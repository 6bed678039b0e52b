// Package slurm runs the tasks of a stage as job arrays of a Slurm cluster. It is a
// launch.Launcher: tasks go in, what became of them comes out, as far as Slurm can
// tell.
//
// Slurm's word is never taken for a result (package launch looks at manifests), its
// job numbers are never taken for an identity (they are given out anew when a
// controller forgets), and its silence is never taken for a failure. What the
// package does not do: wait with sbatch --wait, whose exit code is 0 for jobs that
// never ran; hand the environment of the submitter to Slurm, which keeps it on disk.
package slurm

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/launch"
	"searchloop/internal/recipe"
)

// Options of a Cluster. The zero value of a time means its default.
type Options struct {
	Flags   []string // further flags of sbatch: --partition=gpu, --account=x
	Requeue bool     // Slurm puts pre-empted tasks back into the queue itself
	Secrets []string // environment variables whose values tasks need and Slurm must not have
	Exports []string // further environment variables for tasks; Slurm keeps them on disk
	Keys    string   // folder for the secrets' files, seen by all nodes; "" = .searchloop/keys in the home folder

	Poll     time.Duration // first distance between two looks at the queue: 2 s
	PollMost time.Duration // and the longest: 30 s
	Patience time.Duration // how long a controller may be away: 10 min
	Signal   time.Duration // time between TERM and the time limit: 60 s
}

// Cluster is the Slurm cluster that sbatch of this machine submits to.
type Cluster struct {
	r      *job.Run
	opt    Options
	limits *limits
	keys   string // folder of the secrets' files, when there is one
}

// limits are the cluster's own.
type limits struct {
	index int // greatest index of an array
	queue int // most tasks of a user in the queue; 0 = not known
}

// New makes the launcher of the cluster.
func New(r *job.Run, opt Options) (*Cluster, error) {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&opt.Poll, 2*time.Second)
	set(&opt.PollMost, 30*time.Second)
	set(&opt.Patience, 10*time.Minute)
	set(&opt.Signal, time.Minute)
	if _, err := exec.LookPath("sbatch"); err != nil {
		return nil, fail.WithHint(fail.New(fail.Usage, "find Slurm", "", "there is no sbatch in PATH"), "run on a login node of the cluster, or use LAUNCHER=local")
	}
	return &Cluster{r: r, opt: opt}, nil
}

// environ is what Slurm's own commands see: nothing that could be a key, and
// nothing of a Slurm job that this process itself may be part of.
func environ() []string {
	env := []string{}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch {
		case strings.HasPrefix(name, "SBATCH_"), strings.HasPrefix(name, "SINFO_"), strings.HasPrefix(name, "SQUEUE_"):
		case name == "PATH", name == "HOME", name == "USER", name == "LOGNAME", name == "LANG", name == "SLURM_CONF", name == "SLURM_CLUSTERS":
		default:
			continue
		}
		if name != "SBATCH_EXPORT" && name != "SBATCH_WAIT" {
			env = append(env, v)
		}
	}
	return env
}

// call runs one of Slurm's commands.
func call(ctx context.Context, env []string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.WaitDelay = append(environ(), env...), time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(errs.String()); text != "" {
			err = errors.New(strings.Join(strings.Split(text, "\n"), "; "))
		}
		return errs.String(), err
	}
	return out.String(), nil
}

// ask is call, repeated while the controller is away.
func (c *Cluster) ask(ctx context.Context, name string, args ...string) (string, error) {
	began, told := time.Now(), false
	for {
		out, err := call(ctx, nil, name, args...)
		if err == nil {
			return out, nil
		}
		if ctx.Err() != nil {
			return "", launch.Interrupted()
		}
		if time.Since(began) > c.opt.Patience {
			return "", fail.WithHint(fail.New(fail.Service, "ask Slurm", "", "%s: %v", name, err), "run again when the controller answers: what is finished is kept")
		}
		if !told {
			c.r.Log.Warn("Slurm does not answer; asking again", "command", name, "because", err)
			told = true
		}
		if err := launch.Sleep(ctx, c.opt.Poll); err != nil {
			return "", err
		}
	}
}

// config asks for the cluster's limits, once.
func (c *Cluster) config(ctx context.Context) (*limits, error) {
	if c.limits != nil {
		return c.limits, nil
	}
	text, err := c.ask(ctx, "scontrol", "show", "config")
	if err != nil {
		return nil, err
	}
	conf := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, "="); ok {
			conf[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	l := &limits{index: 1000}
	if n, err := strconv.Atoi(conf["MaxArraySize"]); err == nil && n > 0 {
		l.index = n - 1 // the greatest index is one less
	}
	if n, err := strconv.Atoi(conf["MaxJobCount"]); err == nil && n > 1 {
		l.queue = n - 1 // of everybody together; an array needs one for itself
	}
	if store := conf["AccountingStorageType"]; store != "" && store != "(null)" && !strings.HasSuffix(store, "/none") {
		l.account(ctx)
	}
	c.limits = l
	return l, nil
}

// account takes the limits of the user's accounts into account; a site may not say.
func (l *limits) account(ctx context.Context) {
	who := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	for _, args := range [][]string{
		{"-nP", "show", "assoc", "where", "user=" + who, "format=MaxSubmitJobs,GrpSubmitJobs"},
		{"-nP", "show", "qos", "format=MaxSubmitJobsPerUser,GrpSubmitJobs"},
	} {
		out, err := call(ctx, nil, "sacctmgr", args...)
		if err != nil {
			continue
		}
		for _, f := range strings.FieldsFunc(out, func(r rune) bool { return r == '|' || r == '\n' }) {
			if n, err := strconv.Atoi(f); err == nil && n > 0 && (l.queue == 0 || n < l.queue) {
				l.queue = n
			}
		}
	}
}

// Room is the number of tasks that the partition's CPUs, or the recipe's bound, let
// run at once; 0 when the cluster does not say.
func (c *Cluster) Room(ctx context.Context, n recipe.Task) (int, error) {
	args := []string{"-h", "-o", "%C"}
	for _, f := range c.opt.Flags {
		if p, ok := strings.CutPrefix(f, "--partition="); ok {
			args = append(args, "--partition="+p)
		}
	}
	out, err := c.ask(ctx, "sinfo", args...)
	if err != nil {
		return 0, err
	}
	most := 0
	for _, line := range strings.Fields(out) { // allocated/idle/other/total, of each partition
		f := strings.Split(line, "/")
		if len(f) != 4 {
			continue
		}
		a, err1 := strconv.Atoi(f[0])
		i, err2 := strconv.Atoi(f[1])
		if err1 == nil && err2 == nil {
			most = max(most, (a+i)/max(1, n.CPUs))
		}
	}
	if n.Tasks > 0 {
		most = min(most, n.Tasks)
	}
	return most, nil
}
