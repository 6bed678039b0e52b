package live

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"searchloop/internal/fail"
	"searchloop/internal/kv"
	"searchloop/internal/llm"
	"searchloop/internal/lookup"
	"searchloop/internal/retry"
	"searchloop/internal/tape"
)

// canary is every key of these tests: it must be found nowhere.
const canary = "canary-7f3a+/=key"

var quick = lookup.Options{Keep: time.Hour, Empty: time.Minute, Retry: retry.Options{Base: time.Millisecond, Cap: time.Millisecond, Open: time.Millisecond, Tries: 3}}

// offered is what a provider documents for one kind: how it is asked, what it
// answers, and what that comes to.
type offered struct {
	provider string
	kind     Kind
	method   string
	path     string // with the query, without the key
	body     string // as JSON; "" for none
	header   string // that the key is in; "" for the query
	answer   string
	nothing  string // an answer without hits; "" where there is none
	broke    [2]any // status and body that say that the account is empty
	want     Answer
}

const lensURL = "https://cdn.test/ab.jpg"

var conformance = []offered{
	{"serpapi", Web, "GET", "/search.json?engine=google&gl=us&hl=en&num=3&q=river+Lim", "", "",
		`{"search_metadata":{"id":"1","status":"Success"},"organic_results":[{"position":1,"title":"Lim","link":"https://a.test/","displayed_link":"a.test","snippet":"A river.","date":"May 1, 2024"},{"position":2,"title":"B","link":"https://b.test/"}]}`,
		`{"search_metadata":{"status":"Success"},"error":"Google hasn't returned any results for this query."}`,
		[2]any{429, `{"error":"Your account has run out of searches."}`},
		Answer{Found: []Found{{Title: "Lim", Link: "https://a.test/", Snippet: "A river.", Date: "May 1, 2024"}, {Title: "B", Link: "https://b.test/"}}}},
	{"serpapi", Images, "GET", "/search.json?engine=google_images&gl=us&hl=en&q=river+Lim", "", "",
		`{"search_metadata":{"status":"Success"},"images_results":[{"position":1,"thumbnail":"https://t.test/1","source":"A","title":"Lim","link":"https://a.test/","original":"https://a.test/1.jpg","original_width":10}]}`,
		`{"search_metadata":{"status":"Success"},"error":"Google hasn't returned any results for this query."}`, [2]any{},
		Answer{Found: []Found{{Title: "Lim", Link: "https://a.test/", Image: "https://a.test/1.jpg", Thumbnail: "https://t.test/1"}}}},
	{"serpapi", Lens, "GET", "/search.json?country=us&engine=google_lens&hl=en&url=https%3A%2F%2Fcdn.test%2Fab.jpg", "", "",
		`{"search_metadata":{"status":"Success"},"visual_matches":[{"position":1,"title":"Lim","link":"https://a.test/","source":"A","thumbnail":"https://t.test/1","image":"https://a.test/1.jpg"}]}`,
		`{"search_metadata":{"status":"Success"},"error":"Google Lens hasn't returned any results for this query."}`, [2]any{},
		Answer{Found: []Found{{Title: "Lim", Link: "https://a.test/", Image: "https://a.test/1.jpg", Thumbnail: "https://t.test/1"}}}},
	{"serper", Web, "POST", "/search", `{"q":"river Lim","num":3,"hl":"en","gl":"us"}`, "X-Api-Key",
		`{"searchParameters":{"q":"river Lim"},"knowledgeGraph":{"title":"no hit"},"organic":[{"title":"Lim","link":"https://a.test/","snippet":"A river.","date":"May 1, 2024","position":1}],"credits":1}`,
		`{"searchParameters":{"q":"x"},"organic":[],"credits":1}`, [2]any{400, `{"message":"Not enough credits","statusCode":400}`},
		Answer{Found: []Found{{Title: "Lim", Link: "https://a.test/", Snippet: "A river.", Date: "May 1, 2024"}}}},
	{"serper", Images, "POST", "/images", `{"q":"river Lim","num":3,"hl":"en","gl":"us"}`, "X-Api-Key",
		`{"searchParameters":{"q":"x"},"images":[{"title":"Lim","imageUrl":"https://a.test/1.jpg","imageWidth":10,"thumbnailUrl":"https://t.test/1","source":"A","domain":"a.test","link":"https://a.test/","position":1}],"credits":1}`,
		`{"searchParameters":{"q":"x"},"images":[],"credits":1}`, [2]any{},
		Answer{Found: []Found{{Title: "Lim", Link: "https://a.test/", Image: "https://a.test/1.jpg", Thumbnail: "https://t.test/1"}}}},
	{"serper", Lens, "POST", "/lens", `{"url":"https://cdn.test/ab.jpg"}`, "X-Api-Key",
		`{"searchParameters":{"url":"x"},"organic":[{"title":"Lim","source":"A","link":"https://a.test/","imageUrl":"https://a.test/1.jpg","thumbnailUrl":"https://t.test/1"}],"credits":3}`,
		`{"searchParameters":{"url":"x"},"organic":[],"credits":3}`, [2]any{},
		Answer{Found: []Found{{Title: "Lim", Link: "https://a.test/", Image: "https://a.test/1.jpg", Thumbnail: "https://t.test/1"}}}},
	{"serper", Page, "POST", "/", `{"url":"https://a.test/lim"}`, "X-Api-Key",
		`{"text":"A river.\nIt is long.","metadata":{"title":"Lim","og:type":"article"},"credits":2}`, "", [2]any{},
		Answer{Text: "Lim\nA river.\nIt is long."}},
	{"jina", Page, "POST", "/", `{"url":"https://a.test/lim"}`, "Authorization",
		`{"code":200,"status":20000,"data":{"title":"Lim","description":"","url":"https://a.test/lim","content":"A river.\nIt is long.","usage":{"tokens":7}}}`, "",
		[2]any{402, `{"data":null,"code":402,"name":"InsufficientBalanceError","status":40203,"message":"Account balance not enough"}`},
		Answer{Text: "Lim\nA river.\nIt is long."}},
	{"jina", Web, "POST", "/", `{"q":"river Lim","num":3,"hl":"en","gl":"us"}`, "Authorization",
		`{"code":200,"status":20000,"data":[{"title":"Lim","url":"https://a.test/","description":"A river.","date":"May 1, 2024","usage":{"tokens":1000}}]}`,
		`{"code":200,"status":20000,"data":[]}`, [2]any{},
		Answer{Found: []Found{{Title: "Lim", Link: "https://a.test/", Snippet: "A river.", Date: "May 1, 2024"}}}},
}

func (o offered) ask() Ask {
	switch o.kind {
	case Page:
		return Ask{Kind: Page, Text: "https://a.test/lim"}
	case Lens:
		return Ask{Kind: Lens, Text: lensURL, K: 3, ID: "ab"}
	}
	return Ask{Kind: o.kind, Text: "river Lim", K: 3}
}

// check compares a request with what the provider documents.
func (o offered) check(t *testing.T, r *http.Request) {
	t.Helper()
	body, _ := io.ReadAll(r.Body)
	q := r.URL.Query()
	if o.header == "" && q.Get("api_key") != canary || o.header != "" && !strings.HasSuffix(r.Header.Get(o.header), canary) {
		t.Errorf("the key is not where it belongs: %v", r.Header)
	}
	q.Del("api_key")
	path := r.URL.Path
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	var got, want any
	json.Unmarshal(body, &got)
	json.Unmarshal([]byte(o.body), &want)
	if r.Method != o.method || path != o.path || !reflect.DeepEqual(got, want) {
		t.Errorf("%s %s %s\nwant %s %s %s", r.Method, path, body, o.method, o.path, o.body)
	}
}

// Every provider, held to what it documents by a server that answers so.
func TestConformance(t *testing.T) {
	for _, name := range []string{"SERPAPI_API_KEY", "SERPER_API_KEY", "JINA_API_KEY"} {
		t.Setenv(name, canary)
	}
	for _, o := range conformance {
		t.Run(o.provider+"/"+string(o.kind), func(t *testing.T) {
			var answer http.HandlerFunc
			calls := 0
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				calls++
				if r.URL.Path != "/elsewhere" {
					o.check(t, r)
				}
				w.Header().Set("Content-Type", "application/json")
				answer(w, r)
			}))
			defer s.Close()
			text := func(status int, body string) http.HandlerFunc {
				return func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(status)
					io.WriteString(w, body)
				}
			}
			var log bytes.Buffer
			open := func() *Provider {
				d := lookup.NewDesk(lookup.DeskOptions{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
				p, err := Open(d, o.provider, Options{Gateway: s.URL, Locale: Locale{"en", "us"}, Way: quick}, o.kind)
				if err != nil {
					t.Fatal(err)
				}
				calls = 0
				return p
			}
			said := ""
			fault := func() *retry.Fault {
				a, err := open().ask(t.Context(), o.ask())
				said += fmt.Sprintf("%v %+v\n", err, a)
				var r refusal
				if r, _ = err.(refusal); r.why != nil {
					return r.why
				}
				return llm.FaultOf(err)
			}

			answer = text(200, o.answer)
			a, err := open().ask(t.Context(), o.ask())
			if err != nil {
				t.Fatal(err)
			}
			said += fmt.Sprintf("%+v\n", a)
			want := o.want
			want.URL, want.SHA256 = s.URL+o.path, digest([]byte(o.answer))
			if !reflect.DeepEqual(*a, want) {
				t.Errorf("\n got %+v\nwant %+v", *a, want)
			}
			if o.nothing != "" {
				answer = text(200, o.nothing)
				if a, err := open().ask(t.Context(), o.ask()); err != nil || !a.empty() {
					t.Errorf("nothing found: %+v %v", a, err)
				}
			}
			if o.broke[0] != nil {
				answer = text(o.broke[0].(int), o.broke[1].(string))
				if f := fault(); f == nil || f.Verdict != retry.Stop || f.Class != "no credit" || calls != 1 {
					t.Errorf("an empty account: %v, %d calls", f, calls)
				}
			}
			for status, want := range map[int]retry.Verdict{400: retry.Never, 422: retry.Never, 401: retry.Stop, 403: retry.Stop, 500: retry.Again, 503: retry.Again, 302: retry.Stop} {
				answer = func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Location", "/elsewhere")
					text(status, `{"message":"because of `+canary+`"}`)(w, r)
				}
				tries := map[retry.Verdict]int{retry.Again: 3}[want]
				if f := fault(); f == nil || f.Verdict != want || calls != max(1, tries) {
					t.Errorf("%d: %v, %d calls", status, f, calls)
				}
			}
			for name, body := range map[string]string{"HTML": "<html>proxy</html>", "cut": o.answer[:len(o.answer)/2], "another object": `{"x":1}`, "null": "null", "empty": ""} {
				answer = text(200, body)
				if f := fault(); f == nil || f.Verdict != retry.Again || calls != 3 {
					t.Errorf("%s: %v, %d calls", name, f, calls)
				}
			}
			answer = func(w http.ResponseWriter, r *http.Request) {
				if calls == 1 {
					w.Header().Set("Retry-After", "0.01")
					text(429, `{}`)(w, r)
					return
				}
				text(200, o.answer)(w, r)
			}
			if a, err := open().ask(t.Context(), o.ask()); err != nil || calls != 2 || a.empty() {
				t.Errorf("after 429: %v, %d calls", err, calls)
			}
			s.CloseClientConnections()
			s.Close()
			if f := fault(); f == nil || f.Class != "transport" || f.Verdict != retry.Again {
				t.Errorf("without a server: %v", f)
			}
			for _, leak := range []string{"canary", "7f3a"} {
				if strings.Contains(said, leak) || strings.Contains(log.String(), leak) {
					t.Errorf("the key leaks:\n%s\n%s", said, log.String())
				}
			}
		})
	}
}

func TestOpen(t *testing.T) {
	for _, k := range []string{"SERPAPI_API_KEY", "SERPER_API_KEY", "JINA_API_KEY"} {
		t.Setenv(k, "")
	}
	d := lookup.NewDesk(lookup.DeskOptions{})
	for _, c := range []struct {
		name string
		kind Kind
		opt  Options
		want string
	}{
		{"bing", Web, Options{}, "no such provider"},
		{"serper", Web, Options{}, "SERPER_API_KEY"},
		{"jina", Web, Options{}, "JINA_API_KEY"},
		{"jina", Lens, Options{}, "does not answer"},
		{"serpapi", Page, Options{}, "does not answer"},
		{"serper", Web, Options{Gateway: "gate:1"}, "not an http address"},
		{"serper", Web, Options{Gateway: "http://user:pass@gate:1"}, "user name"},
		{Direct, Web, Options{}, "searches for nothing"},
		{"jina", Page, Options{}, ""},
		{"serper", Web, Options{Gateway: "http://gate:1"}, ""},
		{"serper", Web, Options{Offline: true}, ""},
		{Direct, Page, Options{}, ""},
	} {
		_, err := Open(d, c.name, c.opt, c.kind)
		if c.want == "" && err != nil || c.want != "" && (fail.KindOf(err) != fail.Usage || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %s: %v, want %q", c.name, c.kind, err, c.want)
		}
	}
}

// Good results are kept: what was asked once is not asked again, and gives the same observation with the
// same source, from the store and from a record; no file holds a key.
func TestG24GoodResultsAreKept(t *testing.T) {
	t.Setenv("SERPAPI_API_KEY", canary)
	calls := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls++
		io.WriteString(w, conformance[0].answer)
	}))
	dir := t.TempDir()
	store, err := kv.Open(t.Context(), filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	search := func(opt lookup.DeskOptions, query string) (*Answer, error) {
		p, err := Open(lookup.NewDesk(opt), "serpapi", Options{Gateway: s.URL, Way: quick, Offline: opt.Tape.Replays()}, Web)
		if err != nil {
			t.Fatal(err)
		}
		return p.ask(t.Context(), Ask{Kind: Web, Text: query, K: 3})
	}
	rec, err := tape.Open(filepath.Join(dir, "tape"), "")
	if err != nil {
		t.Fatal(err)
	}
	first, err := search(lookup.DeskOptions{Store: store, Tape: rec}, "river Lim")
	if err != nil {
		t.Fatal(err)
	}
	again, err := search(lookup.DeskOptions{Store: store}, "  RIVER\tlim ")
	if err != nil || !reflect.DeepEqual(first, again) || calls != 1 {
		t.Errorf("%+v %v, %d calls", again, err, calls)
	}
	s.Close()
	replay, err := tape.Open("", filepath.Join(dir, "tape"))
	if err != nil {
		t.Fatal(err)
	}
	if again, err = search(lookup.DeskOptions{Tape: replay}, "river lim"); err != nil || !reflect.DeepEqual(first, again) {
		t.Errorf("replayed: %+v %v", again, err)
	}
	if _, err := search(lookup.DeskOptions{Tape: replay}, "another"); fail.KindOf(err) != fail.BadInput {
		t.Errorf("not recorded: %v", err)
	}
	files := 0
	unpack, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer unpack.Close()
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files++
			b, _ := os.ReadFile(path)
			if i := bytes.Index(b, []byte("\x28\xb5\x2f\xfd")); i >= 0 { // packed by zstd
				text, err := unpack.DecodeAll(b[i:], nil)
				if err != nil || !bytes.Contains(text, []byte("A river.")) {
					t.Errorf("%s: %v", path, err)
				}
				b = append(b, text...)
			}
			if bytes.Contains(b, []byte("canary")) {
				t.Errorf("%s holds a key", path)
			}
		}
		return err
	})
	if files == 0 {
		t.Error("nothing was kept")
	}
}
