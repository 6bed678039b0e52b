// Package indexer builds and searches indices over passages: it embeds passages
// into vectors (Embed), writes them as exact inner-product index files in FAISS's
// format (Build) and finds the passages nearest to a text (Index). A passages
// dataset and an encoder folder go in; vectors and index datasets come out, and
// hits with their passages.
//
// It serves no protocol (indexer/retrieve does), fits no encoder (indexer/lexical
// does), and knows nothing of questions or policies.
package indexer

import (
	"context"
	"errors"

	"searchloop/corpus"
	"searchloop/indexer/encoder"
	"searchloop/indexer/flat"
	"searchloop/indexer/passages"
	"searchloop/internal/fail"
)

// Hit is one passage found. Row is its row in the passages dataset.
type Hit struct {
	Row     int64
	Score   float32
	Passage corpus.Passage
}

// Index is an open index: shards mapped, encoder loaded, passages at hand. Its
// methods are safe for concurrent use; Close must wait for searches to end.
type Index struct {
	d        Description
	vectors  *flat.Set
	encoder  *encoder.Encoder
	passages *passages.Set
	images   *corpus.ImageStore
}

// Describe is what the index says of itself.
func (x *Index) Describe() Description { return x.d }

// Search returns for each query its k nearest passages, best first, equal scores
// by row; fewer when the index has fewer. It is exact. Queries are encoded with
// the query prefix of the vectors' space. No query gives no result.
func (x *Index) Search(ctx context.Context, queries []string, k int) ([][]Hit, error) {
	if len(queries) == 0 {
		return nil, nil
	}
	q, err := x.encoder.Queries(ctx, queries)
	if err != nil {
		return nil, err
	}
	return x.SearchVectors(ctx, q, k)
}

// SearchVectors is Search for queries that are vectors already, one after the
// other. A length that is no multiple of the dimension is refused.
func (x *Index) SearchVectors(ctx context.Context, q []float32, k int) ([][]Hit, error) {
	return x.SearchRange(ctx, q, k, flat.All)
}

// SearchRange is SearchVectors among the rows of a range only.
func (x *Index) SearchRange(ctx context.Context, q []float32, k int, among flat.Range) ([][]Hit, error) {
	found, err := x.vectors.SearchRange(ctx, q, k, among)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, "search index", x.d.dir, err)
	}
	out := make([][]Hit, len(found))
	for i, hits := range found {
		out[i] = make([]Hit, len(hits))
		for j, h := range hits {
			p, err := x.passages.At(h.Row)
			if err != nil {
				return nil, err
			}
			out[i][j] = Hit{Row: h.Row, Score: h.Score, Passage: p}
		}
	}
	return out, nil
}

// Images is the store of the images that passages of an image corpus refer to;
// nil for a text corpus.
func (x *Index) Images() *corpus.ImageStore { return x.images }

// Close unmaps the shards and closes the passages.
func (x *Index) Close() error { return errors.Join(x.vectors.Close(), x.passages.Close()) }
