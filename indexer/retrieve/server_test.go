package retrieve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"searchloop/corpus"
	"searchloop/indexer"
	"searchloop/indexer/faiss"
	"searchloop/indexer/vectors"
	"searchloop/internal/fail"
	"searchloop/internal/picture"
)

// fake answers each query with rows of a small corpus; odd rows are images.
type fake struct {
	search func(ctx context.Context, queries []string, k int) error
	images bool
}

func (f fake) SearchQueries(ctx context.Context, queries []indexer.Query, k int, e faiss.Effort) ([][]indexer.Hit, error) {
	texts := make([]string, len(queries))
	for i, q := range queries {
		if texts[i] = q.Text; q.Image != nil {
			texts[i] = fmt.Sprintf("%dx%d", q.Image.W, q.Image.H)
		}
	}
	if f.search != nil {
		if err := f.search(ctx, texts, k); err != nil {
			return nil, err
		}
	}
	if e.EfSearch > 0 {
		return nil, fail.New(fail.Usage, "search", "", "no ef_search here")
	}
	out := make([][]indexer.Hit, len(queries))
	for i, q := range texts {
		for r := range min(k, 4) {
			p := corpus.Passage{ID: fmt.Sprint(r), Contents: fmt.Sprintf("\"%s\"\n<b> & %d", q, r)}
			if r%2 == 1 {
				p.ImageID = "sha"
			}
			out[i] = append(out[i], indexer.Hit{Row: int64(r), Score: 0.83 - float32(r)/4 + float32(e.NProbe), Passage: p})
		}
	}
	return out, nil
}

func (f fake) ReadsImages() bool { return f.images }

func (fake) ImageQuery(data []byte) (indexer.Query, error) {
	p, err := picture.Decode(data)
	return indexer.Query{Image: p}, err
}

func (fake) ImagePath(sha string) (string, error) { return "/store/" + sha + ".jpg", nil }
func (fake) Describe() indexer.Description {
	return indexer.Description{Rows: 4, Metric: "inner_product", Corpus: "cc", Space: vectors.Space{Dim: 8, Encoder: "ee"}, Shards: make([]indexer.ShardRows, 2)}
}

var quiet = slog.New(slog.DiscardHandler)

func server(f fake, o Options) *Server {
	o.Log = quiet
	return New(f, o)
}

func post(t testing.TB, h http.Handler, body string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/retrieve", strings.NewReader(body)))
	if ct := w.Header().Get("Content-Type"); ct != "application/json" {
		t.Errorf("content type %q", ct)
	}
	return w.Code, w.Body.String()
}

// The protocol to the letter: the published example and its variants.
func TestRetrieve(t *testing.T) {
	s := server(fake{}, Options{TopK: 1})
	for _, c := range []struct{ name, body, want string }{
		{"scores", `{"queries":["a","b"],"topk":2,"return_scores":true}`,
			`{"result":[[{"document":{"id":"0","contents":"\"a\"\n<b> & 0"},"score":0.83},{"document":{"img_path":"/store/sha.jpg","text":"\"a\"\n<b> & 1","contents":"\"a\"\n<b> & 1"},"score":0.58}],` +
				`[{"document":{"id":"0","contents":"\"b\"\n<b> & 0"},"score":0.83},{"document":{"img_path":"/store/sha.jpg","text":"\"b\"\n<b> & 1","contents":"\"b\"\n<b> & 1"},"score":0.58}]]}`},
		{"no scores", `{"queries":["a","b"],"topk":1,"return_scores":false}`, `{"result":[[{"id":"0","contents":"\"a\"\n<b> & 0"}],[{"id":"0","contents":"\"b\"\n<b> & 0"}]]}`},
		{"no scores is the default", `{"queries":["a"]}`, `{"result":[[{"id":"0","contents":"\"a\"\n<b> & 0"}]]}`},
		{"an effort of its own", `{"queries":["a"],"nprobe":4,"return_scores":true}`, `{"result":[[{"document":{"id":"0","contents":"\"a\"\n<b> & 0"},"score":4.83}]]}`},
		{"topk null", `{"queries":["a"],"topk":null}`, `{"result":[[{"id":"0","contents":"\"a\"\n<b> & 0"}]]}`},
		{"topk 0", `{"queries":["a"],"topk":0}`, `{"result":[[{"id":"0","contents":"\"a\"\n<b> & 0"}]]}`},
		{"no queries", `{"queries":[],"topk":3,"return_scores":true}`, `{"result":[]}`},
		{"unknown field", `{"queries":[],"user":{"x":1}}`, `{"result":[]}`},
		{"lax types", `{"queries":["a"],"topk":"1","return_scores":"no"}`, `{"result":[[{"id":"0","contents":"\"a\"\n<b> & 0"}]]}`},
	} {
		if code, got := post(t, s, c.body); code != 200 || got != c.want {
			t.Errorf("%s: %d\n got %s\nwant %s", c.name, code, got, c.want)
		}
	}
	if code, body := post(t, s, `{"queries":["a"],"ef_search":9}`); code != 422 || !strings.Contains(body, "no ef_search here") {
		t.Errorf("a setting that the index does not have: %d %s", code, body)
	}
	// More than the index has: all it has, never a made-up row.
	_, body := post(t, s, `{"queries":["a"],"topk":900,"return_scores":true}`)
	var a struct{ Result [][]json.RawMessage }
	if err := json.Unmarshal([]byte(body), &a); err != nil || len(a.Result) != 1 || len(a.Result[0]) != 4 {
		t.Errorf("topk 900 of 4 rows: %s", body)
	}
}

// Documents without scores, of one query, of two and of three: each query has its own, in
// the order in which they were asked (G1 of the published systems' defects: two were
// taken for documents and scores, and any other number was an error).
func TestG1DocumentsWithoutScores(t *testing.T) {
	s := server(fake{}, Options{})
	for n := 1; n <= 3; n++ {
		queries, _ := json.Marshal([]string{"a", "b", "c"}[:n])
		code, body := post(t, s, fmt.Sprintf(`{"queries":%s,"topk":2,"return_scores":false}`, queries))
		var got struct {
			Result [][]struct{ ID, Contents string }
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || code != 200 || len(got.Result) != n {
			t.Fatalf("%d queries: %d %s", n, code, body)
		}
		for i, hits := range got.Result {
			for r, hit := range hits {
				if want := fmt.Sprintf("\"%c\"\n<b> & %d", 'a'+i, r); hit.Contents != want {
					t.Errorf("query %d of %d, hit %d: %q, want %q", i, n, r, hit.Contents, want)
				}
			}
		}
	}
}

func TestValidation(t *testing.T) {
	s := server(fake{}, Options{MaxTopK: 100, MaxQueries: 2})
	for _, c := range []struct {
		body string
		want string // type@loc, all of them
	}{
		{``, `missing@["body"]`},
		{`{}`, `missing@["body","queries"]`},
		{`{"queries":`, `json_invalid@["body",11]`},
		{`{"queries":[]} x`, `json_invalid@["body",15]`},
		{`[1]`, `model_attributes_type@["body"]`},
		{`null`, `model_attributes_type@["body"]`},
		{`{"queries":"a"}`, `list_type@["body","queries"]`},
		{`{"queries":null}`, `list_type@["body","queries"]`},
		{`{"queries":["a",1,null]}`, `too_long@["body","queries"]`},
		{`{"queries":[1,null]}`, `string_type@["body","queries",0] string_type@["body","queries",1]`},
		{`{"queries":["a"],"topk":-1}`, `greater_than_equal@["body","topk"]`},
		{`{"queries":["a"],"topk":101}`, `less_than_equal@["body","topk"]`},
		{`{"queries":["a"],"topk":1e99}`, `int_parsing_size@["body","topk"]`},
		{`{"queries":["a"],"topk":3.5}`, `int_from_float@["body","topk"]`},
		{`{"queries":["a"],"topk":"three"}`, `int_parsing@["body","topk"]`},
		{`{"queries":["a"],"topk":[3]}`, `int_type@["body","topk"]`},
		{`{"queries":["a"],"nprobe":-1,"ef_search":1048577}`, `greater_than_equal@["body","nprobe"] less_than_equal@["body","ef_search"]`},
		{`{"queries":["a"],"return_scores":null}`, `bool_type@["body","return_scores"]`},
		{`{"queries":["a"],"return_scores":"perhaps"}`, `bool_parsing@["body","return_scores"]`},
		{`{"queries":["a"],"return_scores":2}`, `bool_parsing@["body","return_scores"]`},
		{`{"topk":-1,"return_scores":[]}`, `missing@["body","queries"] greater_than_equal@["body","topk"] bool_type@["body","return_scores"]`},
	} {
		code, body := post(t, s, c.body)
		var reply struct {
			Detail []struct {
				Type  string
				Loc   json.RawMessage
				Msg   string
				Input json.RawMessage
			}
		}
		if err := json.Unmarshal([]byte(body), &reply); err != nil {
			t.Errorf("%s: %v in %s", c.body, err, body)
			continue
		}
		var got []string
		for _, d := range reply.Detail {
			got = append(got, d.Type+"@"+string(d.Loc))
			if d.Msg == "" || d.Input == nil {
				t.Errorf("%s: entry without message or input: %s", c.body, body)
			}
		}
		if code != http.StatusUnprocessableEntity || strings.Join(got, " ") != c.want {
			t.Errorf("%s: %d %s, want %s", c.body, code, got, c.want)
		}
	}
}

// Whatever the bytes, the answer is JSON with a known status.
func FuzzRetrieve(f *testing.F) {
	f.Add(`{"queries":["a"],"topk":3,"return_scores":true}`)
	f.Add(`{"queries":[[]],"topk":{},"return_scores":1.5}`)
	s := server(fake{}, Options{})
	f.Fuzz(func(t *testing.T, body string) {
		code, got := post(t, s, body)
		if code != 200 && code != 422 || !json.Valid([]byte(got)) {
			t.Fatalf("%q: %d %s", body, code, got)
		}
	})
}

func TestErrorsAreJSON(t *testing.T) {
	s := server(fake{search: func(_ context.Context, q []string, _ int) error {
		switch q[0] {
		case "panic":
			panic("boom")
		case "error":
			return errors.New("shard 3 is gone")
		}
		return nil
	}}, Options{MaxBody: 100})
	for _, c := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"POST", "/retrieve", `{"queries":["error"]}`, 500, `{"detail":"shard 3 is gone"}`},
		{"POST", "/retrieve", `{"queries":["panic"]}`, 500, `{"detail":"Internal Server Error"}`},
		{"POST", "/retrieve", `{"queries":["` + strings.Repeat("x", 200) + `"]}`, 413, `{"detail":"the request is larger than 100 bytes"}`},
		{"GET", "/retrieve", ``, 405, `{"detail":"Method Not Allowed"}`},
		{"GET", "/", ``, 404, `{"detail":"Not Found"}`},
		{"GET", "/health", ``, 200, `{"status":"ok","rows":4,"shards":2,"dim":8,"metric":"inner_product","encoder":"ee","corpus":"cc","topk":3,"searches":0,"waiting":0}`},
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader(c.body)))
		if w.Code != c.code || w.Body.String() != c.want {
			t.Errorf("%s %s: %d %s", c.method, c.path, w.Code, w.Body)
		}
	}
}

// start serves on a loopback port.
func start(t testing.TB, s *Server) (url string, stop chan struct{}, done chan error, cancel context.CancelFunc) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stop, done = make(chan struct{}), make(chan error, 1)
	go func() { done <- Serve(ctx, stop, l, s) }()
	return "http://" + l.Addr().String(), stop, done, cancel
}

func TestManyClients(t *testing.T) {
	url, stop, done, _ := start(t, server(fake{}, Options{}))
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for n := range 5 {
				q := fmt.Sprintf("q%d-%d", i, n)
				resp, err := http.Post(url+"/retrieve", "application/json", strings.NewReader(`{"queries":["`+q+`"],"return_scores":true}`))
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != 200 || bytes.Count(body, []byte(q)) != 4 { // 3 hits, the image's title twice
					t.Errorf("%s: %d %s %v", q, resp.StatusCode, body, err)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A stop lets the request in flight end and takes no new one.
func TestGracefulStop(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	url, stop, done, _ := start(t, server(fake{search: func(context.Context, []string, int) error {
		close(entered)
		<-release
		return nil
	}}, Options{}))
	answered := make(chan int, 1)
	go func() {
		resp, err := http.Post(url+"/retrieve", "application/json", strings.NewReader(`{"queries":["a"]}`))
		if err != nil {
			answered <- 0
			return
		}
		resp.Body.Close()
		answered <- resp.StatusCode
	}()
	<-entered
	close(stop)
	for i := 0; ; i++ { // the listener closes at once, though a request is in flight
		if _, err := http.Get(url + "/health"); err != nil {
			break
		}
		if i > 500 {
			t.Fatal("still listening")
		}
		time.Sleep(time.Millisecond)
	}
	close(release)
	if code := <-answered; code != 200 {
		t.Errorf("the request in flight got %d", code)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Requests beyond the waiting ones are told to come back; those whose client
// leaves make room.
func TestOverload(t *testing.T) {
	release, entered := make(chan struct{}), make(chan struct{}, 9)
	s := server(fake{search: func(ctx context.Context, _ []string, _ int) error {
		entered <- struct{}{}
		<-release
		return nil
	}}, Options{Waiting: 1})
	ctx, leave := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { post(t, s, `{"queries":["a"]}`) })
	<-entered
	wg.Go(func() { // one waits, until its client leaves
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("POST", "/retrieve", strings.NewReader(`{"queries":["a"]}`)).WithContext(ctx))
	})
	for s.queue.waiting() < 1 {
		time.Sleep(time.Millisecond)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("POST", "/retrieve", strings.NewReader(`{"queries":["a"]}`)))
	if w.Code != 429 || w.Header().Get("Retry-After") == "" || !json.Valid(w.Body.Bytes()) {
		t.Errorf("overloaded: %d %s", w.Code, w.Body)
	}
	leave()
	close(release)
	wg.Wait()
	for s.queue.busy() {
		time.Sleep(time.Millisecond)
	}
	if len(entered) != 0 {
		t.Error("searched for a client that had left")
	}
	w = httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{`searchloop_retrieve_requests_total{code="200"} 1`, `searchloop_retrieve_requests_total{code="429"} 1`, "searchloop_retrieve_queries_total 1\n",
		`searchloop_retrieve_seconds_bucket{le="+Inf"} 1`, "searchloop_retrieve_batch_requests_sum 1\n", "searchloop_retrieve_waiting 0\n", "searchloop_retrieve_rows 4\n"} {
		if !strings.Contains(w.Body.String(), line) {
			t.Errorf("metrics lack %q:\n%s", line, w.Body)
		}
	}
}

// Requests that wait together are one search; each gets its own hits, as many as
// it asked for, and one that makes the search fail or panic fails alone.
func TestG3Batches(t *testing.T) {
	release, entered := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var mu sync.Mutex
	var calls [][]string
	s := server(fake{search: func(_ context.Context, q []string, _ int) error {
		once.Do(func() { close(entered); <-release })
		mu.Lock()
		calls = append(calls, q)
		mu.Unlock()
		for _, x := range q {
			switch x {
			case "panic":
				panic("boom")
			case "error":
				return errors.New("shard 3 is gone")
			}
		}
		return nil
	}}, Options{})
	var wg sync.WaitGroup
	ask := func(body string, code int, want string) {
		wg.Go(func() {
			if c, got := post(t, s, body); c != code || got != want {
				t.Errorf("%s: %d %s, want %d %s", body, c, got, code, want)
			}
		})
	}
	round := func(ask func()) {
		ask()
		for s.queue.waiting() < 3 {
			time.Sleep(time.Millisecond)
		}
	}
	ask(`{"queries":["first"],"topk":1}`, 200, `{"result":[[{"id":"0","contents":"\"first\"\n<b> & 0"}]]}`)
	<-entered
	round(func() {
		ask(`{"queries":["a","b"],"topk":1}`, 200, `{"result":[[{"id":"0","contents":"\"a\"\n<b> & 0"}],[{"id":"0","contents":"\"b\"\n<b> & 0"}]]}`)
		ask(`{"queries":["error"]}`, 500, `{"detail":"shard 3 is gone"}`)
		ask(`{"queries":["panic"]}`, 500, `{"detail":"Internal Server Error"}`)
	})
	close(release)
	wg.Wait()
	if len(calls) != 5 || len(calls[1]) != 4 { // the first, all together, each alone
		t.Errorf("searched for %q", calls)
	}
	b := batcher{most: 3, arrived: make(chan struct{}, 1)}
	for _, n := range []int{2, 1, 1, 9, 1} {
		b.queue = append(b.queue, &pending{ctx: context.Background(), queries: make([]indexer.Query, n)})
	}
	b.queue = append(b.queue, &pending{ctx: context.Background(), effort: faiss.Effort{NProbe: 3}}, &pending{ctx: context.Background(), effort: faiss.Effort{NProbe: 3}})
	for _, want := range []int{2, 1, 1, 1, 2, 0} {
		if got := len(b.take()); got != want {
			t.Errorf("a batch of %d requests, want %d", got, want)
		}
	}
}
