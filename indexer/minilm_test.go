package indexer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"searchloop/corpus"
	"searchloop/indexer"
	"searchloop/indexer/encoder"
)

// all-MiniLM-L6-v2 on the Cranfield collection, compared with what
// sentence-transformers makes of it (testdata/minilm.py). SEARCHLOOP_MINILM names
// the model's folder; its weights rounded to half precision are what the reference
// was computed with, and the published ones differ from them by less than the
// tolerance.
func TestMiniLM(t *testing.T) {
	model := os.Getenv("SEARCHLOOP_MINILM")
	if model == "" {
		t.Skip("SEARCHLOOP_MINILM does not name a folder of all-MiniLM-L6-v2")
	}
	raw, err := os.ReadFile("testdata/minilm.json")
	must(t, err)
	var want struct {
		NDCG          float64
		Judged        int
		Docs, Queries [][]float64
	}
	must(t, json.Unmarshal(raw, &want))
	dir := shared(t, "cranfield")
	docs := rowsOf(t, "cranfield", filepath.Join(dir, "cran.all.1400"))
	ids, queries, gains := cranfieldQueries(t, dir)

	d := newTree(t.TempDir())
	ctx := context.Background()
	writePassages(t, d.passages, docs, 1)
	start := time.Now()
	must(t, indexer.Embed(ctx, newRun(t, 1), indexer.EmbedOptions{Encoder: model, Passages: d.passages, Out: d.vectors}))
	took := time.Since(start)
	must(t, indexer.Build(ctx, newRun(t, 1), indexer.BuildOptions{Vectors: d.vectors, Passages: d.passages, Out: d.index}))
	x := open(t, d.index)
	found, err := x.Search(ctx, queries, 10)
	must(t, err)
	got := ndcg(ids, found, gains, 10)
	enc, err := encoder.Load(model, encoder.Override{})
	must(t, err)
	worst := 1.0
	compare := func(texts []string, every int, want [][]float64, encode func(context.Context, []string) ([]float32, error)) {
		for i, w := range want {
			v, err := encode(ctx, texts[i*every:i*every+1])
			must(t, err)
			var dot, a, b float64
			for c := range w {
				dot += w[c] * float64(v[c])
				a += w[c] * w[c]
				b += float64(v[c]) * float64(v[c])
			}
			worst = min(worst, dot/math.Sqrt(a*b))
		}
	}
	var texts []string
	for _, p := range docs {
		texts = append(texts, p.Contents)
	}
	compare(texts, 200, want.Docs, enc.Passages)
	compare(queries, 50, want.Queries, enc.Queries)
	t.Logf("nDCG@10 %.5f, sentence-transformers %.5f (%d queries); least cosine %.8f; 1400 passages embedded in %v", got, want.NDCG, want.Judged, worst, took.Round(time.Millisecond))
	if math.Abs(got-want.NDCG) > 0.002 || worst < 0.99999 {
		t.Error("differs from sentence-transformers")
	}
}

// cranfieldQueries is the collection's queries and the gains of their judged documents.
func cranfieldQueries(t testing.TB, dir string) (ids, queries []string, gains map[string]map[string]float64) {
	t.Helper()
	f, err := corpus.FormatNamed("cranfield")
	must(t, err)
	in := corpus.Input{Files: []string{filepath.Join(dir, "cran.qry"), filepath.Join(dir, "cranqrel")}}
	for r, err := range f.Questions(in) {
		must(t, err)
		q, err := r.Load()
		must(t, err)
		ids, queries = append(ids, r.ID), append(queries, q.Text)
	}
	var tsv bytes.Buffer
	must(t, f.Side["qrels.tsv"](in, &tsv, func(string, int64, error) {}))
	gains = map[string]map[string]float64{}
	for line := range strings.Lines(tsv.String()) {
		var q, d string
		var g float64
		if _, err := fmt.Sscan(line, &q, &d, &g); err != nil {
			continue // the heading
		}
		if gains[q] == nil {
			gains[q] = map[string]float64{}
		}
		gains[q][d] = g
	}
	return ids, queries, gains
}
