package indexer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"searchloop/indexer/faiss"
	"searchloop/indexer/flat"
	"searchloop/indexer/flat/gpu"
	"searchloop/internal/fail"
)

// searcher is the shards of an index, of whatever kind.
type searcher interface {
	SearchRange(ctx context.Context, queries []float32, k int, e faiss.Effort, among flat.Range) ([][]flat.Hit, error)
	Dim() int
	ShardRows() []int64
	Close() error
}

// exact is a flat set, which GPUs may search. It has no effort to choose.
type exact struct {
	*flat.Set
	on *gpu.Set // or nil
}

func (x exact) SearchRange(ctx context.Context, queries []float32, k int, e faiss.Effort, among flat.Range) ([][]flat.Hit, error) {
	if (e != faiss.Effort{}) {
		return nil, &fail.Error{Kind: fail.Usage, Op: "search index", Err: errors.New("nprobe and ef_search mean nothing to an exact index"), Hint: "leave them out"}
	}
	if x.on != nil {
		return x.on.SearchRange(ctx, queries, k, among)
	}
	return x.Set.SearchRange(ctx, queries, k, among)
}

func (x exact) Close() error {
	var err error
	if x.on != nil {
		err = x.on.Close()
	}
	return errors.Join(err, x.Set.Close())
}

// place takes the vectors to the GPUs that o names, if any.
func (x *Index) place(dir string, o gpu.Options) error {
	own, flat := x.vectors.(exact)
	if !flat {
		return gpu.Unable(o, "open index", dir, fmt.Sprintf("it is of the kind %s, which FAISS searches, and FAISS is used without its GPU part (the C API of a faiss built with FAISS_ENABLE_GPU and FAISS_ENABLE_C_API)", x.d.Factory))
	}
	var err error
	own.on, err = gpu.Open(own.Set, o)
	x.vectors = own
	return err
}

func (x exact) ShardRows() []int64 {
	var out []int64
	for _, f := range x.Files() {
		out = append(out, f.Rows)
	}
	return out
}

// openShards opens the shards that d lists and checks that they are what it says.
func openShards(dir string, d Description) (searcher, error) {
	var paths, sketches []string
	for _, s := range d.Shards {
		paths = append(paths, filepath.Join(dir, s.Name))
		if s.Sketch != "" {
			sketches = append(sketches, filepath.Join(dir, s.Sketch))
		}
	}
	set, err := openKind(paths, sketches, d)
	if err != nil {
		return nil, err
	}
	for i, rows := range set.ShardRows() {
		if rows != d.Shards[i].Rows || set.Dim() != d.Space.Dim {
			err := &fail.Error{Kind: fail.BadInput, Op: "open index", Path: paths[i], Err: fmt.Errorf("holds %d vectors of dimension %d, %s says %d of %d", rows, set.Dim(),
				descriptionFile, d.Shards[i].Rows, d.Space.Dim), Hint: "the shard is of another index: run the index job again"}
			return nil, errors.Join(err, set.Close())
		}
	}
	return set, nil
}

func openKind(paths, sketches []string, d Description) (searcher, error) {
	if d.Format == FormatFAISS {
		set, err := faiss.OpenSet(paths, d.Effort)
		if err != nil {
			return nil, err
		}
		return set, nil
	}
	set, err := flat.OpenSet(paths)
	if err != nil {
		return nil, err
	}
	for _, f := range set.Files() {
		if f.Metric != flat.InnerProduct || f.Format.String() != cmp.Or(d.Format, flat.Flat.String()) {
			err := &fail.Error{Kind: fail.BadInput, Op: "open index", Path: f.Path, Err: fmt.Errorf("holds %v vectors for the metric %v, %s says %s and %s", f.Format, f.Metric,
				descriptionFile, cmp.Or(d.Format, flat.Flat.String()), d.Metric), Hint: "the shard is of another index: run the index job again"}
			return nil, errors.Join(err, set.Close())
		}
	}
	if len(sketches) > 0 {
		if err := set.Sketch(sketches); err != nil {
			return nil, errors.Join(err, set.Close())
		}
	}
	return exact{Set: set}, nil
}
