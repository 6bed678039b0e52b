package rollout

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/zstd"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/rollout/scripted"
	"searchloop/rollout/trajectory"
)

// canaries are the keys of a live run; none may be found afterwards.
var canaries = map[string]string{"SERPER_API_KEY": "canary-serper-1", "SERPAPI_API_KEY": "canary-serpapi+/2", "JINA_API_KEY": "canary-jina-3", "READER_API_KEY": "canary-reader-4"}

// liveBench is a bench whose searches are answered by providers on loopback. Each
// third call of theirs fails and tells the key that it was sent.
func liveBench(t *testing.T) (b *bench, calls *atomic.Int64, end func()) {
	t.Helper()
	for k, v := range canaries {
		t.Setenv(k, v)
	}
	calls = new(atomic.Int64)
	var s *httptest.Server
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/page":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<title>Vorna</title><p>The river is Lim.<p hidden>It is Drina.")
			return
		case "/image.png":
			w.Header().Set("Content-Type", "image/png")
			w.Write(picture(t, 30))
			return
		}
		if calls.Add(1)%3 == 0 {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintf(w, `{"error":"no, %s %s"}`, r.Header.Get("X-API-KEY"), r.URL.Query().Get("api_key"))
			return
		}
		switch r.URL.Path {
		case "/search":
			fmt.Fprintf(w, `{"searchParameters":{},"organic":[{"title":"Vorna","link":"%s/page","snippet":"words"},{"title":"Inner","link":"http://127.0.0.1:1/"}]}`, s.URL)
		case "/lens":
			fmt.Fprintf(w, `{"searchParameters":{},"organic":[{"title":"Emblem","link":"%s/page","imageUrl":"%s/image.png"}]}`, s.URL, s.URL)
		case "/search.json":
			fmt.Fprintf(w, `{"search_metadata":{"status":"Success"},"images_results":[{"title":"Bridge","link":"%s/page","original":"http://10.0.0.1/x.png","thumbnail":"%s/image.png"}]}`, s.URL, s.URL)
		default:
			t.Errorf("asked for %s", r.URL.Path)
		}
	}))
	t.Cleanup(s.Close)
	call := func(tool, query string) string {
		return fmt.Sprintf("<think>t</think>\n<tool_call>{\"name\": %q, \"arguments\": {\"query_list\": [%q]}}</tool_call>", tool, query)
	}
	b = newBench(t, 4, scripted.Options{Script: scripted.Func(func(c scripted.Conversation) (string, error) {
		switch len(c.Observations()) {
		case 0:
			return call("image_search_by_lens", "emblem"), nil
		case 1:
			return call("image_search_by_text_query", "bridge of Vorna"), nil
		case 2:
			return call("text_search", "river of Vorna"), nil
		case 3:
			return call("visit", s.URL+"/page"), nil
		}
		if b.hold != nil {
			b.hold()
		}
		return "<think>t</think>\n<answer>Lim</answer>", nil
	})})
	var pub strings.Builder
	for _, q := range b.qs {
		fmt.Fprintf(&pub, "{\"image\":%q,\"url\":\"https://cdn.test/%s\"}\n", q.ImageIDs[0], q.ID)
	}
	text := fmt.Sprintf(`
name: bench
seed: 11
protocol: {name: mm-deepresearch, max_tool_calls: 4, calls_per_turn: 1, response_tokens: 4000, turn_tokens: 300, tool_chars: 400}
tools:
  - {name: text_search, topk: 2}
  - {name: image_search_by_text_query, topk: 2, images: 1, image_pixels: 64, threshold: 0.7}
  - {name: image_search_by_lens, topk: 2, images: 1, image_pixels: 64}
  - {name: visit}
retrieval: {web: serper, read: true, images: serpapi, lens: serper, pages: direct, allow: [%q], gateways: {serper: %q, serpapi: %q}, limits: {serper: {price: 1}, serpapi: {price: 10}}}
sampling: {train: {n: 2, temperature: 1, top_p: 1}, eval: {n: 1, temperature: 0, top_p: 1}}
rollout: {concurrency: 4, timeout_sec: 60, deadline_sec: 600}
reward: {name: mm-deepresearch, format: 0.1, accuracy: 0.9}
`, strings.TrimPrefix(s.URL, "http://"), s.URL, s.URL)
	b.opt.Published, b.opt.Cache, b.opt.Lens = filepath.Join(b.dir, "published.jsonl"), filepath.Join(b.dir, "cache"), ""
	for path, data := range map[string]string{b.recipe: text, b.opt.Published: pub.String()} {
		if err := os.WriteFile(path, []byte(data), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return b, calls, s.Close
}

// parts are the data files of a dataset.
func parts(t *testing.T, dir string) []byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "part-*.parquet"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var all []byte
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}

// A live run says where each observation came from and what it cost, asks for
// nothing twice, can be replayed without a network to the same bytes, and leaves no
// key anywhere.
func TestLiveRun(t *testing.T) {
	b, calls, end := liveBench(t)
	var log bytes.Buffer
	run := func(change func(*Options)) error {
		_, err := b.run(t, func(r *job.Run, o *Options) {
			r.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})) // without the scrubber of real runs
			change(o)
		})
		if err != nil {
			log.WriteString(err.Error())
		}
		return err
	}
	if err := run(func(o *Options) { o.Record = filepath.Join(b.dir, "record") }); err != nil {
		t.Fatal(err)
	}
	rows := b.rows(t, b.opt.Out)
	if len(rows) != 8 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		if row.Status != trajectory.OK || len(row.Turns) != 10 {
			t.Fatalf("%s %s: %d turns", row.Status, row.Why, len(row.Turns))
		}
		var got []string
		for _, turn := range row.Turns {
			if turn.Role != "tool" {
				if len(turn.Sources) > 0 {
					t.Errorf("a turn of %s has sources", turn.Role)
				}
				continue
			}
			line := turn.Call + ": " + turn.Text
			for _, s := range turn.Sources {
				if s.Time == "" || len(s.SHA256) != 64 || s.URL == "" {
					t.Errorf("%+v", s)
				}
				line += " " + s.Provider
			}
			got = append(got, fmt.Sprintf("%s +%d", line, len(turn.Images)))
		}
		page := row.Turns[8].Text
		want := []string{"image_search_by_lens: Emblem direct serper +1", "image_search_by_text_query: Bridge direct serpapi +1",
			"text_search: Doc 1: (Title: Vorna) The river is Lim.\nDoc 2: (Title: Inner) direct serper +0", "visit: " + page + " direct +0"}
		if strings.Join(got, "\n") != strings.Join(want, "\n") || !strings.Contains(page, "Vorna\nThe river is Lim.") || strings.Contains(page, "Drina") {
			t.Fatalf("observations\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	m, err := manifest.Open(b.opt.Out)
	if err != nil {
		t.Fatal(err)
	}
	// Four images, one query for images, one for text.
	if u := m.Usage.Providers; u["serper"].Calls-u["serper"].Failed != 5 || u["serpapi"].Calls-u["serpapi"].Failed != 1 || fmt.Sprintf("%.4f", m.Usage.Cost) != "0.0150" {
		t.Errorf("%+v cost %g", u, m.Usage.Cost)
	}

	before := calls.Load()
	if err := run(func(o *Options) { o.Out += "-cached" }); err != nil || calls.Load() != before {
		t.Errorf("%v, %d calls beside the cache", err, calls.Load()-before)
	}
	end()
	for k := range canaries {
		t.Setenv(k, "")
	}
	// Frozen: the policy is asked, the providers are gone, and what they said is known.
	asked := b.server.Requests()
	frozen := func(out string) []string {
		t.Helper()
		if err := run(func(o *Options) {
			o.Out, o.Cache, o.Frozen = o.Out+out, "", filepath.Join(b.dir, "record")
		}); err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, row := range b.rows(t, b.opt.Out+out) {
			if row.Status != trajectory.OK {
				t.Errorf("%s %s", row.Status, row.Why)
			}
			for _, turn := range row.Turns {
				said = append(said, turn.Text)
			}
		}
		return said
	}
	whole := frozen("-frozen")
	if n := b.server.Requests() - asked; n == 0 {
		t.Error("the policy was not asked")
	}
	for i, turn := range slices.Concat(rows[0].Turns, rows[1].Turns) {
		if whole[i] != turn.Text {
			t.Errorf("turn %d of the frozen run:\n%s\nwas\n%s", i, whole[i], turn.Text)
		}
	}
	// What is not on the record is not found, and the run goes on.
	unpacker, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer unpacker.Close()
	tapes, _ := filepath.Glob(filepath.Join(b.dir, "record", "??", "*"))
	var away []string
	for _, f := range tapes {
		packed, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := unpacker.DecodeAll(packed, nil); err != nil || bytes.Contains(text, []byte(`"lookup serpapi"`)) {
			away = append(away, f)
		}
	}
	if len(away) != 1 {
		t.Fatalf("%d records of serpapi", len(away))
	}
	if err := os.Rename(away[0], filepath.Join(b.dir, "away")); err != nil {
		t.Fatal(err)
	}
	if said := strings.Join(frozen("-holes"), "\n"); strings.Contains(said, "Bridge") || !strings.Contains(said, "The river is Lim") {
		t.Errorf("with a hole:\n%s", said)
	}
	if err := os.Rename(filepath.Join(b.dir, "away"), away[0]); err != nil {
		t.Fatal(err)
	}
	b.server.Close(t.Context())
	if err := run(func(o *Options) {
		o.Out, o.Cache, o.Replay = o.Out+"-replayed", "", filepath.Join(b.dir, "record")
	}); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{"-cached", "-replayed"} {
		if !bytes.Equal(parts(t, b.opt.Out), parts(t, b.opt.Out+out)) {
			t.Errorf("%s differs from the first run", out)
		}
	}
	for k, v := range canaries {
		t.Setenv(k, v)
	}
	// Providers that are gone end a run, and what is left of it is no place for keys either.
	run(func(o *Options) { o.Out, o.Cache = o.Out+"-gone", "" })

	unpack, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer unpack.Close()
	scanned := 0
	scan := func(name string, text []byte) {
		scanned++
		for _, leak := range []string{"canary", "serpapi+/2", "serpapi%2B"} {
			if bytes.Contains(text, []byte(leak)) {
				t.Errorf("%s holds a key", name)
			}
		}
	}
	scan("the log", log.Bytes())
	filepath.WalkDir(b.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		scan(path, text)
		if i := bytes.Index(text, []byte("\x28\xb5\x2f\xfd")); i >= 0 {
			if plain, err := unpack.DecodeAll(text[i:], nil); err == nil {
				scan(path, plain)
			}
		}
		return nil
	})
	for _, dir := range []string{"", "-cached", "-replayed"} {
		for _, row := range b.rows(t, b.opt.Out+dir) {
			text, _ := json.Marshal(row)
			scan("a row of "+dir, text)
		}
	}
	if scanned < 50 {
		t.Errorf("only %d texts were looked at", scanned)
	}
}

// The cost cap ends a run before it is passed; a higher one continues it.
func TestLiveCostCap(t *testing.T) {
	b, _, _ := liveBench(t)
	_, err := b.run(t, func(_ *job.Run, o *Options) { o.MaxCost = 0.004 })
	if fail.KindOf(err) != fail.Service || !strings.Contains(err.Error(), "cap") {
		t.Fatal(err)
	}
	if _, err := b.run(t, func(_ *job.Run, o *Options) { o.MaxCost = 1 }); err != nil || len(b.rows(t, b.opt.Out)) != 8 {
		t.Error(err)
	}
}

// What a live run needs and lacks is said before anything is asked.
func TestLiveNeeds(t *testing.T) {
	b, calls, _ := liveBench(t)
	for name, c := range map[string]struct {
		set    []string
		change func(*Options)
		want   string
	}{
		"no key":          {[]string{"retrieval.gateways={}"}, func(*Options) { t.Setenv("SERPER_API_KEY", "") }, "SERPER_API_KEY"},
		"not published":   {nil, func(o *Options) { o.Published = "" }, "--published"},
		"record, replay":  {nil, func(o *Options) { o.Record, o.Replay = "a", "b" }, "--replay"},
		"unknown":         {[]string{"retrieval.web=bing"}, func(*Options) {}, "retrieval.web"},
		"lens of jina":    {[]string{"retrieval.lens=jina"}, func(*Options) {}, "retrieval.lens"},
		"two of a kind":   {[]string{"retrieval.text_url=http://x:1"}, func(*Options) {}, "both"},
		"key in a recipe": {[]string{"retrieval.gateways.serper=http://user:pass@x:1"}, func(*Options) {}, "user name"},
		"no storage":      {[]string{"protocol.name=vision-deepresearch", "tools=[{name: crop_and_search}]", "retrieval={crops: serper, gateways: {serper: \"http://x:1\"}}"}, func(*Options) {}, "--publish"},
		"unread crops":    {[]string{"retrieval.read_crops=true"}, func(*Options) {}, "retrieval.crops"},
		"no such limit":   {[]string{"retrieval.limits.bing={price: 1}"}, func(*Options) {}, "retrieval.limits"},
	} {
		_, err := b.run(t, func(r *job.Run, o *Options) { r.Set = c.set; c.change(o) })
		if fail.KindOf(err) != fail.Usage && fail.KindOf(err) != fail.BadInput || !strings.Contains(fmt.Sprint(err), c.want) || strings.Contains(fmt.Sprint(err), "pass@") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if calls.Load() != 0 {
		t.Errorf("%d calls", calls.Load())
	}
	// Prices and limits change no row; who answers does.
	hash := func(set ...string) string {
		r := job.Testing(t)
		r.RecipePath, r.Set = b.recipe, set
		rec, err := r.Recipe()
		if err != nil {
			t.Fatal(err)
		}
		p, err := b.opt.plan(rec)
		if err != nil {
			t.Fatal(err)
		}
		return p.hash()
	}
	if hash() != hash("retrieval.limits.serper={price: 7, per_second: 3}", "retrieval.keep_days=3") || hash() == hash("retrieval.images=serper") || hash() == hash("retrieval.country=us") {
		t.Error("the identity of a rollout depends on prices, or not on providers")
	}
}

// Where there is no sandbox, the Python tool is left out, it is said, and the rows
// are those of a recipe without it.
func TestNoSandboxNoPython(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	b := newBench(t, 1, scripted.Options{})
	var log bytes.Buffer
	with := []string{"tools=[{name: text_search, topk: 2}, {name: PythonInterpreter, kind: python}]"}
	for i, set := range [][]string{with, {"tools=[{name: text_search, topk: 2}]"}} {
		if _, err := b.run(t, func(r *job.Run, o *Options) {
			r.Set, r.Log, o.Out = set, slog.New(slog.NewTextHandler(&log, nil)), fmt.Sprint(o.Out, i)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(log.String(), "bubblewrap is not installed") || fmt.Sprint(b.rows(t, b.opt.Out+"0")) != fmt.Sprint(b.rows(t, b.opt.Out+"1")) {
		t.Error(log.String())
	}
}
