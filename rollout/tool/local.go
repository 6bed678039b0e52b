package tool

import (
	"context"

	"searchloop/indexer"
)

// Local searches an index opened in this process.
type Local struct{ Index *indexer.Index }

// Search asks the index.
func (l Local) Search(ctx context.Context, queries []string, k int) ([][]Hit, error) {
	found, err := l.Index.Search(ctx, queries, k)
	if err != nil {
		return nil, err
	}
	out := make([][]Hit, len(found))
	for i, list := range found {
		for _, h := range list {
			out[i] = append(out[i], Hit{Contents: h.Passage.Contents, ImageID: h.Passage.ImageID, Score: h.Score, Link: link(h.Passage.ID)})
		}
	}
	return out, nil
}
