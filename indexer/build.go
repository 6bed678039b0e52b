package indexer

import (
	"context"
	"fmt"
	"iter"

	"searchloop/indexer/faiss"
	"searchloop/indexer/flat"
	"searchloop/indexer/passages"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/shard"
)

// BuildOptions are the folders that Build reads and the one it makes.
type BuildOptions struct {
	Vectors, Passages, Out string
	Format                 flat.Format // Flat or FP16
	// Sketch adds SQ8 files from which single queries are searched first; the
	// hits stay exact. For Flat only.
	Sketch bool
	FAISS  FAISSOptions
}

// FAISSOptions make an index of another kind than flat, by FAISS.
type FAISSOptions struct {
	Factory string // "IVF1024,Flat"; "": not by FAISS
	Train   int    // vectors to train with; 0: what the factory string wants
	Seed    uint64 // of the choice of these
	Effort  faiss.Effort
}

// params is what the output depends on.
func (o *BuildOptions) params() map[string]any {
	p := map[string]any{"metric": MetricInnerProduct}
	if o.Format != flat.Flat {
		p["format"] = o.Format.String()
	}
	if o.Sketch {
		p["sketch"] = flat.SQ8.String()
	}
	if f := o.FAISS; f.Factory != "" {
		p["faiss"] = map[string]any{"factory": f.Factory, "train": f.sample(), "seed": f.Seed, "search": f.Effort}
	}
	return p
}

// Build makes an index dataset from a vectors dataset: index files of contiguous
// rows and index.json. It refuses vectors of different spaces, vectors of other
// passages, ids out of step, missing or surplus rows, NaN and infinities.
func Build(ctx context.Context, r *job.Run, o BuildOptions) error {
	if o.Format > flat.FP16 || o.Sketch && o.Format != flat.Flat {
		return fail.New(fail.Usage, "index", "", "format %v, sketch %t: the formats are flat and fp16, and only flat files have sketches", o.Format, o.Sketch)
	}
	if err := o.checkFAISS(); err != nil {
		return err
	}
	src, err := openVectors(o.Vectors)
	if err != nil {
		return err
	}
	set, err := passages.Open(o.Passages)
	if err != nil {
		return err
	}
	if err := src.belongsTo(set); err != nil {
		return err
	}
	ds, err := r.Dataset(job.Spec{Dir: o.Out, Schema: Schema, Version: Version, Ext: "index",
		Inputs: map[string]string{"vectors": o.Vectors, "passages": o.Passages}, Params: o.params()})
	if err != nil || ds.Complete() || ds.DryRun() {
		return err
	}
	var trained *faiss.Trained
	if todo := ds.Todo(); o.FAISS.Factory != "" && len(todo) > 0 {
		if trained, err = train(ctx, r, src, o.FAISS); err != nil {
			return err
		}
		defer trained.Close()
	}
	for _, s := range ds.Todo() {
		if err := buildShard(ctx, r, ds, s, src, set, o, trained); err != nil {
			return err
		}
	}
	return ds.Seal(nil)
}

// rowWriter takes the vectors of a shard.
type rowWriter interface {
	Write(vectors []float32) error
	Close() error
}

func buildShard(ctx context.Context, r *job.Run, ds *job.Dataset, spec shard.Spec, src *vectorSet, set *passages.Set, o BuildOptions, trained *faiss.Trained) error {
	sh, err := ds.Begin(spec)
	if err != nil || sh == nil {
		return err
	}
	defer sh.Discard()
	part, err := sh.Part()
	if err != nil {
		return err
	}
	lo, hi := spec.Range(set.Rows())
	head := flat.Header{Dim: src.space.Dim, Rows: hi - lo, Format: o.Format}
	var w rowWriter
	if trained == nil {
		w, err = head.Writer(part)
	} else {
		var f *faiss.Writer
		if f, err = trained.Writer(part, lo, hi-lo); err == nil {
			defer f.Discard()
		}
		w = f
	}
	if err != nil {
		return err
	}
	progress := r.Progress("index", hi-lo)
	defer progress.Done()
	id, stop := iter.Pull2(set.IDs(lo, hi))
	defer stop()
	row := lo
	var ranges flat.Ranges
	for b, err := range src.rows(lo, hi) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fail.Wrap(fail.BadInput, "index", src.dir, err)
		}
		for _, have := range b.IDs {
			want, err, ok := id()
			if err != nil {
				return err
			}
			if !ok || want.ID != have {
				return &fail.Error{Kind: fail.BadInput, Op: "index", Path: src.dir, Row: row + 1, Sample: have,
					Err: fmt.Errorf("the vector is of passage %q, row %d of the passages is %q", have, row+1, want.ID), Hint: "run the embed job on these passages"}
			}
			row++
		}
		if halves, ok := w.(interface{ WriteHalves([]uint16) error }); ok && o.Format == flat.FP16 && len(b.Halves) > 0 {
			err = halves.WriteHalves(b.Halves)
		} else {
			err = w.Write(b.Vectors)
		}
		if err != nil {
			return err
		}
		if o.Sketch {
			ranges.Add(b.Vectors, src.space.Dim)
		}
		progress.Add(int64(len(b.IDs)), 0)
		if err := r.Interrupted(); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if o.Sketch {
		head.Format, head.Trained = flat.SQ8, ranges.Trained(head.Dim)
		if err := sketch(r, sh, head, src, lo); err != nil {
			return err
		}
	}
	if spec.I == 0 {
		if err := describe(sh, spec.N, src, set, o); err != nil {
			return err
		}
	}
	return sh.Commit(hi-lo, manifest.Counts{In: hi - lo, OK: hi - lo})
}

// sketchName is the file of a shard's sketch.
func sketchName(s shard.Spec) string { return s.Name("sketch", "index") }

// sketch writes the rows from lo on a second time, a byte a number.
func sketch(r *job.Run, sh *job.Shard, head flat.Header, src *vectorSet, lo int64) error {
	f, err := sh.Extra(sketchName(sh.Shard))
	if err != nil {
		return err
	}
	w, err := head.Writer(f)
	if err != nil {
		return err
	}
	for b, err := range src.rows(lo, lo+head.Rows) {
		if err != nil {
			return err
		}
		if err := w.Write(b.Vectors); err != nil {
			return err
		}
		if err := r.Interrupted(); err != nil {
			return err
		}
	}
	return w.Close()
}

// describe writes index.json. The first shard does it, because all that is in it
// is known before any other shard is made.
func describe(sh *job.Shard, n int, src *vectorSet, set *passages.Set, o BuildOptions) error {
	d := Description{Schema: Schema, Version: Version, Metric: MetricInnerProduct, Rows: set.Rows(), Space: src.space, Corpus: set.Digest(),
		Passages: relative(o.Out, o.Passages), Encoder: relative(o.Out, src.encoder), Images: src.images}
	if o.Format != flat.Flat {
		d.Format = o.Format.String()
	}
	if o.FAISS.Factory != "" {
		d.Format, d.Factory, d.Effort = FormatFAISS, o.FAISS.Factory, o.FAISS.Effort
	}
	for i := range n {
		s := shard.Spec{I: i, N: n}
		lo, hi := s.Range(set.Rows())
		one := ShardRows{Name: s.Name("part", "index"), First: lo, Rows: hi - lo}
		if o.Sketch {
			one.Sketch = sketchName(s)
		}
		d.Shards = append(d.Shards, one)
	}
	return d.write(sh)
}

// write adds index.json to the dataset.
func (d Description) write(sh *job.Shard) error {
	text, err := d.text()
	if err != nil {
		return err
	}
	w, err := sh.Extra(descriptionFile)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return fail.Wrap(fail.Disk, "write index", descriptionFile, err)
}
