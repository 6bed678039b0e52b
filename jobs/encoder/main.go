// Command encoder fits a small text encoder to the words of passages and writes
// it as a BERT folder.
package main

import (
	"context"

	"searchloop/indexer/lexical"
	"searchloop/internal/job"
)

type command struct {
	job.Flags
	Passages []string `required:"" sep:"none" placeholder:"DIR" help:"Passages dataset to fit to; may be given several times."`
	Out      string   `required:"" placeholder:"DIR" help:"Encoder folder to make."`
	Dim      int      `default:"256" help:"Dimension of the vectors, a multiple of 4."`
	Seed     uint64   `default:"1" help:"Seed of the random directions."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	return lexical.Fit(ctx, r, lexical.Options{Passages: c.Passages, Out: c.Out, Dim: c.Dim, Seed: c.Seed})
}

func main() {
	job.Main("encoder", "Fit a small text encoder (latent semantic analysis, written as a BERT folder) to passages.", &command{})
}
