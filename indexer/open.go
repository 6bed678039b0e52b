package indexer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"searchloop/corpus"
	"searchloop/indexer/encoder/served"
	"searchloop/indexer/flat/gpu"
	"searchloop/indexer/passages"
	"searchloop/internal/fail"
	"searchloop/internal/manifest"
)

// An Option changes where Open looks.
type Option func(*places)

type places struct {
	encoder, passages string
	server            served.Options
	gpu               gpu.Options
}

// WithEncoder names the encoder's folder, or its server's address, when it is not
// where the index was built. It must be the same encoder.
func WithEncoder(dir string) Option { return func(p *places) { p.encoder = dir } }

// WithPassages names the passages' folder when it is not where the index was
// built. It must be the same dataset.
func WithPassages(dir string) Option { return func(p *places) { p.passages = dir } }

// WithServer says how a server of the encoder is asked, if it is in one. What
// decides its vectors is the index' to say.
func WithServer(o served.Options) Option { return func(p *places) { p.server = o } }

// WithDevice says where flat indices are searched; without it on the CPU. Hits are
// the same everywhere.
func WithDevice(o gpu.Options) Option { return func(p *places) { p.gpu = o } }

// Open opens the index dataset at dir. It refuses parts that do not belong
// together: shards of another dimension or number of rows than index.json says,
// an encoder other than the vectors', passages other than those that were
// embedded, and files whose SHA-256 is not the manifest's: everything is read
// once, at the speed of the disk, so that no flipped bit changes a hit. Of an encoder
// in a server, whose weights are not seen, some vectors are compared with the index'.
func Open(ctx context.Context, dir string, options ...Option) (*Index, error) {
	m, err := manifest.Open(dir)
	if err != nil {
		return nil, fail.WithHint(fail.Wrap(fail.BadInput, "open index", dir, err), "make the index with the index job")
	}
	if err := m.Require(dir, Schema, Version); err != nil {
		return nil, fail.WithHint(err, "name the folder that the index job made")
	}
	if err := m.Verify(dir); err != nil {
		return nil, fail.Wrap(fail.BadInput, "open index", dir, err)
	}
	d, err := readDescription(dir)
	if err != nil {
		return nil, err
	}
	at := places{encoder: resolve(dir, d.Encoder), passages: resolve(dir, d.Passages)}
	for _, o := range options {
		o(&at)
	}
	x := &Index{d: d}
	if x.vectors, err = openShards(dir, d); err != nil {
		return nil, err
	}
	if x.passages, err = openPassages(at.passages, d); err != nil {
		return nil, errors.Join(err, x.vectors.Close())
	}
	at.server.Images = cmp.Or(at.server.Images, d.Images)
	if x.encoder, err = openSpace(ctx, at.encoder, d.Space, at.server); err == nil {
		x.images, err = openImages(at.passages)
	}
	if own, flat := x.vectors.(exact); err == nil && flat && served.Is(at.encoder) && d.Space.Content == "" {
		err = fail.Wrap(fail.BadInput, "open index", dir, sameVectors(ctx, x.encoder, x.passages.At, own.Set))
	}
	if err == nil {
		err = x.place(dir, at.gpu)
	}
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

func openPassages(dir string, d Description) (*passages.Set, error) {
	p, err := passages.OpenRandom(dir)
	if err != nil {
		return nil, err
	}
	if p.Digest() != d.Corpus || p.Rows() != d.Rows {
		err := &fail.Error{Kind: fail.BadInput, Op: "open index", Path: dir, Err: fmt.Errorf("these are not the passages that were indexed: %d rows, the index has %d",
			p.Rows(), d.Rows), Hint: "the corpus was made anew: run embed and index again"}
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// openImages opens the images beside the passages of an image corpus.
func openImages(dir string) (*corpus.ImageStore, error) {
	images := filepath.Join(dir, "images")
	if st, err := os.Stat(images); err != nil || !st.IsDir() {
		return nil, nil
	}
	return corpus.OpenStore(images)
}

// ImagePath is the absolute path of an image's file.
func (x *Index) ImagePath(sha string) (string, error) {
	if x.images == nil {
		return "", &fail.Error{Kind: fail.BadInput, Op: "find image", Path: x.passages.Dir, Sample: sha, Err: errors.New("the corpus has no images folder"),
			Hint: "prep writes it beside the passages"}
	}
	path, err := x.images.Path(sha)
	if err != nil {
		return "", err
	}
	path, err = filepath.Abs(path)
	return path, fail.Wrap(fail.Bug, "find image", path, err)
}
