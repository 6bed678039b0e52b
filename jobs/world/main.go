// Command world writes the demo world: invented places with emblems, passages
// and questions, in the shapes in which published data sets arrive.
package main

import (
	"context"

	"searchloop/corpus/world"
	"searchloop/internal/job"
)

type command struct {
	job.Flags
	Out            string  `required:"" help:"Folder for the raw files."`
	Seed           uint64  `default:"7" help:"Seed of everything in the world."`
	Train          int     `default:"360" help:"Places of the training split."`
	Test           int     `default:"80" help:"Places of the held-out split."`
	TrainQuestions int     `default:"0" help:"Training questions; 0 takes all."`
	TestQuestions  int     `default:"240" help:"Held-out questions; 0 takes all."`
	Free           float64 `default:"0" placeholder:"SHARE" help:"Share of the held-out questions that need no search (0: 0.15)."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	return world.Write(ctx, r, world.Options{Out: c.Out, Seed: c.Seed, Train: c.Train, Test: c.Test, TrainQuestions: c.TrainQuestions, TestQuestions: c.TestQuestions, Free: c.Free})
}

func main() { job.Main("world", "Write the demo world's raw files.", new(command)) }
