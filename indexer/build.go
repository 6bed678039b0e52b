package indexer

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"path/filepath"

	"searchloop/indexer/flat"
	"searchloop/indexer/passages"
	"searchloop/indexer/vectors"
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
	return p
}

// Build makes an index dataset from a vectors dataset: index files of contiguous
// rows and index.json. It refuses vectors of different spaces, vectors of other
// passages, ids out of step, missing or surplus rows, NaN and infinities.
func Build(ctx context.Context, r *job.Run, o BuildOptions) error {
	if o.Format > flat.FP16 || o.Sketch && o.Format != flat.Flat {
		return fail.New(fail.Usage, "index", "", "format %v, sketch %t: the formats are flat and fp16, and only flat files have sketches", o.Format, o.Sketch)
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
	for _, s := range ds.Todo() {
		if err := buildShard(ctx, r, ds, s, src, set, o); err != nil {
			return err
		}
	}
	return ds.Seal(nil)
}

func buildShard(ctx context.Context, r *job.Run, ds *job.Dataset, spec shard.Spec, src *vectorSet, set *passages.Set, o BuildOptions) error {
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
	w, err := head.Writer(part)
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
		if err := w.Write(b.Vectors); err != nil {
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
		Passages: relative(o.Out, o.Passages), Encoder: relative(o.Out, src.encoder)}
	if o.Format != flat.Flat {
		d.Format = o.Format.String()
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
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return fail.Wrap(fail.Bug, "index", o.Out, err)
	}
	w, err := sh.Extra(descriptionFile)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return fail.Wrap(fail.Disk, "index", o.Out, err)
}

// vectorSet is an open vectors dataset.
type vectorSet struct {
	dir     string
	m       *manifest.Manifest
	space   vectors.Space
	encoder string // folder
}

// openVectors opens the dataset and the head of every part: all must be of one space.
func openVectors(dir string) (*vectorSet, error) {
	m, err := manifest.Open(dir)
	if err != nil {
		return nil, fail.WithHint(fail.Wrap(fail.BadInput, "open vectors", dir, err), "make them with the embed job")
	}
	if err := m.Require(dir, vectors.Schema, vectors.Version); err != nil {
		return nil, fail.WithHint(err, "name the folder that embed wrote")
	}
	var meta vectorsMeta
	if err := json.Unmarshal(m.Meta, &meta); err != nil {
		return nil, fail.New(fail.BadInput, "open vectors", dir, "the manifest does not say which space the vectors are of: %w", err)
	}
	s := &vectorSet{dir: dir, m: m, space: meta.Space, encoder: resolve(dir, meta.Encoder)}
	for _, p := range m.Data() {
		r, err := vectors.Open(filepath.Join(dir, p.Name))
		if err != nil {
			return nil, err
		}
		diff := r.Space().Diff(s.space)
		if err := r.Close(); err != nil {
			return nil, err
		}
		if diff != "" {
			return nil, &fail.Error{Kind: fail.BadInput, Op: "open vectors", Path: filepath.Join(dir, p.Name), Err: fmt.Errorf("not of the space of the other parts: %s", diff),
				Hint: "vectors of different encoders cannot be compared: embed all passages with one"}
		}
	}
	return s, nil
}

// belongsTo checks that the vectors were made from these passages.
func (s *vectorSet) belongsTo(set *passages.Set) error {
	bad := func(format string, args ...any) error {
		return &fail.Error{Kind: fail.BadInput, Op: "index", Path: s.dir, Err: fmt.Errorf(format, args...), Hint: "run the embed job on " + set.Dir}
	}
	for _, in := range s.m.Inputs {
		if in.Name == "passages" && in.SHA256 != set.Digest() {
			return bad("the vectors are of other passages (%s), or these were made anew since", in.Path)
		}
	}
	if n := s.m.Rows(); n != set.Rows() {
		return bad("%d vectors for %d passages", n, set.Rows())
	}
	return nil
}

// rows yields rows lo to hi-1, a batch at a time. Every part is verified before
// it is read and must have the rows that the manifest says.
func (s *vectorSet) rows(lo, hi int64) iter.Seq2[vectors.Batch, error] {
	return func(yield func(vectors.Batch, error) bool) {
		var start int64
		for _, p := range s.m.Data() {
			if from, to := max(lo-start, 0), min(hi-start, p.Rows); from < to {
				if !s.part(p, from, to, yield) {
					return
				}
			}
			start += p.Rows
		}
	}
}

// part yields rows lo to hi-1 of one part and says whether to go on.
func (s *vectorSet) part(p manifest.Part, lo, hi int64, yield func(vectors.Batch, error) bool) bool {
	if err := p.Verify(s.dir); err != nil {
		yield(vectors.Batch{}, err)
		return false
	}
	path := filepath.Join(s.dir, p.Name)
	r, err := vectors.Open(path)
	if err != nil {
		yield(vectors.Batch{}, err)
		return false
	}
	defer r.Close()
	var at int64
	for b, err := range r.Batches() {
		if err != nil {
			yield(vectors.Batch{}, err)
			return false
		}
		n := int64(len(b.IDs))
		if from, to := max(lo-at, 0), min(hi-at, n); from < to {
			d := int64(s.space.Dim)
			if !yield(vectors.Batch{IDs: b.IDs[from:to], Vectors: b.Vectors[from*d : to*d]}, nil) {
				return false
			}
		}
		at += n
	}
	if at != p.Rows {
		yield(vectors.Batch{}, &fail.Error{Kind: fail.BadInput, Op: "read vectors", Path: path, Err: fmt.Errorf("%d rows, the manifest says %d", at, p.Rows),
			Hint: "run the embed job with --fresh"})
		return false
	}
	return true
}
