package tool

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/picture"
	"searchloop/internal/table"
)

// Gallery finds images that look like a picture, without a model: pictures are
// compared as 8×8 thumbnails of their colours, by cosine after the mean is taken
// off. It knows copies, crops and recolourings of the same picture, not the same
// thing in another one. Safe for concurrent use.
type Gallery struct {
	hits []Hit
	vecs []float32 // of all, one after the other
}

// maxGallery is how many images are compared one by one.
const maxGallery = 200_000

const side, gallerySize = 8, 8 * 8 * 3

// OpenGallery reads a passages dataset with images. Images that cannot be read are
// left out; how many is returned.
func OpenGallery(dir string, stores ...*corpus.ImageStore) (g *Gallery, left int, err error) {
	g = &Gallery{}
	for row, err := range table.ReadDataset[corpus.Passage](dir) {
		if err != nil {
			return nil, 0, err
		}
		if row.ImageID == "" {
			continue
		}
		if len(g.hits) >= maxGallery {
			return nil, 0, fail.New(fail.Usage, "open gallery", dir, "more than %d images", maxGallery)
		}
		p, err := fetch(row.ImageID, stores)
		if fail.KindOf(err) == fail.Disk && err != nil {
			return nil, 0, err
		}
		if err != nil {
			left++
			continue
		}
		g.hits = append(g.hits, Hit{Contents: row.Contents, ImageID: row.ImageID, Link: link(row.ID)})
		g.vecs = append(g.vecs, look(p)...)
	}
	return g, left, nil
}

func fetch(id string, stores []*corpus.ImageStore) (*picture.Picture, error) {
	err := errors.New("no image store")
	for _, s := range stores {
		var data []byte
		if data, err = s.Get(id); err == nil {
			return picture.Decode(data)
		}
	}
	return nil, err
}

// look is the vector of a picture, of length 1 unless the picture is of one colour.
func look(p *picture.Picture) []float32 {
	small := p.Resize(side, side)
	v := make([]float32, gallerySize)
	var mean, norm float64
	for _, b := range small.Pix {
		mean += float64(b) / gallerySize
	}
	for i, b := range small.Pix {
		v[i] = float32(float64(b) - mean)
		norm += float64(v[i]) * float64(v[i])
	}
	if norm = math.Sqrt(norm); norm > 0 {
		for i := range v {
			v[i] = float32(float64(v[i]) / norm)
		}
	}
	return v
}

// Like finds the k images that look most like p, equal ones in the dataset's order.
func (g *Gallery) Like(ctx context.Context, p *picture.Picture, _ string, k int) ([]Hit, error) {
	q := look(p)
	out := make([]Hit, len(g.hits))
	for i := range g.hits {
		if i%4096 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var s float32
		for j, x := range g.vecs[i*gallerySize : (i+1)*gallerySize] {
			s += x * q[j]
		}
		out[i] = g.hits[i]
		out[i].Score = s
	}
	byScore(out)
	return out[:min(k, len(out))], nil
}

// byScore sorts hits, best first, equal ones in their order.
func byScore(hits []Hit) {
	slices.SortStableFunc(hits, func(a, b Hit) int { return cmp.Compare(b.Score, a.Score) })
}
