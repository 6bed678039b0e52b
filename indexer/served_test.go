package indexer_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"searchloop/corpus"
	"searchloop/indexer"
	"searchloop/indexer/encoder"
	"searchloop/indexer/encoder/served"
	"searchloop/indexer/faiss"
	"searchloop/internal/fail"
	"searchloop/internal/llm"
	"searchloop/internal/manifest"
	"searchloop/internal/picture"
	"searchloop/internal/retry"
)

// standIn serves the encoder of a folder as a server of embeddings does. fault may
// answer the n-th request in its place.
type standIn struct {
	enc      indexer.Encoder
	requests atomic.Int64
	longest  int // characters of an input; 0: any number
	fault    func(n int64, w http.ResponseWriter) bool
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, h *http.Request) {
	var r struct {
		Input    []string
		Modality string
	}
	if !strings.HasSuffix(h.URL.Path, "/embeddings") {
		fmt.Fprint(w, `{"data":[{"id":"stand-in"}]}`)
		return
	}
	n := s.requests.Add(1)
	if s.fault != nil && s.fault(n, w) {
		return
	}
	json.NewDecoder(h.Body).Decode(&r)
	for _, in := range r.Input {
		if s.longest > 0 && len(in) > s.longest {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			fmt.Fprint(w, `{"error":"inputs must have less than 50 tokens"}`)
			return
		}
	}
	var v []float32
	var err error
	if r.Modality == "image" {
		var all []*picture.Picture
		for _, uri := range r.Input {
			_, code, _ := strings.Cut(uri, ",")
			data, derr := base64.StdEncoding.DecodeString(code)
			if derr == nil {
				var p *picture.Picture
				if p, derr = picture.Decode(data); derr == nil {
					all = append(all, p)
				}
			}
			if derr != nil {
				http.Error(w, derr.Error(), 400)
				return
			}
		}
		v, err = s.enc.Images(h.Context(), all)
	} else {
		v, err = s.enc.Passages(h.Context(), r.Input)
	}
	if err != nil {
		http.Error(w, err.Error(), 500)
		return
	}
	d := s.enc.Space().Dim
	var data []map[string]any
	for i := len(r.Input) - 1; i >= 0; i-- {
		data = append(data, map[string]any{"index": i, "embedding": v[i*d : (i+1)*d]})
	}
	json.NewEncoder(w).Encode(map[string]any{"data": data})
}

func quickServer() served.Options {
	return served.Options{Parallel: 4, Retry: retry.Options{Base: time.Millisecond, Cap: 2 * time.Millisecond, Open: 5 * time.Millisecond, Gone: 200 * time.Millisecond}}
}

// serveFolder serves the encoder in a folder without its prefixes, which are the
// client's to send.
func serveFolder(t *testing.T, dir string) (*standIn, string) {
	t.Helper()
	none := ""
	enc, err := encoder.Load(dir, encoder.Override{QueryPrefix: &none, PassagePrefix: &none})
	must(t, err)
	s := &standIn{enc: enc}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return s, h.URL
}

// An encoder in a server makes the same files as the same encoder in a folder, goes
// on at the batch after it was away, and is asked for queries' vectors.
func TestServedEncoder(t *testing.T) {
	ctx := context.Background()
	d := build(t, t.TempDir(), facts(700), 32, 2)
	s, url := serveFolder(t, d.encoder)
	e, err := encoder.Load(d.encoder, encoder.Override{})
	must(t, err)
	query, passage := e.Space().QueryPrefix, e.Space().PassagePrefix
	own := newTree(t.TempDir())
	o := indexer.EmbedOptions{Encoder: url, Passages: d.passages, Out: own.vectors, Server: quickServer(), Override: encoder.Override{QueryPrefix: &query, PassagePrefix: &passage}}
	o.Server.Model = "stand-in"

	s.fault = func(n int64, w http.ResponseWriter) bool {
		if n > 9 {
			http.Error(w, "gone", http.StatusServiceUnavailable)
		}
		return n > 9
	}
	err = indexer.Embed(ctx, newRun(t, 2), o)
	if fail.KindOf(err) != fail.Service {
		t.Fatalf("the server went away: %v", err)
	}
	if _, err := manifest.Open(own.vectors); err == nil {
		t.Fatal("an unfinished dataset has a manifest")
	}
	s.fault = nil
	must(t, indexer.Embed(ctx, newRun(t, 2), o))
	m, err := manifest.Open(own.vectors)
	must(t, err)
	if m.Counts.In != 700 || m.Counts.OK != 700 || m.Counts.Reused == 0 {
		t.Errorf("counts %+v", m.Counts)
	}
	if text := string(m.Meta); !strings.Contains(text, `"model:stand-in"`) || !strings.Contains(text, url) {
		t.Errorf("meta %s", text)
	}

	// A rerun with nothing to do needs no server; nor does the index job.
	before := s.requests.Load()
	must(t, indexer.Embed(ctx, newRun(t, 2), o))
	must(t, indexer.Build(ctx, newRun(t, 3), indexer.BuildOptions{Vectors: own.vectors, Passages: d.passages, Out: own.index}))
	if n := s.requests.Load(); n != before {
		t.Errorf("%d requests for nothing", n-before)
	}
	// Another prefix is other vectors.
	changed := "other: "
	o2 := o
	o2.Override.PassagePrefix = &changed
	if o2.Server.Override = o2.Override; o2.Server.Expects(open(t, own.index, indexer.WithServer(quickServer())).Describe().Space) {
		t.Error("another prefix is not noticed")
	}

	x := open(t, own.index, indexer.WithServer(quickServer()))
	queries := []string{"founder of vornavor", "river", "bird of mar"}
	got, err := x.Search(ctx, queries, 10)
	must(t, err)
	want, err := open(t, d.index).Search(ctx, queries, 10)
	must(t, err)
	for q := range want {
		for i := range want[q] {
			if got[q][i].Row != want[q][i].Row || math.Abs(float64(got[q][i].Score-want[q][i].Score)) > 1e-5 {
				t.Errorf("query %d, hit %d: %d %g, by the folder %d %g", q, i, got[q][i].Row, got[q][i].Score, want[q][i].Row, want[q][i].Score)
			}
		}
	}

	refused := func(what string, kind fail.Kind, options ...indexer.Option) {
		t.Helper()
		_, err := indexer.Open(ctx, own.index, append(options, indexer.WithServer(quickServer()))...)
		if fail.KindOf(err) != kind || !strings.Contains(err.Error(), what) {
			t.Errorf("want %q: %v", what, err)
		}
	}
	// Other weights under the same name, another dimension, a folder, nobody.
	alike := build(t, t.TempDir(), facts(300)[100:], 32, 1)
	_, other := serveFolder(t, alike.encoder)
	refused("cosine", fail.BadInput, indexer.WithEncoder(other))
	narrow := build(t, t.TempDir(), facts(90), 16, 1)
	_, other = serveFolder(t, narrow.encoder)
	refused("16 numbers, the index' 32", fail.BadInput, indexer.WithEncoder(other))
	refused("--encoder http://", fail.BadInput, indexer.WithEncoder(d.encoder))
	refused("127.0.0.1:1", fail.Service, indexer.WithEncoder("http://127.0.0.1:1"))
	if _, err := indexer.Open(ctx, d.index, indexer.WithEncoder(url)); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "folder") {
		t.Errorf("an index of a folder's encoder, asked of a server: %v", err)
	}

	// A flat file of such vectors is adopted by its server.
	info, err := indexer.Info(own.index)
	must(t, err)
	file := filepath.Join(t.TempDir(), "published.index")
	must(t, indexer.Merge([]string{info[0].Path, info[1].Path, info[2].Path}, file))
	adopt := func(prefix *string) error {
		so := quickServer()
		so.Override = encoder.Override{PassagePrefix: prefix}
		return indexer.Adopt(ctx, newRun(t, 1), indexer.AdoptOptions{File: file, Passages: d.passages, Encoder: url, Server: so, Out: filepath.Join(t.TempDir(), "index")})
	}
	must(t, adopt(&passage))
}

// What a server refuses is named by the passage, and nothing is left that looks done.
func TestServedEncoderRefusesAPassage(t *testing.T) {
	d := build(t, t.TempDir(), facts(150), 32, 1)
	rows := facts(150)
	rows[97].Contents = strings.Repeat("long ", 100)
	passages := writePassages(t, filepath.Join(t.TempDir(), "passages"), rows, 2)
	s, url := serveFolder(t, d.encoder)
	s.longest = 200
	out := filepath.Join(t.TempDir(), "vectors")
	err := indexer.Embed(context.Background(), newRun(t, 1), indexer.EmbedOptions{Encoder: url, Passages: passages, Out: out, Server: quickServer()})
	if fail.KindOf(err) != fail.BadInput {
		t.Fatal(err)
	}
	for _, want := range []string{"row 98", "sample p97", "less than 50 tokens"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("message lacks %q: %v", want, err)
		}
	}
	if _, err := os.Stat(filepath.Join(out, manifest.File)); err == nil {
		t.Error("left a manifest")
	}
}

// Images are embedded by a server that reads them, and asked for in the same form
// without saying it again.
func TestServedImages(t *testing.T) {
	ctx, clip := context.Background(), clipFolder(t)
	d := newTree(t.TempDir())
	store, err := corpus.OpenStore(filepath.Join(d.passages, "images"))
	must(t, err)
	var rows []corpus.Passage
	for n := range 9 {
		sha, err := store.Put(paint(t, n))
		must(t, err)
		rows = append(rows, corpus.Passage{ID: fmt.Sprint("p", n), Contents: fmt.Sprint("Picture ", n), ImageID: sha})
	}
	writePassages(t, d.passages, rows, 1)
	_, url := serveFolder(t, clip)
	o := indexer.EmbedOptions{Encoder: url, Passages: d.passages, Out: d.vectors, Server: quickServer()}
	o.Server.Images = llm.InfinityImages
	must(t, indexer.Embed(ctx, newRun(t, 1), o))
	must(t, indexer.Build(ctx, newRun(t, 1), indexer.BuildOptions{Vectors: d.vectors, Passages: d.passages, Out: d.index}))
	x := open(t, d.index, indexer.WithServer(quickServer()))
	for n := range rows {
		q, err := x.ImageQuery(paint(t, n))
		must(t, err)
		found, err := x.SearchQueries(ctx, []indexer.Query{q}, 1, faiss.Effort{})
		must(t, err)
		if h := found[0][0]; h.Row != int64(n) || math.Abs(float64(h.Score)-1) > 1e-4 {
			t.Errorf("image %d finds row %d with %g", n, h.Row, h.Score)
		}
	}
}
