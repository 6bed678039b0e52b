package indexer

import (
	"context"
	"fmt"

	"searchloop/indexer/encoder"
	"searchloop/indexer/encoder/served"
	"searchloop/indexer/vectors"
	"searchloop/internal/device"
	"searchloop/internal/fail"
	"searchloop/internal/llm"
	"searchloop/internal/picture"
	"searchloop/internal/tensor"
)

// Encoder turns texts and pictures into vectors of one space: an *encoder.Encoder
// in this process, or a *served.Encoder. It is safe for concurrent use.
type Encoder interface {
	Space() vectors.Space
	Dir() string // its folder, or the server's address
	Queries(ctx context.Context, texts []string) ([]float32, error)
	Passages(ctx context.Context, texts []string) ([]float32, error)
	ReadsImages() bool
	Prepare(*picture.Picture) (*picture.Picture, error)
	Images(ctx context.Context, pictures []*picture.Picture) ([]float32, error)
	Parallel() int // how many calls are worth having under way at once
}

// openEncoder loads the encoder in a folder, of which s has only the override, or
// connects to the one at an address. on is the GPU of a folder's; nil:
// the processor. products is how most of texts are taken there.
func openEncoder(ctx context.Context, place string, s served.Options, on *device.GPU, products tensor.Products) (Encoder, error) {
	if served.Is(place) {
		if on != nil || products != tensor.OwnProducts {
			return nil, fail.New(fail.Usage, "load encoder", place, "a device is said for an encoder in a folder; a server has its own")
		}
		return served.Connect(ctx, place, s)
	}
	if s.Model != "" || s.Images != llm.NoImages || s.Normalize {
		return nil, fail.New(fail.Usage, "load encoder", place, "the model, the form of images and whether vectors are normalised are said for an encoder in a server (http://…); a folder has them in its files")
	}
	switch {
	case on != nil:
		return encoder.LoadOn(&on.Shared, place, s.Override, products)
	case products != tensor.OwnProducts:
		return nil, fail.WithHint(fail.New(fail.Usage, "load encoder", place, "products in 8 bits are a GPU's"), "say --device cuda, or --products bf16")
	}
	return encoder.Load(place, s.Override)
}

// openSpace is openEncoder for vectors of a space that exists already.
func openSpace(ctx context.Context, place string, space vectors.Space, s served.Options) (Encoder, error) {
	model, remote := space.Served()
	switch {
	case served.Is(place):
		return served.ConnectSpace(ctx, place, space, s)
	case remote:
		return nil, &fail.Error{Kind: fail.BadInput, Op: "open index", Path: place, Err: fmt.Errorf("the vectors are of the model %q of a server, and this is no address of one", model),
			Hint: "name the server: --encoder http://host:port"}
	}
	return encoder.LoadSpace(place, space)
}
