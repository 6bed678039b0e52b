package indexer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"searchloop/corpus"
	"searchloop/indexer/encoder/served"
	"searchloop/indexer/faiss"
	"searchloop/indexer/flat"
	"searchloop/indexer/passages"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/tensor"
)

// AdoptOptions are an index file that somebody else made, the passages that it is
// of, row by row, the encoder that made its vectors, and the dataset to make.
type AdoptOptions struct {
	File, Passages, Encoder, Out string
	Server                       served.Options // its Override is that of any encoder; the rest is for one that is an address
	Effort                       faiss.Effort
}

// Adopt makes an index dataset of a published index file. It refuses a file of
// another dimension than the encoder's or another number of rows than the
// passages', and a flat file whose vectors are not what the encoder makes of the
// passages.
func Adopt(ctx context.Context, r *job.Run, o AdoptOptions) error {
	o.Server.Log = r.Log
	enc, err := openEncoder(ctx, o.Encoder, o.Server, nil, tensor.OwnProducts)
	if err != nil {
		return err
	}
	set, err := passages.Open(o.Passages)
	if err != nil {
		return err
	}
	images, err := openImages(o.Passages)
	if err != nil {
		return err
	}
	space, err := contentOf(enc, EmbedOptions{Encoder: o.Encoder, Passages: o.Passages}, &images)
	if err != nil {
		return err
	}
	d := Description{Schema: Schema, Version: Version, Metric: MetricInnerProduct, Rows: set.Rows(), Space: space, Corpus: set.Digest(),
		Passages: relative(o.Out, o.Passages), Encoder: relative(o.Out, enc.Dir()), Images: o.Server.Images, Effort: o.Effort}
	if err := d.formatOf(o.File); err != nil {
		return err
	}
	ds, err := r.Dataset(job.Spec{Dir: o.Out, Schema: Schema, Version: Version, Ext: "index", Single: true,
		Inputs: map[string]string{"file": o.File, "passages": o.Passages}, Params: map[string]any{"metric": d.Metric, "space": space, "search": o.Effort}})
	if err != nil || ds.Complete() || ds.DryRun() {
		return err
	}
	shards, err := openKind([]string{o.File}, nil, d)
	if err != nil {
		return err
	}
	defer shards.Close()
	if rows, dim := shards.ShardRows()[0], shards.Dim(); rows != set.Rows() || dim != space.Dim {
		hint := fmt.Sprintf("name the passages it was made from and an encoder of dimension %d%s", dim, usual[dim])
		if dim < space.Dim {
			hint += fmt.Sprintf("; or say --dim %d, if this encoder's vectors were cut to it", dim)
		}
		return &fail.Error{Kind: fail.BadInput, Op: "adopt index", Path: o.File, Err: fmt.Errorf("holds %d vectors of dimension %d; there are %d passages and the encoder makes dimension %d", rows, dim, set.Rows(), space.Dim),
			Hint: hint}
	}
	if own, flat := shards.(exact); flat && images == nil {
		if err := compare(ctx, enc, o.Passages, own.Set); err != nil {
			return fail.Wrap(fail.BadInput, "adopt index", o.File, err)
		}
	}
	for _, s := range ds.Todo() {
		sh, err := ds.Begin(s)
		if err != nil || sh == nil {
			return err
		}
		defer sh.Discard()
		d.Shards = []ShardRows{{Name: s.Name("part", "index"), Rows: d.Rows}}
		if err := copyFile(sh, o.File, d); err != nil {
			return err
		}
		if err := sh.Commit(d.Rows, manifest.Counts{In: d.Rows, OK: d.Rows}); err != nil {
			return err
		}
	}
	return ds.Seal(nil)
}

// usual names encoders by the dimension of their vectors, for a person who has only
// the file: published indices do not say whose vectors they hold, or say it wrong.
var usual = map[int]string{
	384:  ": e5-small-v2, multilingual-e5-small, bge-small-en-v1.5 and all-MiniLM-L6-v2 make such vectors",
	768:  ": e5-base-v2, multilingual-e5-base and bge-base-en-v1.5 make such vectors",
	1024: ": e5-large-v2, multilingual-e5-large, bge-large-en-v1.5 and jina-clip-v2 make such vectors",
	2048: ": jina-embeddings-v4 makes such vectors",
}

// formatOf fills in what kind of index the file is.
func (d *Description) formatOf(path string) error {
	head, err := faiss.ReadHead(path)
	if err != nil {
		return err
	}
	if !head.Flat() {
		d.Format = FormatFAISS
		return nil
	}
	if (d.Effort != faiss.Effort{}) {
		return fail.New(fail.Usage, "adopt index", path, "nprobe and ef_search mean nothing to an exact index")
	}
	h, err := flat.Info(path)
	if h.Format != flat.Flat {
		d.Format = h.Format.String()
	}
	return err
}

func copyFile(sh *job.Shard, path string, d Description) error {
	part, err := sh.Part()
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return fail.Wrap(fail.BadInput, "adopt index", path, err)
	}
	defer f.Close()
	if _, err := io.Copy(part, f); err != nil {
		return fail.Wrap(fail.Disk, "copy index", path, err)
	}
	return d.write(sh)
}

func compare(ctx context.Context, enc Encoder, dir string, have *flat.Set) error {
	set, err := passages.OpenRandom(dir)
	if err != nil {
		return err
	}
	return errors.Join(sameVectors(ctx, enc, set.At, have), set.Close())
}

// sameVectors encodes a few passages and compares with the vectors that are there:
// half floats, other libraries and other batch sizes leave a cosine well above 0.99.
func sameVectors(ctx context.Context, enc Encoder, at func(row int64) (corpus.Passage, error), have *flat.Set) error {
	const sample, least = 8, 0.99
	var rows []int64
	var some []corpus.Passage
	var texts []string
	for i := range min(sample, have.Rows()) {
		row := i * have.Rows() / min(sample, have.Rows())
		p, err := at(row)
		if err != nil {
			return err
		}
		rows, some, texts = append(rows, row), append(some, p), append(texts, p.Contents)
	}
	v, err := enc.Passages(ctx, texts)
	if err != nil {
		return err
	}
	for i, row := range rows {
		d := have.Dim()
		if c := cosine(v[i*d:(i+1)*d], have.Row(row)); !(c >= least) {
			return &fail.Error{Kind: fail.BadInput, Op: "compare vectors", Row: row + 1, Sample: some[i].ID, Err: fmt.Errorf("cosine %.3f between the vector there and the encoder's", c),
				Hint: "the index is of another encoder, of another prefix or pooling, or of other passages"}
		}
	}
	return nil
}

func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab += float64(a[i]) * float64(b[i])
		aa += float64(a[i]) * float64(a[i])
		bb += float64(b[i]) * float64(b[i])
	}
	return ab / math.Sqrt(aa*bb)
}

// adoptOnly refuses what means nothing beside --adopt.
func (o *IndexOptions) adoptOnly() error {
	if o.Vectors != "" || o.Sketch || o.FAISS.Factory != "" || o.Encoder == "" || o.Passages == "" || o.Out == "" {
		return &fail.Error{Kind: fail.Usage, Op: "index", Err: errors.New("--adopt goes with --passages, --encoder and --out, and --nprobe or --ef-search"), Hint: "the file is taken as it is"}
	}
	return nil
}
