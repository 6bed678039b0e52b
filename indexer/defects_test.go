package indexer_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/corpus"
	"searchloop/indexer/retrieve"
)

// Tests named after defects of the published systems (G4 is defect 4), where no other
// test has the name.

// document is a hit as clients read it.
type document struct {
	ID       string
	Contents string
	ImgPath  string `json:"img_path"`
}

// ask posts a request to the index over HTTP.
func ask(t *testing.T, x retrieve.Searcher, body string, to any) {
	t.Helper()
	w := httptest.NewRecorder()
	retrieve.New(x, retrieve.Options{}).ServeHTTP(w, httptest.NewRequest("POST", "/retrieve", strings.NewReader(body)))
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	must(t, json.Unmarshal(w.Body.Bytes(), to))
}

// Images of hits are named and not read: one of a terabyte that nothing can decode keeps
// no search from its answer.
func TestG4ImagesOfHitsAreNotRead(t *testing.T) {
	root := t.TempDir()
	d := newTree(root)
	store, err := corpus.OpenStore(filepath.Join(d.passages, "images"))
	must(t, err)
	sha, err := store.Put([]byte("\x89PNG\r\n\x1a\n and the rest"))
	must(t, err)
	rows := facts(30)
	for i := range rows {
		rows[i].ImageID = sha
	}
	build(t, root, rows, 32, 1)
	x := open(t, d.index)
	path, err := x.ImagePath(sha)
	must(t, err)
	must(t, os.Truncate(path, 1<<40)) // of zeros: whoever reads it does not come back
	var got struct {
		Result [][]struct{ Document document }
	}
	ask(t, x, `{"queries":["river","bird"],"topk":20,"return_scores":true}`, &got)
	if len(got.Result) != 2 || len(got.Result[1]) != 20 {
		t.Fatalf("%d answers", len(got.Result))
	}
	for _, hit := range got.Result[1] {
		if hit.Document.ImgPath != path || hit.Document.Contents == "" {
			t.Errorf("%+v, want the image at %s", hit.Document, path)
		}
	}
}

// Ranked by words too, each query has the hits that it has alone, and hits are objects
// with a score, as those of vectors are.
func TestG8RankingKeepsQueriesApart(t *testing.T) {
	x := open(t, build(t, t.TempDir(), facts(120), 16, 2).index)
	h, err := x.WithWords(context.Background(), t.TempDir())
	must(t, err)
	defer h.Close()
	type answer struct {
		Result [][]struct {
			Document document
			Score    *float32
		}
	}
	var both answer
	ask(t, h, `{"queries":["founder of vornavor","bird of navorvor"],"topk":7,"return_scores":true}`, &both)
	for i, q := range []string{"founder of vornavor", "bird of navorvor"} {
		var alone answer
		ask(t, h, `{"queries":["`+q+`"],"topk":7,"return_scores":true}`, &alone)
		for r, hit := range both.Result[i] {
			one := alone.Result[0][r]
			if hit.Score == nil || *hit.Score != *one.Score || hit.Document != one.Document || hit.Document.Contents == "" {
				t.Errorf("%s, rank %d: %+v, alone %+v", q, r, hit, one)
			}
		}
	}
}
