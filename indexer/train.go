package indexer

import (
	"context"

	"searchloop/indexer/faiss"
	"searchloop/indexer/flat"
	"searchloop/internal/fail"
	"searchloop/internal/job"
)

// sample is how many vectors train is to use.
func (f *FAISSOptions) sample() int {
	if f.Train > 0 {
		return f.Train
	}
	return faiss.SampleSize(f.Factory)
}

func (o *BuildOptions) checkFAISS() error {
	if o.FAISS.Factory == "" {
		if (o.FAISS.Effort != faiss.Effort{}) || o.FAISS.Train != 0 {
			return fail.New(fail.Usage, "index", "", "--nprobe, --ef-search and --train are for an index that --factory describes")
		}
		return nil
	}
	if o.Format != flat.Flat || o.Sketch || o.FAISS.Train < 0 {
		return fail.New(fail.Usage, "index", "", "--factory says how vectors are stored: it goes without --format and --sketch; --train is a count")
	}
	return faiss.Available()
}

// train makes the empty index that every shard begins with. The sample is chosen
// among all rows, so that processes that make different shards train alike.
func train(ctx context.Context, r *job.Run, src *vectorSet, f FAISSOptions) (*faiss.Trained, error) {
	dim := src.space.Dim
	needed, err := faiss.Check(dim, f.Factory, f.Effort)
	if err != nil {
		return nil, err
	}
	var chosen []float32
	if needed {
		rows := faiss.Sample(src.m.Rows(), f.sample(), f.Seed)
		progress := r.Progress("sample", int64(len(rows)))
		if chosen, err = src.pick(ctx, rows); err != nil {
			return nil, err
		}
		progress.Add(int64(len(rows)), 0)
		progress.Done()
		r.Log.Info("training", "factory", f.Factory, "vectors", len(rows))
	}
	return faiss.Train(dim, f.Factory, chosen)
}
