package indexer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"searchloop/corpus"
	"searchloop/indexer"
	"searchloop/indexer/encoder"
	"searchloop/indexer/retrieve"
	"searchloop/internal/fail"
)

// From passages to hits: every fact is found by asking for it, and the scores are
// the inner products of the encoder's own vectors.
func TestSearchFindsPassages(t *testing.T) {
	rows := facts(240)
	d := build(t, t.TempDir(), rows, 64, 2)
	x := open(t, d.index)
	ctx := context.Background()
	var queries []string
	for _, p := range rows {
		_, fact, _ := strings.Cut(p.Contents, "The ")
		fact, _, _ = strings.Cut(fact, " is ")
		queries = append(queries, fact) // "founder of vornavor"
	}
	found, err := x.Search(ctx, queries, 3)
	must(t, err)
	first := 0
	for i, hits := range found {
		if len(hits) != 3 {
			t.Fatalf("query %d: %d hits", i, len(hits))
		}
		if hits[0].Row == int64(i) {
			first++
		}
		for _, h := range hits {
			if h.Passage != rows[h.Row] {
				t.Fatalf("row %d came with passage %+v", h.Row, h.Passage)
			}
		}
	}
	if first < len(rows)*95/100 {
		t.Errorf("%d of %d passages are first for their own fact", first, len(rows))
	}
	enc, err := encoder.Load(d.encoder, encoder.Override{})
	must(t, err)
	q, err := enc.Queries(ctx, queries[:1])
	must(t, err)
	p, err := enc.Passages(ctx, []string{found[0][0].Passage.Contents})
	must(t, err)
	var dot float64
	for i := range q {
		dot += float64(q[i]) * float64(p[i])
	}
	if math.Abs(dot-float64(found[0][0].Score)) > 1e-5 {
		t.Errorf("score %v, inner product %v", found[0][0].Score, dot)
	}
}

func TestG2SearchEdges(t *testing.T) {
	rows := facts(30)
	x := open(t, build(t, t.TempDir(), rows, 32, 1).index)
	ctx := context.Background()
	hits, err := x.Search(ctx, []string{"river", "no word of this is known: zyx", ""}, 1000)
	must(t, err)
	for i, h := range hits {
		if len(h) != 30 {
			t.Errorf("query %d: %d hits of 30", i, len(h))
		}
		seen := map[int64]bool{}
		for j, hit := range h {
			seen[hit.Row] = true
			if j > 0 && hit.Score > h[j-1].Score {
				t.Errorf("query %d: hit %d is better than the one before", i, j)
			}
		}
		if len(seen) != 30 {
			t.Errorf("query %d: %d different rows", i, len(seen))
		}
	}
	if hits, err := x.Search(ctx, nil, 3); err != nil || len(hits) != 0 {
		t.Errorf("no queries: %v, %v", hits, err)
	}
	if _, err := x.SearchVectors(ctx, make([]float32, 33), 3); fail.KindOf(err) != fail.BadInput {
		t.Errorf("query of another dimension: %v", err)
	}
	if _, err := x.ImagePath("ab"); fail.KindOf(err) != fail.BadInput {
		t.Errorf("image of a text corpus: %v", err)
	}
}

// Many callers at once get what each gets alone.
func TestG3SearchFromManyGoroutines(t *testing.T) {
	rows := facts(400)
	x := open(t, build(t, t.TempDir(), rows, 64, 2).index)
	ctx := context.Background()
	queries := make([]string, 16)
	want := make([][]indexer.Hit, 16)
	for i := range queries {
		queries[i] = fmt.Sprintf("river of %s", strings.Fields(rows[3*i].Contents)[0])
		h, err := x.Search(ctx, queries[i:i+1], 5)
		must(t, err)
		want[i] = h[0]
	}
	var wg sync.WaitGroup
	for i := range queries {
		wg.Go(func() {
			for range 20 {
				h, err := x.Search(ctx, queries[i:i+1], 5)
				if err != nil || !slices.Equal(h[0], want[i]) {
					t.Errorf("query %d: %v, %v", i, h, err)
					return
				}
			}
		})
	}
	wg.Wait()
	batch, err := x.Search(ctx, queries, 5)
	must(t, err)
	for i := range batch {
		if !slices.Equal(batch[i], want[i]) {
			t.Errorf("query %d in a batch differs from alone", i)
		}
	}
}

func TestEmptyCorpus(t *testing.T) {
	d := build(t, t.TempDir(), facts(30), 32, 1)
	empty := filepath.Join(t.TempDir(), "passages")
	writePassages(t, empty, nil, 1)
	e := newTree(t.TempDir())
	ctx := context.Background()
	must(t, indexer.Embed(ctx, newRun(t, 1), indexer.EmbedOptions{Encoder: d.encoder, Passages: empty, Out: e.vectors}))
	must(t, indexer.Build(ctx, newRun(t, 1), indexer.BuildOptions{Vectors: e.vectors, Passages: empty, Out: e.index}))
	hits, err := open(t, e.index).Search(ctx, []string{"river"}, 3)
	if err != nil || len(hits) != 1 || len(hits[0]) != 0 {
		t.Errorf("%v, %v", hits, err)
	}
}

// The whole tree can be moved; single parts that moved can be named; other parts
// in their place are refused.
func TestG5OpenFindsAndRefusesParts(t *testing.T) {
	root := t.TempDir()
	build(t, filepath.Join(root, "a"), facts(60), 32, 1)
	must(t, os.Rename(filepath.Join(root, "a"), filepath.Join(root, "b")))
	d := newTree(filepath.Join(root, "b"))
	open(t, d.index)

	other := build(t, t.TempDir(), facts(63), 32, 1)
	refused := func(what, want string, o ...indexer.Option) {
		t.Helper()
		_, err := indexer.Open(context.Background(), d.index, o...)
		if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "(") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("other passages", other.passages, indexer.WithPassages(other.passages))
	refused("other encoder", other.encoder, indexer.WithEncoder(other.encoder))
	refused("no encoder", "config.json", indexer.WithEncoder(t.TempDir()))

	moved := filepath.Join(root, "moved")
	must(t, os.Rename(d.encoder, moved))
	refused("encoder gone", d.encoder)
	open(t, d.index, indexer.WithEncoder(moved))

	// The encoder was changed where it lies.
	must(t, os.WriteFile(filepath.Join(moved, "searchloop.json"), []byte(`{"query_prefix":"ask: "}`), 0o644))
	refused("changed encoder", "encoder", indexer.WithEncoder(moved))
}

func TestOpenRefusesForeignShards(t *testing.T) {
	d := build(t, t.TempDir(), facts(60), 32, 1)
	wide := build(t, t.TempDir(), facts(60), 64, 1)
	name := "part-00001-of-00002.index"
	good, err := os.ReadFile(filepath.Join(d.index, name))
	must(t, err)
	foreign, err := os.ReadFile(filepath.Join(wide.index, name))
	must(t, err)
	for what, c := range map[string]struct {
		data []byte
		want string
	}{
		"another dimension": {foreign, "dimension 64"},
		"cut short":         {good[:len(good)-4], "cut short"},
		"not an index":      {[]byte("ARROW1 and more text that is longer than a header of 45 bytes"), "IndexFlatIP"},
	} {
		must(t, os.WriteFile(filepath.Join(d.index, name), c.data, 0o644))
		// The manifest notices a size that changed; a manifest made with the damage does not.
		reseal(t, d.index, nil)
		_, err := indexer.Open(context.Background(), d.index)
		if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, os.WriteFile(filepath.Join(d.index, name), good[:len(good)-4], 0o644))
	if _, err := indexer.Open(context.Background(), d.index); fail.KindOf(err) != fail.BadInput {
		t.Errorf("size other than the manifest's: %v", err)
	}
	if _, err := indexer.Open(context.Background(), d.vectors); fail.KindOf(err) != fail.BadInput {
		t.Errorf("a vectors dataset: %v", err)
	}
	if _, err := indexer.Open(context.Background(), t.TempDir()); fail.KindOf(err) != fail.BadInput {
		t.Errorf("an empty folder: %v", err)
	}
}

// An image corpus' passages carry images, found beside the passages.
func TestImages(t *testing.T) {
	root := t.TempDir()
	d := newTree(root)
	store, err := corpus.OpenStore(filepath.Join(d.passages, "images"))
	must(t, err)
	png := []byte("\x89PNG\r\n\x1a\n and the rest")
	sha, err := store.Put(png)
	must(t, err)
	rows := facts(30)
	for i := range rows {
		rows[i].ImageID = sha
	}
	build(t, root, rows, 32, 1)
	x := open(t, d.index)
	hits, err := x.Search(context.Background(), []string{"river"}, 1)
	must(t, err)
	path, err := x.ImagePath(hits[0][0].Passage.ImageID)
	must(t, err)
	data, err := os.ReadFile(path)
	must(t, err)
	if !filepath.IsAbs(path) || string(data) != string(png) {
		t.Errorf("image at %s", path)
	}
	if _, err := x.ImagePath(strings.Repeat("0", 64)); fail.KindOf(err) != fail.BadInput {
		t.Errorf("absent image: %v", err)
	}
}

// Served over HTTP, an index gives what it gives in the process.
func TestServed(t *testing.T) {
	x := open(t, build(t, t.TempDir(), facts(60), 32, 1).index)
	s := httptest.NewServer(retrieve.New(x, retrieve.Options{}))
	defer s.Close()
	resp, err := http.Post(s.URL+"/retrieve", "application/json", strings.NewReader(`{"queries":["founder of vornavor","river"],"topk":100,"return_scores":true}`))
	must(t, err)
	defer resp.Body.Close()
	var got struct {
		Result [][]struct {
			Document struct{ ID, Contents string }
			Score    float32
		}
	}
	must(t, json.NewDecoder(resp.Body).Decode(&got))
	want, err := x.Search(context.Background(), []string{"founder of vornavor", "river"}, 60)
	must(t, err)
	if len(got.Result) != 2 || len(got.Result[0]) != 60 || len(got.Result[1]) != 60 {
		t.Fatalf("lengths of the answer: %d", len(got.Result))
	}
	for i := range want {
		for j, h := range want[i] {
			if g := got.Result[i][j]; g.Document.ID != h.Passage.ID || g.Document.Contents != h.Passage.Contents || g.Score != h.Score {
				t.Errorf("query %d hit %d: %+v, want %+v", i, j, g, h)
			}
		}
	}
}

// How long a search takes at the size of the demo.
func BenchmarkIndexSearch(b *testing.B) {
	x := open(b, build(b, b.TempDir(), facts(400), 256, 1).index)
	ctx := context.Background()
	for _, n := range []int{1, 16} {
		queries := make([]string, n)
		for i := range queries {
			queries[i] = "founder of vornavor"
		}
		b.Run(fmt.Sprintf("queries=%d", n), func(b *testing.B) {
			start := time.Now()
			for b.Loop() {
				if _, err := x.Search(ctx, queries, 3); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n*b.N)/time.Since(start).Seconds(), "queries/s")
		})
	}
}
