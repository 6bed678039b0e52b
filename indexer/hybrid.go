package indexer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"searchloop/indexer/faiss"
	"searchloop/indexer/flat"
	"searchloop/indexer/words"
	"searchloop/internal/fail"
)

// Hybrid searches an index by vectors and by words and joins the two rankings by
// reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009): the score of a
// passage is the sum of 1/(60+rank) over the rankings it is in.
type Hybrid struct {
	*Index
	words *words.Index
}

const (
	fusionRank  = 60  // of the paper
	fusionDepth = 100 // ranks that count, unless more hits are asked for
)

// WithWords adds the search by words. The index of words is kept in a folder in
// dir that is named after the corpus, and is built there when it is absent.
func (x *Index) WithWords(ctx context.Context, dir string) (*Hybrid, error) {
	at := filepath.Join(dir, "words-"+words.Analyzer+"-"+x.passages.Digest()[:16])
	w, err := words.OpenOrBuild(ctx, at, x.texts())
	if err != nil {
		return nil, err
	}
	n, err := w.Rows()
	if err == nil && n != x.d.Rows {
		err = &fail.Error{Kind: fail.BadInput, Op: "open word index", Path: at, Err: fmt.Errorf("%d passages, the index has %d", n, x.d.Rows), Hint: "remove the folder; it is made anew"}
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return &Hybrid{Index: x, words: w}, nil
}

func (x *Index) texts() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for p, err := range x.passages.Range(0, x.d.Rows) {
			if !yield(p.Contents, err) || err != nil {
				return
			}
		}
	}
}

// Search is SearchQueries for texts.
func (h *Hybrid) Search(ctx context.Context, queries []string, k int) ([][]Hit, error) {
	return h.SearchQueries(ctx, Texts(queries), k, faiss.Effort{})
}

// SearchQueries returns for each query its k best passages by fused score, best
// first, equal scores by row; fewer when the index has fewer. A picture has no
// words: its score is that of the ranking by vectors alone. The effort is that of
// the search by vectors.
func (h *Hybrid) SearchQueries(ctx context.Context, queries []Query, k int, e faiss.Effort) ([][]Hit, error) {
	if len(queries) == 0 {
		return nil, nil
	}
	depth := max(k, fusionDepth)
	vectors, err := h.encode(ctx, queries)
	if err != nil {
		return nil, err
	}
	near, err := h.vectors.SearchRange(ctx, vectors, depth, e, flat.All)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, "search index", h.d.dir, err)
	}
	out := make([][]Hit, len(queries))
	var g errgroup.Group
	g.SetLimit(4)
	for i, q := range queries {
		g.Go(func() error {
			var named []int64
			var err error
			if q.Image == nil {
				if named, err = h.words.Search(ctx, q.Text, depth); err != nil {
					return err
				}
			}
			var ranked []int64
			for _, n := range near[i] {
				ranked = append(ranked, n.Row)
			}
			for _, hit := range fuse(k, ranked, named) {
				if hit.Passage, err = h.passages.At(hit.Row); err != nil {
					return err
				}
				out[i] = append(out[i], hit)
			}
			return nil
		})
	}
	return out, g.Wait()
}

// fuse joins rankings of rows.
func fuse(k int, rankings ...[]int64) []Hit {
	scores := map[int64]float32{}
	for _, rows := range rankings {
		for rank, row := range rows {
			scores[row] += 1 / float32(fusionRank+rank+1)
		}
	}
	all := make([]Hit, 0, len(scores))
	for row, s := range scores {
		all = append(all, Hit{Row: row, Score: s})
	}
	slices.SortFunc(all, func(a, b Hit) int { return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Row, b.Row)) })
	return all[:min(k, len(all))]
}

// Close closes both indices.
func (h *Hybrid) Close() error {
	return errors.Join(h.words.Close(), h.Index.Close())
}
