package encoder

import (
	"context"
	"errors"

	"searchloop/internal/fail"
	"searchloop/internal/model/eva"
	"searchloop/internal/picture"
	"searchloop/internal/tensor"
	"searchloop/internal/vec"
)

// images is the side of an encoder that reads pictures.
type images struct {
	tower  *eva.Tower
	square picture.Square
}

// batchImages is the number of pictures of one forward pass; each is some 1300
// tokens long.
const batchImages = 4

// loadImages loads the vision tower in dir, whose vectors lie in a space of dim
// numbers with those of texts.
func loadImages(on *tensor.Shared, dir string, dim int) (*images, error) {
	load := eva.Load
	if on != nil {
		load = func(dir string) (*eva.Tower, error) { return eva.LoadOn(on, dir) }
	}
	tower, err := load(dir)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, "load encoder", dir, err)
	}
	square, err := picture.LoadSquare(dir)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, "load encoder", dir, err)
	}
	if tower.Dim() != dim || tower.Image() != square.Side {
		return nil, fail.New(fail.BadInput, "load encoder", dir, "the vision tower gives %d numbers for images of %d pixels an edge; texts give %d, images are prepared with %d",
			tower.Dim(), tower.Image(), dim, square.Side)
	}
	return &images{tower, square}, nil
}

// ReadsImages says whether Images can be called.
func (e *Encoder) ReadsImages() bool { return e.images != nil }

// Prepare cuts a picture to what Images looks at; its vector stays the same.
func (e *Encoder) Prepare(p *picture.Picture) (*picture.Picture, error) {
	if e.images == nil {
		return nil, e.noImages()
	}
	return e.images.square.Cut(p)
}

func (e *Encoder) noImages() error {
	return fail.WithHint(fail.Wrap(fail.BadInput, "encode", e.dir, errors.New("the encoder reads no images")), "Jina-CLIP-v2 reads images and texts")
}

// Images encodes pictures: len(pictures)*Dim numbers, row-major, in the space of
// the texts. What cannot be prepared is an error that names the picture (Row, from 1).
func (e *Encoder) Images(ctx context.Context, pictures []*picture.Picture) ([]float32, error) {
	if e.images == nil {
		return nil, e.noImages()
	}
	out := make([]float32, 0, len(pictures)*e.space.Dim)
	for lo := 0; lo < len(pictures); lo += batchImages {
		if err := ctx.Err(); err != nil {
			return nil, fail.Wrap(fail.Interrupted, "encode", e.dir, err)
		}
		var patches []float32
		for i, p := range pictures[lo:min(lo+batchImages, len(pictures))] {
			one, err := e.images.square.Patches(p, e.images.tower.Patch())
			if err != nil {
				return nil, &fail.Error{Kind: fail.BadInput, Op: "encode", Row: int64(lo + i + 1), Err: err}
			}
			patches = append(patches, one...)
		}
		v, err := e.images.tower.Encode(patches)
		if err != nil {
			return nil, fail.Wrap(fail.BadInput, "encode", e.dir, err)
		}
		out = cut(out, v, e.images.tower.Dim(), e.space.Dim, e.space.Normalized)
	}
	return out, nil
}

// cut appends the first dim of each vector's numbers, brought to length 1 if the
// space wants that.
func cut(out, v []float32, from, dim int, normalize bool) []float32 {
	for ; len(v) > 0; v = v[from:] {
		out = append(out, v[:dim]...)
		if row := out[len(out)-dim:]; normalize {
			vec.Unit(row)
		}
	}
	return out
}
