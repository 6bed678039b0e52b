// Package words finds passages by their words: BM25 (Robertson and others, 1994)
// as the library bleve scores it. Texts by row number go in, row numbers come out,
// best first. It knows nothing of vectors.
package words

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strconv"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/mapping"
	index "github.com/blevesearch/bleve_index_api"

	"searchloop/internal/fail"
)

// Analyzer is how texts are cut into words: English, with stems and without stop
// words. Characters of other scripts are words as Unicode cuts them.
const Analyzer = "en"

const (
	field     = "contents"
	batchRows = 1000
)

// Index is an open index of words. Search is safe for concurrent use.
type Index struct {
	dir  string
	open bleve.Index
}

func schema() mapping.IndexMapping {
	text := bleve.NewTextFieldMapping()
	text.Analyzer = Analyzer
	text.Store, text.IncludeTermVectors, text.IncludeInAll, text.DocValues = false, false, false, false
	doc := bleve.NewDocumentStaticMapping()
	doc.AddFieldMappingsAt(field, text)
	m := bleve.NewIndexMapping()
	m.DefaultMapping, m.DefaultAnalyzer = doc, Analyzer
	m.ScoringModel = index.BM25Scoring
	return m
}

// OpenOrBuild opens the index in the folder dir, or builds it there from the texts
// when there is none. It appears whole or not at all.
func OpenOrBuild(ctx context.Context, dir string, texts iter.Seq2[string, error]) (*Index, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := build(ctx, dir, texts); err != nil {
			return nil, err
		}
	}
	open, err := bleve.OpenUsing(dir, map[string]any{"read_only": true})
	if err != nil {
		return nil, fail.WithHint(fail.Wrap(fail.BadInput, "open word index", dir, err), "remove the folder; it is made anew")
	}
	return &Index{dir: dir, open: open}, nil
}

func build(ctx context.Context, dir string, texts iter.Seq2[string, error]) error {
	wrap := func(err error) error { return fail.Wrap(fail.Disk, "build word index", dir, err) }
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return wrap(err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".words.tmp-*")
	if err != nil {
		return wrap(err)
	}
	defer os.RemoveAll(tmp)
	at := filepath.Join(tmp, "index")
	x, err := bleve.New(at, schema())
	if err != nil {
		return wrap(err)
	}
	if err := fill(ctx, x, texts); err != nil {
		return errors.Join(err, wrap(x.Close()))
	}
	if err := x.Close(); err != nil {
		return wrap(err)
	}
	if err := os.Rename(at, dir); err != nil && !errors.Is(err, fs.ErrExist) { // another process may have been first
		return wrap(err)
	}
	return nil
}

func fill(ctx context.Context, x bleve.Index, texts iter.Seq2[string, error]) error {
	b, row := x.NewBatch(), 0
	for text, err := range texts {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fail.Wrap(fail.BadInput, "build word index", "", err)
		}
		if err := b.Index(fmt.Sprintf("%012d", row), map[string]any{field: text}); err != nil {
			return fail.Wrap(fail.BadInput, "build word index", "", err)
		}
		if row++; b.Size() >= batchRows {
			if err := x.Batch(b); err != nil {
				return fail.Wrap(fail.Disk, "build word index", "", err)
			}
			b.Reset()
		}
	}
	return fail.Wrap(fail.Disk, "build word index", "", x.Batch(b))
}

// Rows is the number of texts.
func (x *Index) Rows() (int64, error) {
	n, err := x.open.DocCount()
	return int64(n), fail.Wrap(fail.Disk, "read word index", x.dir, err)
}

// Search returns the rows of the k texts that match the query best, best first,
// equal scores by row; fewer when fewer share a word with it.
func (x *Index) Search(ctx context.Context, query string, k int) ([]int64, error) {
	q := bleve.NewMatchQuery(query)
	q.SetField(field)
	r := bleve.NewSearchRequestOptions(q, k, 0, false)
	r.SortBy([]string{"-_score", "_id"})
	found, err := x.open.SearchInContext(ctx, r)
	if err != nil {
		return nil, fail.Wrap(fail.Disk, "search words", x.dir, err)
	}
	rows := make([]int64, len(found.Hits))
	for i, h := range found.Hits {
		if rows[i], err = strconv.ParseInt(h.ID, 10, 64); err != nil {
			return nil, fail.New(fail.BadInput, "search words", x.dir, "the index holds a document %q", h.ID)
		}
	}
	return rows, nil
}

// Close closes the index.
func (x *Index) Close() error { return fail.Wrap(fail.Disk, "close word index", x.dir, x.open.Close()) }
