// Command retrieve serves an index over HTTP, as Search-R1's and
// MM-DeepResearch's retrieval servers do.
package main

import (
	"context"
	"time"

	"searchloop/indexer/encoder/served"
	"searchloop/indexer/faiss"
	"searchloop/indexer/flat/gpu"
	"searchloop/indexer/retrieve"
	"searchloop/internal/job"
)

type command struct {
	job.Serving
	Server     served.Flags  `embed:""`
	GPU        gpu.Flags     `embed:""`
	Index      string        `required:"" placeholder:"DIR" help:"Index dataset."`
	Addr       string        `default:":9000" help:"Address to listen on."`
	Topk       int           `default:"3" help:"Documents a query when the request does not say."`
	MaxTopk    int           `default:"1000" help:"Most documents a query that a request may ask for."`
	MaxQueries int           `default:"1024" help:"Most queries of one request."`
	Waiting    int           `default:"1024" help:"Requests that may wait; more are told to come back (429)."`
	Batch      int           `default:"256" help:"Queries searched together."`
	Patience   time.Duration `default:"2ms" help:"How long a search waits for as many requests as the last one had."`
	Words      string        `placeholder:"DIR" help:"Rank by words (BM25) too and fuse both rankings; the index of words is kept in DIR."`
	NProbe     int           `name:"nprobe" placeholder:"N" help:"Lists of an IVF index that a search looks into when the request does not say (default: index.json's)."`
	EfSearch   int           `placeholder:"N" help:"Candidates of an HNSW index, likewise."`
	Encoder    string        `placeholder:"DIR|URL" help:"Encoder folder or server, when it is not where the index was built. A server's key: EMBED_API_KEY."`
	Passages   string        `placeholder:"DIR" help:"Passages dataset, when it is not where the index was built."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	return retrieve.Run(ctx, r, retrieve.RunOptions{Index: c.Index, Addr: c.Addr, Encoder: c.Encoder, Passages: c.Passages, Words: c.Words, EncoderServer: c.Server.Options(), Device: c.GPU,
		Server: retrieve.Options{TopK: c.Topk, MaxTopK: c.MaxTopk, MaxQueries: c.MaxQueries, Waiting: c.Waiting, Batch: c.Batch, Patience: c.Patience,
			Effort: faiss.Effort{NProbe: c.NProbe, EfSearch: c.EfSearch}}})
}

func main() {
	job.Main("retrieve", "Serve an index: POST /retrieve, GET /health, GET /metrics.", &command{})
}
