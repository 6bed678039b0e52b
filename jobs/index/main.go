// Command index builds an inner-product index, in FAISS's file formats, from
// vectors, and looks into, checks, joins and cuts index files.
package main

import (
	"context"

	"searchloop/indexer"
	"searchloop/indexer/encoder"
	"searchloop/indexer/encoder/served"
	"searchloop/indexer/faiss"
	"searchloop/internal/job"
)

type command struct {
	job.Flags
	Server        served.ModelFlags `embed:""`
	Vectors       string            `placeholder:"DIR" help:"Vectors dataset. With --verify: compare with these."`
	Passages      string            `placeholder:"DIR" help:"Passages dataset that the vectors were made from."`
	Out           string            `placeholder:"PATH" help:"Index dataset to make; with --merge the file, with --split the folder."`
	Format        string            `enum:"flat,fp16" default:"flat" help:"How vectors are stored: flat (float32) or fp16."`
	Sketch        bool              `help:"Also store a byte a number, from which single queries are searched faster; hits stay exact."`
	Factory       string            `placeholder:"KIND" help:"Build another kind of index, by FAISS: IVF1024,Flat or any factory string. Flat and SQfp16 are the two formats."`
	Train         int               `placeholder:"N" help:"Vectors to train such an index with (default: 64 a list, at least 65536)."`
	Seed          uint64            `default:"1" help:"Seed of the choice of these."`
	NProbe        int               `name:"nprobe" placeholder:"N" help:"Lists of an IVF index that a search looks into when it does not say; with --verify: of this check."`
	EfSearch      int               `placeholder:"N" help:"Candidates of an HNSW index, likewise."`
	Info          []string          `sep:"none" placeholder:"PATH" help:"Only print what the head of an index file, or an index dataset, says."`
	Verify        string            `placeholder:"DIR" help:"Only compare the search of an index dataset with an exact one; noted in DIR/index.json."`
	Sample        int               `default:"64" help:"Queries of --verify."`
	K             int               `default:"5" help:"Hits a query of --verify."`
	Merge         []string          `sep:"none" placeholder:"FILE" help:"Only join index files, in this order (repeat the flag), into the file --out."`
	Split         string            `placeholder:"FILE" help:"Only cut an index file into --parts files in the folder --out."`
	Adopt         string            `placeholder:"FILE" help:"Only make an index dataset of a FAISS file that somebody else made, for --passages and --encoder."`
	Encoder       string            `placeholder:"DIR|URL" help:"Encoder of the vectors in --adopt: its folder or server."`
	QueryPrefix   *string           `placeholder:"TEXT" help:"Text before queries of that encoder, instead of what its folder or name says."`
	PassagePrefix *string           `placeholder:"TEXT" help:"Text before passages, likewise."`
	Dim           *int              `placeholder:"N" help:"Numbers that vectors of that encoder were cut to (Matryoshka)."`
	Parts         int               `default:"2" help:"Files that --split makes."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	return indexer.RunIndex(ctx, r, c.options())
}

func (c *command) options() indexer.IndexOptions {
	server := c.Server.Options()
	server.Override = encoder.Override{QueryPrefix: c.QueryPrefix, PassagePrefix: c.PassagePrefix, Dim: c.Dim}
	return indexer.IndexOptions{
		BuildOptions: indexer.BuildOptions{Vectors: c.Vectors, Passages: c.Passages, Out: c.Out, Sketch: c.Sketch,
			FAISS: indexer.FAISSOptions{Factory: c.Factory, Train: c.Train, Seed: c.Seed, Effort: faiss.Effort{NProbe: c.NProbe, EfSearch: c.EfSearch}}},
		Format: c.Format, Info: c.Info, Verify: c.Verify, Sample: c.Sample, K: c.K, Merge: c.Merge, Split: c.Split, Parts: c.Parts, Adopt: c.Adopt, Encoder: c.Encoder, Server: server,
	}
}

func main() {
	job.Main("index", "Build index files (FAISS) from vectors; --info, --verify, --merge and --split work on those that are there.", &command{})
}
