package indexer

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"searchloop/corpus"
	"searchloop/indexer/encoder"
	"searchloop/indexer/passages"
	"searchloop/indexer/vectors"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/journal"
	"searchloop/internal/manifest"
	"searchloop/internal/shard"
)

// EmbedOptions are the arguments of Embed. The folders are those of the encoder,
// the passages dataset and the vectors dataset to make.
type EmbedOptions struct {
	Encoder, Passages, Out string
	Override               encoder.Override
}

// vectorsMeta is what the manifest of a vectors dataset says beside the rows.
type vectorsMeta struct {
	Space   vectors.Space `json:"space"`
	Encoder string        `json:"encoder"` // folder, relative to the dataset
}

// embedBatch is how many passages are one record of the journal: what a killed
// job does again, and what stopping waits for.
const embedBatch = 64

// Embed makes a vectors dataset from a passages dataset: row n is the vector of
// passage n. Shards are contiguous rows. A killed job goes on at the batch it was
// in and ends with the same bytes.
func Embed(ctx context.Context, r *job.Run, o EmbedOptions) error {
	enc, err := encoder.Load(o.Encoder, o.Override)
	if err != nil {
		return err
	}
	set, err := passages.Open(o.Passages)
	if err != nil {
		return err
	}
	ds, err := r.Dataset(job.Spec{Dir: o.Out, Schema: vectors.Schema, Version: vectors.Version, Ext: "arrow",
		Inputs: map[string]string{"passages": o.Passages}, Params: enc.Space()})
	if err != nil || ds.Complete() || ds.DryRun() {
		return err
	}
	for _, s := range ds.Todo() {
		if err := embedShard(ctx, r, ds, s, enc, set); err != nil {
			return err
		}
	}
	return ds.Seal(vectorsMeta{Space: enc.Space(), Encoder: relative(o.Out, o.Encoder)})
}

func embedShard(ctx context.Context, r *job.Run, ds *job.Dataset, spec shard.Spec, enc *encoder.Encoder, set *passages.Set) error {
	sh, err := ds.Begin(spec)
	if err != nil || sh == nil {
		return err
	}
	defer sh.Discard()
	j, err := sh.Journal()
	if err != nil {
		return err
	}
	part, err := sh.Part()
	if err != nil {
		return err
	}
	w, err := vectors.NewWriter(part, enc.Space())
	if err != nil {
		return err
	}
	lo, hi := spec.Range(set.Rows())
	progress := r.Progress("embed", hi-lo)
	defer progress.Done()
	e := embedder{enc: enc, journal: j, row: lo}
	flush := func() error {
		n := int64(len(e.batch))
		ids, vecs, err := e.flush(ctx)
		if err != nil {
			return err
		}
		progress.Add(n, 0)
		return fail.Wrap(fail.BadInput, "embed", set.Dir, w.Write(ids, vecs))
	}
	for p, err := range set.Range(lo, hi) {
		if err != nil {
			return err
		}
		if e.batch = append(e.batch, p); len(e.batch) < embedBatch {
			continue
		}
		if err := flush(); err != nil {
			return err
		}
		if err := r.Interrupted(); err != nil {
			return err
		}
	}
	if err := flush(); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return sh.Commit(w.Rows(), manifest.Counts{In: hi - lo, OK: w.Rows(), Reused: e.reused})
}

// embedder embeds batch after batch, each once in the life of its journal.
type embedder struct {
	enc     *encoder.Encoder
	journal *journal.Journal
	batch   []corpus.Passage
	row     int64 // of the first passage of the batch
	reused  int64 // rows whose vectors the journal had
}

// flush gives the batch's ids and vectors and begins the next batch.
func (e *embedder) flush(ctx context.Context) (ids []string, vecs []float32, err error) {
	if len(e.batch) == 0 {
		return nil, nil, nil
	}
	var texts []string
	for _, p := range e.batch {
		ids, texts = append(ids, p.ID), append(texts, p.Contents)
	}
	key := fmt.Sprintf("%012d+%d", e.row, len(e.batch))
	if payload, ok := e.journal.Get(key); ok && len(payload) == 4*len(ids)*e.enc.Space().Dim {
		vecs = decodeFloats(payload)
		e.reused += int64(len(ids))
	} else {
		if vecs, err = e.enc.Passages(ctx, texts); err != nil {
			return nil, nil, err
		}
		if err = e.journal.Append(key, encodeFloats(vecs)); err != nil {
			return nil, nil, err
		}
	}
	e.row += int64(len(ids))
	e.batch = e.batch[:0]
	return ids, vecs, nil
}

func encodeFloats(v []float32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func decodeFloats(b []byte) []float32 {
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}
