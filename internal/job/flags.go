package job

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/shard"
)

// Version is the program's version, set by the linker.
var Version = "unknown"

// Flags are the flags of every job. Commands embed it by value.
type Flags struct {
	Shard       string        `group:"Run" placeholder:"I/N" help:"Make only shard I (from 0) of N."`
	Shards      int           `group:"Run" placeholder:"N" help:"Make N shards; in an array job (SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX) only the task's own."`
	ShardList   string        `group:"Run" placeholder:"FILE" help:"Make only the shards that this file gives the array task; docs/slurm.md has its form."`
	Task        int           `group:"Run" default:"-1" placeholder:"T" help:"The array task, with --shard-list (default: what the array job says)."`
	Trust       bool          `group:"Run" hidden:"" help:"With --dry-run: finished parts of the right size are believed."`
	DryRunFlag  bool          `group:"Run" name:"dry-run" short:"n" help:"Print what is done, to do and stale, and why; change nothing."`
	Fresh       bool          `group:"Run" help:"Start over, also where finished work could be kept."`
	RetryFailed bool          `group:"Run" help:"Take rows again that ended in a failure."`
	Wait        bool          `group:"Run" help:"Wait for a shard that another process is making, instead of skipping it."`
	Grace       time.Duration `group:"Run" default:"30s" help:"Time between the first signal and a forced end."`

	ProgressMode string `group:"Output" name:"progress" enum:"auto,bar,line,json,none" default:"auto" help:"How to show progress: auto, bar, line, json, none."`
	JSON         bool   `group:"Output" name:"json" help:"Print the result as JSON on stdout."`
	ShowVersion  bool   `group:"Output" name:"version" help:"Print the version and exit."`

	RecipePath  string   `group:"Recipe" name:"recipe" placeholder:"NAME" help:"Recipe: a name in pipelines/recipes or a YAML file."`
	Set         []string `group:"Recipe" sep:"none" placeholder:"KEY=VALUE" help:"Override a recipe field, for example grpo.lr=2e-6 (repeatable)."`
	PrintRecipe bool     `group:"Recipe" help:"Print the merged recipe and exit."`
}

// Serving is Flags for a command that serves and makes no dataset: help does not
// show the flags that would mean nothing to it.
type Serving struct{ Flags }

func (*Serving) serves() {}

// ofDatasets are the flags that only a command that makes a dataset knows.
var ofDatasets = []string{"shard", "shards", "dry-run", "fresh", "retry-failed", "wait", "progress", "json", "recipe", "set", "print-recipe"}

// Command is a job: a pointer to a struct of kong flags that embeds Flags.
type Command interface {
	// Run does the work. ctx ends when the grace time after the first signal is
	// over. Run returns nil when everything it was asked for is done.
	Run(ctx context.Context, r *Run) error
}

// flags lets this package reach the Flags that a command embeds.
func (f *Flags) flags() *Flags { return f }

// arrays are the environment variables that say which task of an array this process is.
var arrays = []string{"SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"}

// task is the index of this process in its array job; false when there is none.
func task() (i int, name string, ok bool, err error) {
	for _, name := range arrays {
		if text := os.Getenv(name); text != "" {
			if i, err = strconv.Atoi(text); err != nil || i < 0 {
				return 0, name, false, fail.New(fail.Usage, "array task", "", "%s=%s is no index", name, text)
			}
			return i, name, true, nil
		}
	}
	return 0, "", false, nil
}

// layout is the number of shards, whether the user said it, and which of them
// this process makes (nil: all).
func (f *Flags) layout() (n int, said bool, only shard.Set, err error) {
	switch {
	case f.ShardList != "" && f.Shard != "":
		return 0, false, nil, fail.New(fail.Usage, "--shard-list", "", "it contradicts --shard")
	case f.Shards < 0 || f.Shards > shard.Max:
		return 0, false, nil, fail.New(fail.Usage, "--shards", "", "%d is not between 1 and %d", f.Shards, shard.Max)
	case f.ShardList != "":
		only, err = f.listed()
		return max(1, f.Shards), f.Shards > 0, only, err
	case f.Shard != "":
		s, err := shard.Parse(f.Shard)
		if err != nil {
			return 0, false, nil, err
		}
		if f.Shards != 0 && f.Shards != s.N {
			return 0, false, nil, fail.New(fail.Usage, "--shard", "", "%s contradicts --shards %d", f.Shard, f.Shards)
		}
		return s.N, true, shard.Set{s.I}, nil
	case f.Shards == 0:
		return 1, false, nil, nil
	}
	i, name, ok, err := task()
	if err != nil || !ok {
		return f.Shards, true, nil, err
	}
	if s := (shard.Spec{I: i, N: f.Shards}); !s.Valid() {
		return 0, false, nil, &fail.Error{Kind: fail.Usage, Op: "--shards", Err: fmt.Errorf("%s=%d is no shard of %d", name, i, f.Shards),
			Hint: "start the array as 0-" + strconv.Itoa(f.Shards-1)}
	}
	return f.Shards, true, shard.Set{i}, nil
}

// listed is what --shard-list gives this task.
func (f *Flags) listed() (shard.Set, error) {
	i := f.Task
	if i < 0 {
		var ok bool
		var err error
		if i, _, ok, err = task(); err != nil {
			return nil, err
		} else if !ok {
			return nil, fail.WithHint(fail.New(fail.Usage, "--shard-list", f.ShardList, "this process is no task of an array job"), "say which task it is with --task")
		}
	}
	list, err := shard.ReadList(f.ShardList, max(1, f.Shards))
	if err != nil {
		return nil, err
	}
	set, ok := list[i]
	if !ok {
		return nil, fail.New(fail.Usage, "--shard-list", f.ShardList, "it has no task %d", i)
	}
	return set, nil
}

// Owner says of which samples this process makes the rows, by the id that decides on
// their shard, before there is a dataset to make them of.
func (r *Run) Owner() (func(id string) bool, error) {
	n, _, only, err := r.layout()
	if err != nil || only == nil {
		return func(string) bool { return true }, err
	}
	return func(id string) bool {
		return slices.ContainsFunc(only, func(i int) bool { return shard.Spec{I: i, N: n}.Owns(id) })
	}, nil
}
