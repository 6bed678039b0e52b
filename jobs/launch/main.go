// Command launch makes the dataset of another job by many processes, on this
// machine or on a Slurm cluster; see docs/slurm.md.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"searchloop/corpus/publish"
	"searchloop/indexer/encoder/served"
	"searchloop/internal/board"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/kv"
	"searchloop/internal/launch"
	"searchloop/internal/recipe"
	"searchloop/internal/serve"
	"searchloop/internal/slurm"
	"searchloop/rollout"
	"searchloop/rollout/judge"
	"searchloop/rollout/live"
	"searchloop/synth/vqa"
)

type command struct {
	job.Flags
	Launcher string   `enum:"local,slurm" default:"local" help:"Where the tasks run: local, slurm."`
	Serve    []string `sep:"none" placeholder:"NAME=N:COMMAND" help:"Run N servers while the stage runs; @NAME in the job's flags is the file of their addresses (repeatable)."`
	Attempts int      `default:"3" placeholder:"N" help:"Attempts at a shard that bring it no further before it is given up."`
	Latency  int      `default:"30" placeholder:"SECONDS" help:"How long files of other machines may take to be seen here."`
	KeepLogs bool     `help:"Keep the tasks' output of a stage that ended well."`

	Workers  int     `group:"Local" placeholder:"N" help:"Processes at once (default: as many as the machine has room for)."`
	CPUs     int     `name:"cpus" group:"Local" placeholder:"N" help:"CPUs of this machine for tasks (default: all)."`
	MemoryGB float64 `name:"memory-gb" group:"Local" placeholder:"N" help:"Memory for tasks (default: all)."`
	GPUs     *string `name:"gpus" group:"Local" placeholder:"0,1" help:"GPUs for tasks (default: all)."`
	Slots    string  `group:"Local" placeholder:"DIR" help:"Folder that launchers of this machine share to share it."`

	Sbatch   []string `sep:"none" group:"Slurm" placeholder:"FLAG" help:"Further flag of sbatch, for example --sbatch=--partition=gpu (repeatable)."`
	Requeue  bool     `group:"Slurm" help:"Let Slurm put pre-empted tasks back into the queue itself."`
	Export   []string `sep:"none" group:"Slurm" placeholder:"NAME" help:"Environment variable that tasks see; Slurm keeps it on disk (repeatable)."`
	Keys     string   `group:"Slurm" placeholder:"DIR" help:"Folder for the files of keys, seen by all nodes (default: ~/.searchloop/keys)."`
	Patience string   `group:"Slurm" default:"10m" placeholder:"TIME" help:"How long the controller may be away."`
	Poll     string   `group:"Slurm" default:"2s" placeholder:"TIME" help:"First distance between two looks at the queue."`

	Command []string `arg:"" optional:"" passthrough:"" help:"-- and the job's command line."`
}

// secrets are the environment variables that hold keys of any job.
func secrets(rec *recipe.Recipe) []string {
	list := []string{rollout.KeyName, rollout.ReaderKeyName, rollout.ModelKeyName, judge.KeyName, serve.KeyName, kv.PasswordName,
		served.KeyName, board.TokenName, board.PasswordName, vqa.WriterKey, vqa.CheckerKey, rec.Synth.Writer.KeyEnv, rec.Synth.Checker.KeyEnv}
	list = slices.Concat(list, live.KeyNames(), publish.KeyNames())
	for _, p := range rec.Judge.Panel {
		list = append(list, p.KeyEnv)
	}
	slices.Sort(list)
	return slices.DeleteFunc(slices.Compact(list), func(name string) bool { return name == "" })
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	if c.Shard != "" || c.Shards != 0 || c.Fresh || c.RetryFailed || c.ShardList != "" {
		return fail.WithHint(fail.New(fail.Usage, "", "", "flags of the job stand before --"), "write them behind it: launch --launcher slurm -- bin/rollout --shards 16 …")
	}
	line := c.Command
	if len(line) > 0 && line[0] == "--" {
		line = line[1:]
	}
	var rec *recipe.Recipe
	var err error
	if c.RecipePath != "" {
		if rec, err = r.Recipe(); err != nil {
			return err
		}
	} else if rec = new(recipe.Recipe); len(c.Set) > 0 {
		return fail.New(fail.Usage, "--set", "", "it changes a recipe, and --recipe names none")
	}
	s := launch.Stage{Command: line}
	if len(line) > 0 {
		s.Job = filepath.Base(line[0])
		s.Needs = rec.Needs(s.Job)
	}
	opt := launch.Options{Attempts: c.Attempts, Latency: time.Duration(c.Latency) * time.Second, KeepLogs: c.KeepLogs}
	for _, text := range c.Serve {
		sv, err := server(text, rec)
		if err != nil {
			return err
		}
		opt.Servers = append(opt.Servers, sv)
	}
	l, err := c.launcher(r, &s, secrets(rec))
	if err != nil {
		return err
	}
	return launch.Make(ctx, r, s, l, opt)
}

// server reads NAME=N:COMMAND; the command is cut at spaces.
func server(text string, rec *recipe.Recipe) (launch.Server, error) {
	name, rest, ok1 := strings.Cut(text, "=")
	number, line, ok2 := strings.Cut(rest, ":")
	n, err := strconv.Atoi(number)
	f := strings.Fields(line)
	if !ok1 || !ok2 || err != nil || n < 1 || len(f) == 0 || name == "" || strings.ContainsAny(name, "/. ") {
		return launch.Server{}, fail.WithHint(fail.New(fail.Usage, "--serve", "", "%q is not NAME=N:COMMAND", text), "for example --serve 'policy=2:bin/serve --policy runs/demo/epoch-0/checkpoint'")
	}
	return launch.Server{Name: name, N: n, Command: f, Needs: rec.Needs("serve")}, nil
}

func (c *command) launcher(r *job.Run, s *launch.Stage, secrets []string) (launch.Launcher, error) {
	if c.Launcher == "slurm" {
		opt := slurm.Options{Flags: c.Sbatch, Requeue: c.Requeue, Secrets: secrets, Exports: c.Export, Keys: c.Keys}
		var err error
		if opt.Patience, err = time.ParseDuration(c.Patience); err != nil || opt.Patience <= 0 {
			return nil, fail.New(fail.Usage, "--patience", "", "%q is no time such as 10m", c.Patience)
		}
		if opt.Poll, err = time.ParseDuration(c.Poll); err != nil || opt.Poll <= 0 {
			return nil, fail.New(fail.Usage, "--poll", "", "%q is no time such as 2s", c.Poll)
		}
		return slurm.New(r, opt)
	}
	cpus, memory, dir := c.CPUs, c.MemoryGB, c.Slots
	if cpus == 0 {
		cpus = runtime.NumCPU()
	}
	if memory == 0 {
		memory = installed()
	}
	if dir == "" {
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("searchloop-slots-%d", os.Getuid()))
	}
	gpus := launch.Devices()
	if c.GPUs != nil {
		gpus = strings.FieldsFunc(*c.GPUs, func(r rune) bool { return r == ',' })
	}
	if c.Workers > 0 {
		s.Needs.Tasks = c.Workers
	}
	slots, err := launch.OpenSlots(dir, cpus, memory, gpus)
	if err != nil {
		return nil, err
	}
	return launch.NewLocal(slots), nil
}

// installed is the machine's memory in GB.
func installed() float64 {
	text, _ := os.ReadFile("/proc/meminfo")
	var kb float64
	fmt.Sscanf(string(text), "MemTotal: %f", &kb)
	if kb == 0 {
		return 1e6 // not known: no bound
	}
	return kb / (1 << 20)
}

func main() {
	job.Main("launch", "Make a job's dataset by many processes, here or on a Slurm cluster.", &command{})
}
