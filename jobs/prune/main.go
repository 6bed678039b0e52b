// Command prune frees the disk of a run's old checkpoints.
package main

import (
	"context"

	"searchloop/internal/job"
	"searchloop/train"
)

type command struct {
	job.Flags
	Folder   string `name:"run" required:"" placeholder:"DIR" help:"Folder of the run, with epoch-N/checkpoint."`
	KeepLast int    `default:"2" placeholder:"N" help:"Newest epochs that keep everything."`
	KeepBest int    `default:"1" placeholder:"N" help:"Best epochs that keep everything."`
	Bench    string `placeholder:"NAME" help:"Best by the accuracy on this benchmark; without it, by the mean reward."`
	Weights  bool   `help:"The others lose their weights too, not only their training state."`
}

func (c *command) Run(_ context.Context, r *job.Run) error {
	return train.Prune(r, train.PruneOptions{Run: c.Folder, KeepLast: c.KeepLast, KeepBest: c.KeepBest, Bench: c.Bench, Weights: c.Weights})
}

func main() { job.Main("prune", "Remove what old checkpoints no longer need.", new(command)) }
