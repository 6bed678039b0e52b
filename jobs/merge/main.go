// Command merge adds a LoRA adapter to the weights of a policy.
package main

import (
	"context"

	"searchloop/internal/job"
	"searchloop/train"
)

type command struct {
	job.Flags
	Policy  string `required:"" placeholder:"DIR" help:"Policy that the adapter was trained beside."`
	Adapter string `required:"" placeholder:"DIR" help:"Adapter in PEFT's format."`
	Out     string `required:"" placeholder:"DIR" help:"Folder of the merged policy."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	return train.Merge(ctx, r, train.MergeOptions{Policy: c.Policy, Adapter: c.Adapter, Out: c.Out})
}

func main() { job.Main("merge", "Add a LoRA adapter to a policy's weights.", new(command)) }
