package job

import (
	"context"
	"fmt"
	"os"
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

// layout is the number of shards, whether the user said it, and which of them
// this process makes (nil: all).
func (f *Flags) layout() (n int, said bool, only *shard.Spec, err error) {
	if f.Shard != "" {
		s, err := shard.Parse(f.Shard)
		if err != nil {
			return 0, false, nil, err
		}
		if f.Shards != 0 && f.Shards != s.N {
			return 0, false, nil, fail.New(fail.Usage, "--shard", "", "%s contradicts --shards %d", f.Shard, f.Shards)
		}
		return s.N, true, &s, nil
	}
	if f.Shards == 0 {
		return 1, false, nil, nil
	}
	if f.Shards < 0 || f.Shards > shard.Max {
		return 0, false, nil, fail.New(fail.Usage, "--shards", "", "%d is not between 1 and %d", f.Shards, shard.Max)
	}
	for _, name := range []string{"SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"} {
		text := os.Getenv(name)
		if text == "" {
			continue
		}
		i, err := strconv.Atoi(text)
		s := shard.Spec{I: i, N: f.Shards}
		if err != nil || !s.Valid() {
			return 0, false, nil, &fail.Error{Kind: fail.Usage, Op: "--shards", Err: fmt.Errorf("%s=%s is no shard of %d", name, text, f.Shards),
				Hint: "start the array as 0-" + strconv.Itoa(f.Shards-1)}
		}
		return f.Shards, true, &s, nil
	}
	return f.Shards, true, nil, nil
}
