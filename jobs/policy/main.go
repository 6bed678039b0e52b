// Command policy makes a small policy from nothing, for the demo: a tokenizer
// trained on trajectories and a Qwen3-VL with random weights.
package main

import (
	"context"

	"searchloop/internal/job"
	"searchloop/train/scratch"
)

type command struct {
	job.Flags
	Rollouts string `required:"" help:"Trajectories whose text the tokenizer is trained on."`
	Out      string `required:"" help:"Folder of the policy."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	return scratch.Make(ctx, r, scratch.Options{Rollouts: c.Rollouts, Out: c.Out})
}

func main() { job.Main("policy", "Make a small policy from nothing.", new(command)) }
