// Package indexer builds and searches indices over passages: it embeds passages
// into vectors (Embed), writes them as inner-product index files in FAISS's
// format (Build) and finds the passages nearest to a text or a picture (Index). A passages
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
	"searchloop/indexer/faiss"
	"searchloop/indexer/flat"
	"searchloop/indexer/passages"
	"searchloop/internal/fail"
	"searchloop/internal/picture"
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
	vectors  searcher
	encoder  Encoder
	passages *passages.Set
	images   *corpus.ImageStore
}

// Describe is what the index says of itself.
func (x *Index) Describe() Description { return x.d }

// Query is what is searched for: a text, or a picture where the encoder reads them.
type Query struct {
	Text  string
	Image *picture.Picture // counts before Text
}

// Texts are queries of texts.
func Texts(texts []string) []Query {
	out := make([]Query, len(texts))
	for i, t := range texts {
		out[i].Text = t
	}
	return out
}

// Search returns for each text its k nearest passages; see SearchQueries.
func (x *Index) Search(ctx context.Context, queries []string, k int) ([][]Hit, error) {
	return x.SearchQueries(ctx, Texts(queries), k, faiss.Effort{})
}

// SearchQueries returns for each query its k nearest passages, best first, equal
// scores by row; fewer when the index has fewer. Flat indices are exact; others
// try as hard as e says, and where it says nothing, index.json. Texts are encoded
// with the query prefix of the vectors' space. No query gives no result.
func (x *Index) SearchQueries(ctx context.Context, queries []Query, k int, e faiss.Effort) ([][]Hit, error) {
	if len(queries) == 0 {
		return nil, nil
	}
	q, err := x.encode(ctx, queries)
	if err != nil {
		return nil, err
	}
	return x.find(ctx, q, k, e, flat.All)
}

// encode gives the vectors of queries, in their order.
func (x *Index) encode(ctx context.Context, queries []Query) ([]float32, error) {
	var texts []string
	var pictures []*picture.Picture
	for _, q := range queries {
		if q.Image != nil {
			pictures = append(pictures, q.Image)
		} else {
			texts = append(texts, q.Text)
		}
	}
	ofTexts, err := x.encoder.Queries(ctx, texts)
	if err != nil || pictures == nil {
		return ofTexts, err
	}
	ofPictures, err := x.encoder.Images(ctx, pictures)
	if err != nil {
		return nil, err
	}
	out, dim := make([]float32, 0, len(queries)*x.d.Space.Dim), x.d.Space.Dim
	for _, q := range queries {
		from := &ofTexts
		if q.Image != nil {
			from = &ofPictures
		}
		out, *from = append(out, (*from)[:dim]...), (*from)[dim:]
	}
	return out, nil
}

// ImageQuery is the query for an encoded picture. It keeps only what the encoder
// looks at, however large the picture is; few are decoded at a time.
func (x *Index) ImageQuery(data []byte) (Query, error) {
	decoding <- struct{}{}
	defer func() { <-decoding }()
	p, err := picture.Decode(data)
	if err == nil {
		p, err = x.encoder.Prepare(p)
	}
	return Query{Image: p}, err
}

// decoding bounds the memory that pictures take while they are decoded.
var decoding = make(chan struct{}, 4)

// ReadsImages says whether queries may be pictures.
func (x *Index) ReadsImages() bool { return x.encoder.ReadsImages() }

// SearchVectors is Search for queries that are vectors already, one after the
// other. A length that is no multiple of the dimension is refused.
func (x *Index) SearchVectors(ctx context.Context, q []float32, k int) ([][]Hit, error) {
	return x.find(ctx, q, k, faiss.Effort{}, flat.All)
}

// SearchRange is SearchVectors among the rows of a range only.
func (x *Index) SearchRange(ctx context.Context, q []float32, k int, among flat.Range) ([][]Hit, error) {
	return x.find(ctx, q, k, faiss.Effort{}, among)
}

func (x *Index) find(ctx context.Context, q []float32, k int, e faiss.Effort, among flat.Range) ([][]Hit, error) {
	found, err := x.vectors.SearchRange(ctx, q, k, e, among)
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
