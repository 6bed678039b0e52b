// Command embed turns passages into vectors with a BERT encoder.
package main

import (
	"context"

	"searchloop/indexer"
	"searchloop/indexer/encoder"
	"searchloop/internal/job"
)

type command struct {
	job.Flags
	Encoder       string  `required:"" placeholder:"DIR" help:"Encoder folder: E5, BGE, MiniLM, or what the encoder job made."`
	Passages      string  `required:"" placeholder:"DIR" help:"Passages dataset."`
	Out           string  `required:"" placeholder:"DIR" help:"Vectors dataset to make."`
	QueryPrefix   *string `placeholder:"TEXT" help:"Text put before queries, instead of the encoder folder's."`
	PassagePrefix *string `placeholder:"TEXT" help:"Text put before passages, instead of the encoder folder's."`
	MaxTokens     *int    `placeholder:"N" help:"Longest sequence, marks included, instead of the encoder folder's."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	return indexer.Embed(ctx, r, indexer.EmbedOptions{Encoder: c.Encoder, Passages: c.Passages, Out: c.Out,
		Override: encoder.Override{QueryPrefix: c.QueryPrefix, PassagePrefix: c.PassagePrefix, MaxTokens: c.MaxTokens}})
}

func main() {
	job.Main("embed", "Embed passages into vectors; a rerun goes on where the last one stopped.", &command{})
}
