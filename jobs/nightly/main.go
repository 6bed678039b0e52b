// Command nightly evaluates a run's checkpoint again, writes the history, and tells
// what was lost since the last good night; see docs/nightly.md. make nightly calls it.
package main

import (
	"context"

	"searchloop/eval/nightly"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/secret"
)

type command struct {
	job.Flags
	Folder  string   `name:"run" required:"" placeholder:"DIR" help:"Folder of the run."`
	Epochs  []int    `name:"epoch" placeholder:"N" help:"Checkpoint to evaluate (repeatable)."`
	Benches []string `name:"bench" placeholder:"NAME" help:"Benchmark (repeatable; default: eval.nightly.benchmarks of the recipe)."`
	Bench   string   `name:"otherwise" default:"demo" placeholder:"NAME" help:"Benchmark when neither names one."`
	Night   string   `placeholder:"NAME" help:"Name of the night (default: the day)."`
	Start   string   `placeholder:"DIR" help:"Folder that is the policy of epoch 0."`
	Served  bool     `help:"A server plays the policy; no checkpoint is looked for."`
	Live    bool     `help:"Search live, and record it, where the recipe does."`
	Frozen  string   `placeholder:"DIR" help:"Record that answers live searches."`
	Against string   `placeholder:"NIGHT" help:"Night to compare with (default: the last one that broke no bound)."`
	MaxDrop *float64 `placeholder:"SHARE" help:"Exit 3 when accuracy fell by more than this share (default: eval.nightly.max_drop of the recipe)."`
	Command []string `arg:"" optional:"" passthrough:"" help:"-- and the command line of make."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if c.Shard != "" || c.Shards != 0 || c.ShardList != "" || c.DryRunFlag {
		return fail.New(fail.Usage, "", "", "a night has no shards and no plan to print")
	}
	return nightly.Run(ctx, r, nightly.Options{Run: c.Folder, Epochs: c.Epochs, Benches: c.Benches, Bench: c.Bench, Night: c.Night, Start: c.Start,
		Served: c.Served, Live: c.Live, Frozen: c.Frozen, Against: c.Against, MaxDrop: c.MaxDrop, Make: c.Command, Webhook: secret.FromEnv(nightly.WebhookName)})
}

func main() {
	job.Main("nightly", "Evaluate a checkpoint again and compare it with the last good night.", new(command))
}
