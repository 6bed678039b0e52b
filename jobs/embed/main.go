// Command embed turns passages, or their images, into vectors.
package main

import (
	"context"

	"searchloop/indexer"
	"searchloop/indexer/encoder"
	"searchloop/indexer/encoder/served"
	"searchloop/internal/device"
	"searchloop/internal/job"
	"searchloop/internal/tensor"
)

type command struct {
	job.Flags
	Server        served.ModelFlags `embed:""`
	Encoder       string            `required:"" placeholder:"DIR|URL" help:"Encoder folder: E5, BGE, MiniLM, jina-embeddings-v3, Jina-CLIP-v2, or what the encoder job made. Or an OpenAI-compatible server of embeddings (key: EMBED_API_KEY)."`
	Passages      string            `required:"" placeholder:"DIR" help:"Passages dataset."`
	Out           string            `required:"" placeholder:"DIR" help:"Vectors dataset to make."`
	QueryPrefix   *string           `placeholder:"TEXT" help:"Text put before queries, instead of the encoder folder's."`
	PassagePrefix *string           `placeholder:"TEXT" help:"Text put before passages, instead of the encoder folder's."`
	MaxTokens     *int              `placeholder:"N" help:"Longest sequence, marks included, instead of the encoder folder's."`
	Dim           *int              `placeholder:"N" help:"Cut vectors to N numbers, for encoders made for it (Matryoshka)."`
	Format        string            `enum:"fp32,fp16" default:"fp32" help:"How vectors are stored: fp32 or fp16 (half the size, rounded)."`
	Device        string            `default:"cpu" placeholder:"DEVICE" help:"Where a folder's encoder computes: cpu, cuda, cuda:N, or auto (a GPU if there is one)."`
	Products      string            `enum:"bf16,fp8,int8" default:"bf16" help:"On a GPU: products in bfloat16, or most of them in 8 bits, which is faster and less exact: fp8 (e4m3), or int8, which is nearer to bf16."`
	Content       string            `enum:",text,image" default:"" placeholder:"KIND" help:"What to embed, text or image. Without it images, if the encoder reads them and the passages have them."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	gpu, err := device.Open(c.Device, r.Log)
	if err != nil {
		return err
	}
	return indexer.Embed(ctx, r, indexer.EmbedOptions{Encoder: c.Encoder, Passages: c.Passages, Out: c.Out, Content: c.Content, GPU: gpu, Products: tensor.ProductsOf(c.Products),
		Server: c.Server.Options(), Half: c.Format == "fp16",
		Override: encoder.Override{QueryPrefix: c.QueryPrefix, PassagePrefix: c.PassagePrefix, MaxTokens: c.MaxTokens, Dim: c.Dim}})
}

func main() {
	job.Main("embed", "Embed passages into vectors; a rerun goes on where the last one stopped.", &command{})
}
