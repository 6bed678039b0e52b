package live

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"searchloop/corpus"
	"searchloop/corpus/publish"
	"searchloop/internal/fail"
	"searchloop/internal/kv"
	"searchloop/internal/llm"
	"searchloop/internal/lookup"
	"searchloop/internal/picture"
	"searchloop/internal/recipe"
	"searchloop/internal/retry"
	"searchloop/internal/tape"
	"searchloop/rollout/protocol"
	"searchloop/rollout/tool"
)

// bucket takes files by PUT and shows them to everyone.
type bucket struct {
	*httptest.Server
	mu     sync.Mutex
	files  map[string][]byte
	puts   int
	status int // of every PUT; 0: as it should be
}

func newBucket(t *testing.T) *bucket {
	b := &bucket{files: map[string][]byte{}}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		defer b.mu.Unlock()
		switch file, there := b.files[r.URL.Path]; {
		case r.Method == http.MethodPut && r.Header.Get("Authorization") != "Bearer "+canary:
			w.WriteHeader(http.StatusForbidden)
		case r.Method == http.MethodPut && b.status != 0:
			w.WriteHeader(b.status)
		case r.Method == http.MethodPut:
			b.puts++
			b.files[r.URL.Path] = data
			w.WriteHeader(http.StatusCreated)
		case !there:
			w.WriteHeader(http.StatusNotFound)
		default:
			w.Header().Set("Content-Length", fmt.Sprint(len(file)))
			w.Write(file)
		}
	}))
	t.Cleanup(b.Close)
	return b
}

// seeing is a reader that is shown what it reads about.
type seeing struct {
	images int
	asked  string
}

func (s *seeing) Chat(_ context.Context, r llm.Request) (*llm.Reply, error) {
	m := r.Messages[len(r.Messages)-1]
	s.images, s.asked = len(m.Images), m.Text
	return &llm.Reply{Text: `{"rationale": "r", "evidence": "The emblem of Vorna.", "summary": "It is Vorna's."}`}, nil
}

// Crops are uploaded when they are searched for, and only then: under the limits, the
// price and the count of the storage, each once; the pages they are found on are read
// with the crop at hand. What is kept or recorded needs no upload and no storage.
func TestCropsAreUploaded(t *testing.T) {
	t.Setenv("PUBLISH_TOKEN", canary)
	b := newBucket(t)
	lens := 0
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lens++
		var in struct{ URL string }
		json.NewDecoder(r.Body).Decode(&in)
		resp, err := http.Get(in.URL) // as the search engine does
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s cannot be read: %v", in.URL, err)
			return
		}
		defer resp.Body.Close()
		if p, err := decode(resp.Body); err != nil || p.W != 40 || p.H != 40 { // half of the picture's 20 pixels, twice as large
			t.Errorf("a crop of %+v, %v", p, err)
		}
		fmt.Fprintf(w, `{"searchParameters":{},"organic":[{"title":"Emblem","link":"https://a.test/%s"}]}`, in.URL[len(in.URL)-12:])
	}))
	defer api.Close()
	dir := t.TempDir()
	images, err := corpus.OpenStore(filepath.Join(dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	id, err := images.Put(drawing(40, 20))
	if err != nil {
		t.Fatal(err)
	}
	store, err := kv.Open(t.Context(), filepath.Join(dir, "cache"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	read := &seeing{}
	run := func(record, replay, cache string) (tool.Result, map[string]string, error) {
		tp, err := tape.Open(record, replay)
		if err != nil {
			t.Fatal(err)
		}
		opt := lookup.DeskOptions{Tape: tp}
		if cache != "" {
			opt.Store = store
		}
		desk := lookup.NewDesk(opt)
		way := quick
		way.Price = 0.5
		p, err := Open(desk, "serper", Options{Gateway: api.URL, Way: quick, Offline: tp.Replays()}, Lens)
		if err != nil {
			t.Fatal(err)
		}
		c := Crops{Provider: p, Pages: fixed("Emblem\nA long page."), Read: func(ctx context.Context, page, goal string, crop []byte) (string, error) {
			return tool.Read(ctx, read, page, goal, 0, crop)
		}}
		if !tp.Replays() {
			up, err := publish.NewUploader(publish.Options{To: b.URL + "/crops", Expires: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			c.Shelf = OpenShelf(desk, up, way)
		}
		box, err := tool.New([]recipe.Tool{{Name: tool.CropAndSearch, TopK: 3, Enlarge: 2}}, tool.Sources{Crops: c, Store: images})
		if err != nil {
			t.Fatal(err)
		}
		q := &corpus.Question{ID: "q", ImageIDs: []string{id}}
		r, err := box.Run(t.Context(), q, protocol.Call{Name: tool.CropAndSearch, Image: 1, Goal: "whose emblem", Boxes: []protocol.Box{{0, 0, 500, 1000}, {0, 0, 500, 1000}}})
		used := map[string]string{}
		for name, u := range desk.Taken() {
			used[name] = fmt.Sprintf("%d calls, %d failed, $%g", u.Calls, u.Failed, u.Dollars)
		}
		return r, used, err
	}
	record := filepath.Join(dir, "record")
	first, used, err := run(record, "", "cache")
	if err != nil {
		t.Fatal(err)
	}
	if b.puts != 1 || lens != 1 || fmt.Sprint(used) != "map[serper:1 calls, 0 failed, $0 storage:1 calls, 0 failed, $0.5]" {
		t.Errorf("%d uploads, %d searches, %v", b.puts, lens, used)
	}
	if !strings.Contains(first.Text, "Box [0, 0, 500, 1000]:\n1. [Emblem](https://a.test/") || !strings.Contains(first.Text, "Evidence: The emblem of Vorna.") || len(first.Images) != 0 ||
		read.images != 1 || !strings.Contains(read.asked, "whose emblem") || len(first.Sources) != 1 || first.Sources[0].Provider != "serper" {
		t.Errorf("%q\n%+v; the reader saw %d images and %q", first.Text, first.Sources, read.images, read.asked)
	}
	// Kept: neither is asked, not even without what was uploaded.
	b.files = map[string][]byte{}
	if again, used, err := run("", "", "cache"); err != nil || again.Text != first.Text || b.puts != 1 || lens != 1 || len(used["storage"]) > 0 {
		t.Errorf("%v: %d uploads, %d searches, %v", err, b.puts, lens, used)
	}
	// Replayed: the storage is not there any more, and the record holds no address of it.
	host := strings.TrimPrefix(b.URL, "http://")
	if err := filepath.WalkDir(record, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		z, err := zstd.NewReader(bytes.NewReader(data))
		if err != nil {
			return err
		}
		defer z.Close()
		text, err := io.ReadAll(z)
		if strings.Contains(string(text), host) || strings.Contains(string(text), canary) {
			t.Errorf("%s holds an address or a key: %s", path, text)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if again, _, err := run("", record, ""); err != nil || again.Text != first.Text || b.puts != 1 || lens != 1 {
		t.Errorf("%v: %q", err, again.Text)
	}
	// A storage that fails fails the trajectory under its own name; one that refuses
	// ends the job and says what helps. The search engine is not asked.
	for status, verdict := range map[int]retry.Verdict{http.StatusServiceUnavailable: retry.Again, http.StatusUnauthorized: retry.Stop} {
		b.status = status
		_, used, err := run("", "", "")
		f := llm.FaultOf(err)
		if f == nil || f.Verdict != verdict || f.Class != fmt.Sprint("http ", status) || fail.KindOf(err) != fail.Service || !strings.Contains(err.Error(), "upload a crop") || lens != 1 || used["serper"] != "" {
			t.Errorf("%d: %v, %v", status, err, used)
		}
		if hint := fmt.Sprintf("%+v", err); verdict == retry.Stop && !strings.Contains(hint, "PUBLISH_TOKEN") {
			t.Errorf("no remedy in %s", hint)
		}
	}
}

// fixed is one page, whatever the address.
type fixed string

func (f fixed) Get(context.Context, string) (string, error) { return string(f), nil }

func decode(r io.Reader) (*picture.Picture, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return picture.Decode(data)
}
