// Command index builds an exact inner-product index, in FAISS's file format, from
// vectors.
package main

import (
	"context"

	"searchloop/indexer"
	"searchloop/internal/job"
)

type command struct {
	job.Flags
	Vectors  string `required:"" placeholder:"DIR" help:"Vectors dataset."`
	Passages string `required:"" placeholder:"DIR" help:"Passages dataset that the vectors were made from."`
	Out      string `required:"" placeholder:"DIR" help:"Index dataset to make."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	return indexer.Build(ctx, r, indexer.BuildOptions{Vectors: c.Vectors, Passages: c.Passages, Out: c.Out})
}

func main() {
	job.Main("index", "Build index files (FAISS IndexFlatIP) from vectors.", &command{})
}
