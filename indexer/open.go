package indexer

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"searchloop/corpus"
	"searchloop/indexer/encoder"
	"searchloop/indexer/flat"
	"searchloop/indexer/passages"
	"searchloop/internal/fail"
	"searchloop/internal/manifest"
)

// An Option changes where Open looks.
type Option func(*places)

type places struct{ encoder, passages string }

// WithEncoder names the encoder's folder when it is not where the index was built.
// It must be the same encoder.
func WithEncoder(dir string) Option { return func(p *places) { p.encoder = dir } }

// WithPassages names the passages' folder when it is not where the index was
// built. It must be the same dataset.
func WithPassages(dir string) Option { return func(p *places) { p.passages = dir } }

// Open opens the index dataset at dir. It refuses parts that do not belong
// together: shards of another dimension or number of rows than index.json says,
// an encoder other than the vectors', passages other than those that were
// embedded, and files whose SHA-256 is not the manifest's: everything is read
// once, at the speed of the disk, so that no flipped bit changes a hit.
func Open(dir string, options ...Option) (*Index, error) {
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
	if x.encoder, err = encoder.LoadSpace(at.encoder, d.Space); err == nil {
		x.images, err = openImages(at.passages)
	}
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

func openShards(dir string, d Description) (*flat.Set, error) {
	paths := make([]string, len(d.Shards))
	for i, s := range d.Shards {
		paths[i] = filepath.Join(dir, s.Name)
	}
	set, err := flat.OpenSet(paths)
	if err != nil {
		return nil, err
	}
	for i, f := range set.Files() {
		if f.Metric != flat.InnerProduct || f.Format.String() != cmp.Or(d.Format, flat.Flat.String()) {
			err := &fail.Error{Kind: fail.BadInput, Op: "open index", Path: f.Path, Err: fmt.Errorf("holds %v vectors for the metric %v, %s says %s and %s", f.Format, f.Metric,
				descriptionFile, cmp.Or(d.Format, flat.Flat.String()), d.Metric), Hint: "the shard is of another index: run the index job again"}
			return nil, errors.Join(err, set.Close())
		}
		if f.Rows != d.Shards[i].Rows || f.Dim != d.Space.Dim {
			err := &fail.Error{Kind: fail.BadInput, Op: "open index", Path: f.Path, Err: fmt.Errorf("holds %d vectors of dimension %d, %s says %d of %d", f.Rows, f.Dim,
				descriptionFile, d.Shards[i].Rows, d.Space.Dim), Hint: "the shard is of another index: run the index job again"}
			return nil, errors.Join(err, set.Close())
		}
	}
	if d.Shards[0].Sketch != "" {
		sketches := make([]string, len(d.Shards))
		for i, s := range d.Shards {
			sketches[i] = filepath.Join(dir, s.Sketch)
		}
		if err := set.Sketch(sketches); err != nil {
			return nil, errors.Join(err, set.Close())
		}
	}
	return set, nil
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
