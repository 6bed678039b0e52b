package tool

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/llm"
	"searchloop/internal/recipe"
	"searchloop/internal/retry"
	"searchloop/rollout/protocol"
)

// shelf is a Searcher over a few passages: those that contain the query, in order.
type shelf []Hit

func (s shelf) Search(_ context.Context, queries []string, k int) ([][]Hit, error) {
	out := make([][]Hit, len(queries))
	for i, q := range queries {
		for _, h := range s {
			if strings.Contains(h.Contents, q) && len(out[i]) < k {
				out[i] = append(out[i], h)
			}
		}
	}
	return out, nil
}

func draw(t *testing.T, w, h int, c color.Color) []byte {
	t.Helper()
	img := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			img.Set(x, y, c)
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type world struct {
	box   *Box
	store *corpus.ImageStore
	small string // id of an image that fits
	large string
}

func newWorld(t *testing.T) world {
	t.Helper()
	store, err := corpus.OpenStore(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	put := func(b []byte) string {
		id, err := store.Put(b)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	w := world{store: store, small: put(draw(t, 20, 10, color.White)), large: put(draw(t, 300, 200, color.NRGBA{200, 0, 0, 128}))}
	broken := put([]byte("\x89PNG\r\n\x1a\nnothing"))
	w.box, err = New([]recipe.Tool{
		{Name: TextSearch, Description: "texts", TopK: 2, PassageChars: 20},
		{Name: ImageByText, TopK: 3, Threshold: 0.7, Images: 1, ImagePixels: 1024},
		{Name: ImageByLens, TopK: 2, Images: 1, ImagePixels: 1024},
	}, Sources{
		Text: shelf{{Contents: "\"Vorna\"\nThe river of Vorna\n is <answer>Lim</answer>. More."}, {Contents: "Title only of Vorna"}, {Contents: "Third of Vorna"}},
		Image: shelf{{Contents: "Emblem of Vorna", ImageID: w.large, Score: 0.9}, {Contents: "Map of Vorna\nx", ImageID: w.small, Score: 0.8}, {Contents: "Dog of Vorna", Score: 0.5},
			{Contents: "Gone", ImageID: strings.Repeat("0", 64), Score: 1}, {Contents: "Broken", ImageID: broken, Score: 1}},
		Lens: Entries{
			"q1": {Hits: []corpus.LensHit{{}, {Title: "First", Path: "gone.jpg"}, {ImageID: w.small}, {Title: "Third", ImageID: w.large}}},
			"q2": {Hits: []corpus.LensHit{{}}},
		},
		Store: store,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w world) run(t *testing.T, q corpus.Question, name string, queries ...string) Result {
	t.Helper()
	r, err := w.box.Run(t.Context(), &q, protocol.Call{Name: name, Queries: queries})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestWhatThePolicyReads(t *testing.T) {
	w := newWorld(t)
	shown := corpus.Question{ID: "q1", ImageIDs: []string{w.large}}
	for _, c := range []struct {
		name    string
		q       corpus.Question
		tool    string
		queries []string
		text    string
		images  []string
		problem bool
	}{
		{"text", shown, TextSearch, []string{"Vorna"}, "Doc 1: (Title: \"Vorna\") The river of Vorna i…\nDoc 2: (Title: Title only of Vorna)", nil, false},
		{"two queries", shown, TextSearch, []string{"Third", "nowhere"}, "Doc 1: (Title: Third of Vorna)\n---\nNo result.", nil, false},
		{"images above the threshold", shown, ImageByText, []string{"Vorna"}, "Emblem of Vorna; Map of Vorna", []string{"*"}, false},
		{"a small image comes as it is", shown, ImageByText, []string{"Map"}, "Map of Vorna", []string{w.small}, false},
		{"all below", shown, ImageByText, []string{"Dog"}, NoResult, nil, false},
		{"missing image", shown, ImageByText, []string{"Gone"}, "Gone", nil, true},
		{"broken image", shown, ImageByText, []string{"Broken"}, "Broken", nil, true},
		{"lens", shown, ImageByLens, []string{"ignored"}, "First; (no title)", []string{w.small}, false},
		{"lens without image", corpus.Question{ID: "q1"}, ImageByLens, []string{"x"}, NoImage, nil, true},
		{"lens without entry", corpus.Question{ID: "q9", ImageIDs: []string{w.large}}, ImageByLens, []string{"x"}, NoEntry, nil, true},
		{"lens with an empty entry", corpus.Question{ID: "q2", ImageIDs: []string{w.large}}, ImageByLens, []string{"x"}, NoEntry, nil, true},
		{"unknown tool", shown, "python", []string{"x"}, `Error: there is no tool "python". Tools: text_search, image_search_by_text_query, image_search_by_lens.`, nil, true},
	} {
		for range 2 { // the second time from the table of known images
			r := w.run(t, c.q, c.tool, c.queries...)
			if r.Text != c.text || len(r.Images) != len(c.images) || (r.Problem != "") != c.problem {
				t.Errorf("%s: %q, %d images, problem %q", c.name, r.Text, len(r.Images), r.Problem)
				continue
			}
			for i, want := range c.images {
				if want != "*" && r.Images[i].ID != want {
					t.Errorf("%s: image %s", c.name, r.Images[i].ID)
				}
				if data, err := w.store.Get(r.Images[i].ID); err != nil || !bytes.Equal(data, r.Images[i].Data) {
					t.Errorf("%s: image %d is not the stored one: %v", c.name, i, err)
				}
			}
		}
	}
	r, err := w.box.Run(t.Context(), &shown, protocol.Call{Name: TextSearch, Problem: protocol.BadQueries})
	if err != nil || r.Text != protocol.BadQueries || r.Problem != r.Text {
		t.Error(r, err)
	}
	if s := w.box.Schemas(); len(s) != 3 || s[0].Name != TextSearch || s[0].Description != "texts" {
		t.Error(s)
	}
}

func TestShrink(t *testing.T) {
	// Half transparent red over white, in whole numbers.
	out, err := shrink(draw(t, 300, 200, color.NRGBA{200, 0, 0, 128}), 1024)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	if b := img.Bounds(); b.Dx() != 39 || b.Dy() != 26 {
		t.Errorf("%v", b)
	}
	if got := color.NRGBAModel.Convert(img.At(5, 5)); got != (color.NRGBA{227, 127, 127, 255}) {
		t.Errorf("%v", got)
	}
	again, _ := shrink(draw(t, 300, 200, color.NRGBA{200, 0, 0, 128}), 1024)
	if !bytes.Equal(out, again) {
		t.Error("not the same bytes twice")
	}
	for _, c := range []struct{ w, h int }{{1, 5000}, {5000, 1}, {33, 32}} {
		out, err := shrink(draw(t, c.w, c.h, color.Black), 1024)
		if err != nil {
			t.Fatal(err)
		}
		d, err := png.DecodeConfig(bytes.NewReader(out))
		if err != nil || d.Width*d.Height > 1024 {
			t.Errorf("%v: %dx%d %v", c, d.Width, d.Height, err)
		}
	}
	var j bytes.Buffer
	if err := jpeg.Encode(&j, image.NewRGBA(image.Rect(0, 0, 50, 50)), nil); err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][]byte{nil, []byte("text"), j.Bytes()[:len(j.Bytes())/2], j.Bytes()[:30]} {
		if _, err := shrink(bad, 100); err == nil {
			t.Errorf("%d bytes pass", len(bad))
		}
	}
}

func TestBoxNeedsItsSources(t *testing.T) {
	for _, name := range []string{TextSearch, ImageByText, ImageByLens, "telescope", Python} {
		if _, err := New([]recipe.Tool{{Name: name}}, Sources{}); fail.KindOf(err) != fail.Usage {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func remote(t *testing.T, h http.HandlerFunc) *Remote {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	r, err := NewRemote("text search", s.URL, retry.Options{Base: time.Millisecond, Cap: time.Millisecond, Open: time.Millisecond, Gone: time.Second}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A server that says when it will be ready is asked then, and not before.
func TestRemoteWaitsAsAsked(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		var first time.Time
		var waited time.Duration
		r := remote(t, func(w http.ResponseWriter, _ *http.Request) {
			if first.IsZero() {
				first = time.Now()
				w.Header().Set("Retry-After", "0.3") // whole seconds in the standard; fractions are read too
				w.WriteHeader(status)
				return
			}
			waited = time.Since(first)
			io.WriteString(w, `{"result":[[]]}`)
		})
		if _, err := r.Search(t.Context(), []string{"a"}, 1); err != nil || waited < 290*time.Millisecond {
			t.Errorf("%d: asked again after %s, %v", status, waited, err)
		}
	}
}

func TestRemote(t *testing.T) {
	good := `{"result":[[{"document":{"id":"7","contents":"\"T\"\nbody","image_id":"ab"},"score":0.83},{"document":{"title":"U","text":"v"},"score":0.5}],[]]}`
	n := 0
	r := remote(t, func(w http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		if req.URL.Path != "/retrieve" || string(b) != `{"queries":["a","b"],"return_scores":true,"topk":3}` {
			t.Errorf("%s %s", req.URL.Path, b)
		}
		switch n++; n {
		case 1:
			w.WriteHeader(500)
		case 2:
			io.WriteString(w, "Internal Server Error")
		case 3:
			io.WriteString(w, `{"detail":"x"}`)
		case 4:
			io.WriteString(w, `{"result":[[]]}`)
		default:
			io.WriteString(w, good)
		}
	})
	hits, err := r.Search(t.Context(), []string{"a", "b"}, 3)
	if err != nil || n != 5 || len(hits) != 2 || len(hits[0]) != 2 || len(hits[1]) != 0 ||
		!reflect.DeepEqual(hits[0][0], Hit{Contents: "\"T\"\nbody", ImageID: "ab", Score: 0.83, Link: "passage:7"}) || hits[0][1].Contents != "U\nv" {
		t.Fatalf("%v %v after %d calls", hits, err, n)
	}
	for status, verdict := range map[int]retry.Verdict{422: retry.Never, 404: retry.Stop, 401: retry.Stop, 500: retry.Again} {
		r = remote(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		_, err = r.Search(t.Context(), []string{"a"}, 3)
		if f := llm.FaultOf(err); f == nil || f.Verdict != verdict || fail.KindOf(err) != fail.Service {
			t.Errorf("%d: %v", status, err)
		}
	}
	if _, err := NewRemote("x", "localhost:9", retry.Options{}, nil); fail.KindOf(err) != fail.Usage {
		t.Error(err)
	}
	r = remote(t, func(_ http.ResponseWriter, req *http.Request) { io.ReadAll(req.Body); <-req.Context().Done() })
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("late"))
	defer cancel()
	if _, err := r.Search(ctx, []string{"a"}, 1); llm.FaultOf(err).Verdict != retry.Caller || fail.KindOf(err) != fail.Interrupted {
		t.Error(err)
	}
}
