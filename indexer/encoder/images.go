package encoder

import (
	"context"
	"errors"

	"searchloop/internal/fail"
	"searchloop/internal/model/eva"
	"searchloop/internal/model/jinav4"
	"searchloop/internal/picture"
	"searchloop/internal/tensor"
	"searchloop/internal/vec"
)

// images is the side of an encoder that reads pictures.
type images interface {
	// Prepare cuts or resizes a picture to what encode looks at.
	Prepare(p *picture.Picture) (*picture.Picture, error)
	// encode gives a vector of width numbers for each of a few pictures. What cannot be
	// prepared is an error that names the picture (Row, from 1).
	encode(pictures []*picture.Picture) (vecs []float32, width int, err error)
	Close() error
}

// batchImages is the number of pictures of one forward pass; each is some 1000
// tokens long.
const batchImages = 4

// clip is Jina-CLIP's vision tower.
type clip struct {
	tower  *eva.Tower
	square picture.Square
}

// loadClip loads the vision tower in dir, whose vectors lie in a space of dim
// numbers with those of texts.
func loadClip(on *tensor.Shared, dir string, dim int) (images, error) {
	load := eva.Load
	if on != nil {
		load = func(dir string) (*eva.Tower, error) { return eva.LoadOn(on, dir) }
	}
	tower, err := load(dir)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, "load encoder", dir, err)
	}
	c := &clip{tower: tower}
	if c.square, err = picture.LoadSquare(dir); err != nil {
		return c, fail.Wrap(fail.BadInput, "load encoder", dir, err)
	}
	if tower.Dim() != dim || tower.Image() != c.square.Side {
		return c, fail.New(fail.BadInput, "load encoder", dir, "the vision tower gives %d numbers for images of %d pixels an edge; texts give %d, images are prepared with %d",
			tower.Dim(), tower.Image(), dim, c.square.Side)
	}
	return c, nil
}

func (c *clip) Prepare(p *picture.Picture) (*picture.Picture, error) { return c.square.Cut(p) }

func (c *clip) encode(pictures []*picture.Picture) ([]float32, int, error) {
	var patches []float32
	for i, p := range pictures {
		one, err := c.square.Patches(p, c.tower.Patch())
		if err != nil {
			return nil, 0, &fail.Error{Kind: fail.BadInput, Op: "encode", Row: int64(i + 1), Err: err}
		}
		patches = append(patches, one...)
	}
	v, err := c.tower.Encode(patches)
	return v, c.tower.Dim(), err
}

func (c *clip) Close() error { return c.tower.Close() }

// v4 is jina-embeddings-v4, which reads texts as well.
type v4 struct{ *jinav4.Model }

func (m v4) encode(pictures []*picture.Picture) ([]float32, int, error) {
	v, err := m.EncodeImages(pictures)
	return v, m.Dim(), err
}

// ReadsImages says whether Images can be called.
func (e *Encoder) ReadsImages() bool { return e.images != nil }

// Prepare cuts a picture to what Images looks at; its vector stays the same.
func (e *Encoder) Prepare(p *picture.Picture) (*picture.Picture, error) {
	if e.images == nil {
		return nil, e.noImages()
	}
	return e.images.Prepare(p)
}

func (e *Encoder) noImages() error {
	return fail.WithHint(fail.Wrap(fail.BadInput, "encode", e.dir, errors.New("the encoder reads no images")), "Jina-CLIP-v2 and jina-embeddings-v4 read images and texts")
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
		v, width, err := e.images.encode(pictures[lo:min(lo+batchImages, len(pictures))])
		if one := (*fail.Error)(nil); errors.As(err, &one) && one.Row > 0 {
			return nil, &fail.Error{Kind: one.Kind, Op: "encode", Row: int64(lo) + one.Row, Err: one.Err}
		}
		if err != nil {
			return nil, fail.Wrap(fail.BadInput, "encode", e.dir, err)
		}
		out = cut(out, v, width, e.space.Dim, e.space.Normalized)
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
