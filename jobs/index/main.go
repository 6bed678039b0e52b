// Command index builds an exact inner-product index, in FAISS's file formats, from
// vectors, and looks into, checks, joins and cuts index files.
package main

import (
	"context"

	"searchloop/indexer"
	"searchloop/internal/job"
)

type command struct {
	job.Flags
	Vectors  string   `placeholder:"DIR" help:"Vectors dataset. With --verify: compare with these."`
	Passages string   `placeholder:"DIR" help:"Passages dataset that the vectors were made from."`
	Out      string   `placeholder:"PATH" help:"Index dataset to make; with --merge the file, with --split the folder."`
	Format   string   `enum:"flat,fp16" default:"flat" help:"How vectors are stored: flat (float32) or fp16."`
	Sketch   bool     `help:"Also store a byte a number, from which single queries are searched faster; hits stay exact."`
	Info     []string `sep:"none" placeholder:"PATH" help:"Only print what the head of an index file, or an index dataset, says."`
	Verify   string   `placeholder:"DIR" help:"Only compare the search of an index dataset with an exact one; writes DIR/verify.json."`
	Sample   int      `default:"64" help:"Queries of --verify."`
	K        int      `default:"5" help:"Hits a query of --verify."`
	Merge    []string `sep:"none" placeholder:"FILE" help:"Only join index files, in this order (repeat the flag), into the file --out."`
	Split    string   `placeholder:"FILE" help:"Only cut an index file into --parts files in the folder --out."`
	Parts    int      `default:"2" help:"Files that --split makes."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	return indexer.RunIndex(ctx, r, indexer.IndexOptions{
		BuildOptions: indexer.BuildOptions{Vectors: c.Vectors, Passages: c.Passages, Out: c.Out, Sketch: c.Sketch},
		Format:       c.Format, Info: c.Info, Verify: c.Verify, Sample: c.Sample, K: c.K, Merge: c.Merge, Split: c.Split, Parts: c.Parts,
	})
}

func main() {
	job.Main("index", "Build index files (FAISS) from vectors; --info, --verify, --merge and --split work on those that are there.", &command{})
}
