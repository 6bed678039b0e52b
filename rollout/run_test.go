package rollout

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/shard"
	"searchloop/internal/table"
	"searchloop/rollout/scripted"
	"searchloop/rollout/trajectory"
)

// dataset writes rows as a finished dataset.
func dataset[T any](t *testing.T, dir, schema string, rows []T) {
	t.Helper()
	d, err := job.Testing(t).Dataset(job.Spec{Dir: dir, Schema: schema, Version: 1, Ext: "parquet", Params: rows})
	if err != nil {
		t.Fatal(err)
	}
	if d.Complete() {
		return
	}
	s, err := d.Begin(shard.Spec{I: 0, N: 1})
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Part()
	if err != nil {
		t.Fatal(err)
	}
	out := table.NewWriter[T](w)
	if err := out.Write(rows...); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(out.Rows(), manifest.Counts{OK: out.Rows()}); err != nil {
		t.Fatal(err)
	}
	if err := d.Seal(nil); err != nil {
		t.Fatal(err)
	}
}

// bench is everything that a rollout run needs, on disk and on loopback.
type bench struct {
	dir    string
	opt    Options
	recipe string
	server *scripted.Server
	qs     []corpus.Question
}

const benchRecipe = `
name: bench
seed: 11
protocol: {name: mm-deepresearch, user_prefix: "Question: ", max_tool_calls: 2, calls_per_turn: 1, response_tokens: 2000, turn_tokens: 300, tool_chars: 200}
tools:
  - {name: text_search, topk: 2}
  - {name: image_search_by_lens, topk: 2, images: 1, image_pixels: 64}
retrieval: {text_url: "%s"}
sampling: {train: {n: 2, temperature: 1, top_p: 1}, eval: {n: 1, temperature: 0, top_p: 1}}
rollout: {questions: 0, concurrency: 4, timeout_sec: 5, deadline_sec: 60}
reward: {name: mm-deepresearch, format: 0.1, accuracy: 0.9}
`

// researcher searches by lens, then by text, and answers with what it read; which
// step it skips depends on the seed.
var researcher = scripted.Func(func(c scripted.Conversation) (string, error) {
	seen := c.Observations()
	switch {
	case len(seen) == 0 && c.Seed%5 != 0:
		return byLens, nil
	case len(seen) <= 1 && c.Seed%3 != 0:
		return search, nil
	}
	return fmt.Sprintf("<think>%d</think>\n<answer>%s</answer>", c.Seed, c.Question.Answers[0]), nil
})

func newBench(t *testing.T, n int, opt scripted.Options) *bench {
	t.Helper()
	b := &bench{dir: t.TempDir()}
	search := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Queries []string }
		text, _ := io.ReadAll(r.Body)
		if json.Unmarshal(text, &in) != nil {
			w.WriteHeader(422)
			return
		}
		list := make([][]any, len(in.Queries))
		for i, q := range in.Queries {
			list[i] = []any{map[string]any{"document": map[string]string{"contents": q + "\nThe river is Lim."}, "score": 0.5}}
		}
		json.NewEncoder(w).Encode(map[string]any{"result": list})
	}))
	t.Cleanup(search.Close)
	store, err := corpus.OpenStore(filepath.Join(b.dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	var lens []corpus.LensEntry
	for i := range n {
		id, err := store.Put(picture(t, 8+i))
		if err != nil {
			t.Fatal(err)
		}
		q := corpus.Question{ID: fmt.Sprintf("q%02d", i), Text: fmt.Sprintf("Which river is number %d?", i), Answers: []string{fmt.Sprint("river ", i), "x"}, ImageIDs: []string{id}, DataSource: "bench", Category: "lens"}
		b.qs = append(b.qs, q)
		if i%4 != 3 {
			lens = append(lens, corpus.LensEntry{DataID: q.ID, Hits: []corpus.LensHit{{Title: fmt.Sprint("Emblem ", i), ImageID: id}}})
		}
	}
	dataset(t, filepath.Join(b.dir, "questions"), "questions", b.qs)
	dataset(t, filepath.Join(b.dir, "lens"), "lens", lens)
	b.recipe = filepath.Join(b.dir, "recipe.yaml")
	if err := os.WriteFile(b.recipe, fmt.Appendf(nil, benchRecipe, search.URL), 0o666); err != nil {
		t.Fatal(err)
	}
	if opt.Script == nil {
		opt.Script = researcher
	}
	opt.Questions, opt.Tokens = b.qs, true
	b.server = scripted.New(opt)
	url, err := b.server.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		b.server.Close(ctx)
	})
	b.opt = Options{Questions: filepath.Join(b.dir, "questions"), Lens: filepath.Join(b.dir, "lens"), Images: []string{filepath.Join(b.dir, "images")},
		PolicyURL: url, Out: filepath.Join(b.dir, "out"), Run: "test", Epoch: 1, Mode: Train}
	return b
}

func (b *bench) run(t *testing.T, change func(*job.Run, *Options)) (*job.Run, error) {
	t.Helper()
	r, o := job.Testing(t), b.opt
	r.RecipePath = b.recipe
	if change != nil {
		change(r, &o)
	}
	return r, Run(t.Context(), r, o)
}

func (b *bench) rows(t *testing.T, dir string) []trajectory.Row {
	t.Helper()
	var out []trajectory.Row
	for row, err := range trajectory.Rollouts(dir) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, row)
	}
	return out
}

func TestRun(t *testing.T) {
	b := newBench(t, 8, scripted.Options{})
	if _, err := b.run(t, nil); err != nil {
		t.Fatal(err)
	}
	rows := b.rows(t, b.opt.Out)
	if len(rows) != 16 || !slices.IsSortedFunc(rows, func(a, b trajectory.Row) int { return strings.Compare(a.ID, b.ID) }) {
		t.Fatalf("%d rows", len(rows))
	}
	tools := 0
	for _, row := range rows {
		if row.Status != trajectory.OK || row.Answer != row.Answers[0] || row.Group != row.Question || row.Run != "test" || row.Epoch != 1 || row.Temperature != 1 || row.Recipe == "" || row.Category != "lens" {
			t.Errorf("%+v", row)
		}
		checkTokens(t, row)
		store, err := corpus.OpenStore(filepath.Join(b.opt.Out, "images"), b.opt.Images[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, img := range row.Images {
			if _, err := store.Get(img.ID); err != nil {
				t.Error(err)
			}
		}
		for _, turn := range row.Turns {
			if turn.Role == "tool" {
				tools++
			}
		}
	}
	if tools < 10 {
		t.Errorf("%d tool results", tools)
	}
	m, err := manifest.Open(b.opt.Out)
	if err != nil || m.Counts.In != 16 || m.Counts.OK != 16 || m.Usage == nil || m.Usage.Requests != int64(b.server.Requests()) || m.Usage.Retries != 0 {
		t.Errorf("%+v %v", m, err)
	}
	// A second run has nothing to do; another epoch or run is another dataset.
	before := b.server.Requests()
	if _, err := b.run(t, nil); err != nil || b.server.Requests() != before {
		t.Error(err, b.server.Requests()-before, "requests")
	}
	if _, err := b.run(t, func(_ *job.Run, o *Options) { o.Epoch = 2 }); err != nil || b.server.Requests() == before {
		t.Error(err)
	}
	if again := b.rows(t, b.opt.Out); again[0].Epoch != 2 || again[0].Seed == rows[0].Seed {
		t.Error("the second epoch is the first one")
	}
}

func TestShardsShareNothingAndMeet(t *testing.T) {
	b := newBench(t, 9, scripted.Options{})
	for i := range 3 {
		if _, err := b.run(t, func(r *job.Run, _ *Options) { r.Shard = fmt.Sprintf("%d/3", i) }); err != nil {
			t.Fatal(err)
		}
	}
	split := b.rows(t, b.opt.Out)
	if _, err := b.run(t, func(_ *job.Run, o *Options) { o.Out += "-whole" }); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(split, func(a, b trajectory.Row) int { return strings.Compare(a.ID, b.ID) })
	if whole := b.rows(t, b.opt.Out+"-whole"); fmt.Sprint(split) != fmt.Sprint(whole) {
		t.Error("three shards differ from one")
	}
}

func TestWhichQuestions(t *testing.T) {
	b := newBench(t, 9, scripted.Options{})
	ids := func(set ...string) func(mode string, epoch, limit int) string {
		return func(mode string, epoch, limit int) string {
			out := filepath.Join(b.dir, fmt.Sprint(mode, epoch, "-", limit, "-", len(set)))
			if _, err := b.run(t, func(r *job.Run, o *Options) {
				r.Set, o.Mode, o.Epoch, o.Limit, o.Out = set, mode, epoch, limit, out
			}); err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, row := range b.rows(t, out) {
				ids = append(ids, row.ID)
			}
			return strings.Join(ids, " ")
		}
	}
	some := ids("rollout.questions=3")
	if a, b := some(Train, 1, 0), some(Train, 2, 0); a == b || strings.Count(a, "#0") != 3 || strings.Count(a, "#1") != 3 {
		t.Errorf("epochs draw %q and %q", a, b)
	}
	if a, b := some(Eval, 1, 4), some(Eval, 2, 4); a != b || strings.Count(a, "#") != 4 {
		t.Errorf("evaluations take %q and %q", a, b)
	}
	if a := ids()(Eval, 1, 0); strings.Count(a, "#") != 9 {
		t.Errorf("an evaluation takes %q", a)
	}
}

// rowBytes are the data parts of a dataset.
func rowBytes(t *testing.T, dir string) []byte {
	t.Helper()
	m, err := manifest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, p := range m.Data() {
		data, err := os.ReadFile(filepath.Join(dir, p.Name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data...)
	}
	return all
}

func TestStopAndResume(t *testing.T) {
	var requests atomic.Int32
	var stop atomic.Pointer[job.Run]
	b := newBench(t, 8, scripted.Options{Seen: func(scripted.Conversation) {
		if r := stop.Load(); requests.Add(1) == 12 && r != nil {
			r.Stop()
		}
	}})
	if _, err := b.run(t, func(_ *job.Run, o *Options) { o.Out += "-quiet" }); err != nil {
		t.Fatal(err)
	}
	quiet := int(requests.Swap(0))
	_, err := b.run(t, func(r *job.Run, _ *Options) { stop.Store(r) })
	if fail.ExitCode(err) != 75 {
		t.Fatalf("stopped with %v", err)
	}
	if _, err := manifest.Open(b.opt.Out); err == nil {
		t.Fatal("a stopped run has a manifest")
	}
	stop.Store(nil)
	if _, err := b.run(t, nil); err != nil {
		t.Fatal(err)
	}
	if n := int(requests.Load()); n != quiet {
		t.Errorf("%d requests with a stop between, %d without: finished trajectories must not be played again", n, quiet)
	}
	if !bytes.Equal(rowBytes(t, b.opt.Out), rowBytes(t, b.opt.Out+"-quiet")) {
		t.Error("the rows differ from those of a quiet run")
	}
}

// TestMain lets the test binary be the job that TestKill kills.
func TestMain(m *testing.M) {
	patience = quick
	if text := os.Getenv("ROLLOUT_TEST_JOB"); text != "" {
		var o Options
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			panic(err)
		}
		r := job.NewRun("rollout", job.Flags{ProgressMode: "none", RecipePath: os.Getenv("ROLLOUT_TEST_RECIPE")}, os.Stdout, os.Stderr)
		if err := Run(context.Background(), r, o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(fail.ExitCode(err))
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestKill(t *testing.T) {
	var requests, killAt atomic.Int32
	var victim atomic.Pointer[os.Process]
	b := newBench(t, 8, scripted.Options{Seen: func(scripted.Conversation) {
		if requests.Add(1) == killAt.Load() {
			if p := victim.Load(); p != nil {
				p.Kill()
			}
		}
	}})
	o, err := json.Marshal(b.opt)
	if err != nil {
		t.Fatal(err)
	}
	attempt := func() error {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "ROLLOUT_TEST_JOB="+string(o), "ROLLOUT_TEST_RECIPE="+b.recipe)
		cmd.Stderr = testWriter{t}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		victim.Store(cmd.Process)
		return cmd.Wait()
	}
	kills := 0
	for at := int32(5); ; at += 9 {
		requests.Store(0)
		killAt.Store(at)
		if attempt() == nil {
			break
		}
		if kills++; kills > 10 {
			t.Fatal("the job does not come to an end")
		}
	}
	if kills < 2 {
		t.Fatalf("killed %d times", kills)
	}
	victim.Store(nil)
	if _, err := b.run(t, func(_ *job.Run, o *Options) { o.Out += "-quiet" }); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(rowBytes(t, b.opt.Out), rowBytes(t, b.opt.Out+"-quiet")) {
		t.Error("the rows differ from those of a quiet run")
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("job: %s", bytes.TrimSpace(p))
	return len(p), nil
}

func TestFailedRowsAreRetriedOnRequest(t *testing.T) {
	var sick atomic.Bool
	sick.Store(true)
	b := newBench(t, 6, scripted.Options{Script: scripted.Func(func(c scripted.Conversation) (string, error) {
		if c.Question.ID == "q02" && sick.Load() {
			return "", fmt.Errorf("not this one")
		}
		return researcher(c)
	})})
	if _, err := b.run(t, nil); err != nil {
		t.Fatal(err)
	}
	rows := b.rows(t, b.opt.Out)
	if len(rows) != 12 {
		t.Fatalf("%d rows: a failure is a row", len(rows))
	}
	for _, row := range rows {
		if failed := row.Question == "q02"; (row.Status == trajectory.Failed) != failed || failed && (row.HasAnswer || !strings.Contains(row.Why, "http 500")) {
			t.Errorf("%s: %s %q", row.ID, row.Status, row.Why)
		}
	}
	sick.Store(false)
	before := b.server.Requests()
	if _, err := b.run(t, nil); err != nil || b.server.Requests() != before {
		t.Error("a failure is tried again without being asked to", err)
	}
	if _, err := b.run(t, func(r *job.Run, _ *Options) { r.RetryFailed = true }); err != nil {
		t.Fatal(err)
	}
	if n := b.server.Requests() - before; n == 0 || n > 6 {
		t.Errorf("%d requests for two trajectories", n)
	}
	if _, err := b.run(t, func(_ *job.Run, o *Options) { o.Out += "-quiet" }); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(rowBytes(t, b.opt.Out), rowBytes(t, b.opt.Out+"-quiet")) {
		t.Error("the rows differ from those of a run without failures")
	}
}

func TestRefusedKeyStopsAtOnce(t *testing.T) {
	f, err := scripted.ParseFault("401@10")
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, 8, scripted.Options{Faults: []scripted.Fault{f}})
	_, err = b.run(t, nil)
	if fail.ExitCode(err) != 69 || !strings.Contains(err.Error(), KeyName) || b.server.Requests() > 14 {
		t.Errorf("%v after %d requests", err, b.server.Requests())
	}
}

func TestEverythingFails(t *testing.T) {
	b := newBench(t, 2, scripted.Options{Script: scripted.Func(func(c scripted.Conversation) (string, error) { return answer, nil })})
	os.RemoveAll(filepath.Join(b.dir, "images"))
	os.Mkdir(filepath.Join(b.dir, "images"), 0o777)
	_, err := b.run(t, nil)
	if fail.ExitCode(err) != 3 || !strings.Contains(err.Error(), "image") {
		t.Error(err)
	}
	if rows := b.rows(t, b.opt.Out); len(rows) != 4 {
		t.Errorf("%d rows", len(rows))
	}
}

func TestUsage(t *testing.T) {
	b := newBench(t, 2, scripted.Options{})
	for name, change := range map[string]func(*job.Run, *Options){
		"mode":          func(_ *job.Run, o *Options) { o.Mode = "play" },
		"two policies":  func(_ *job.Run, o *Options) { o.Policy = b.dir },
		"no policy":     func(_ *job.Run, o *Options) { o.PolicyURL = "" },
		"no run":        func(_ *job.Run, o *Options) { o.Run = "" },
		"no lens":       func(_ *job.Run, o *Options) { o.Lens = "" },
		"no index":      func(r *job.Run, _ *Options) { r.Set = []string{"retrieval.text_url="} },
		"strange tool":  func(r *job.Run, _ *Options) { r.Set = []string{"tools=[{name: python}]"} },
		"strange model": func(_ *job.Run, o *Options) { o.PolicyModel = "gpt" },
	} {
		want := fail.Usage
		if name == "strange model" {
			want = fail.Service
		}
		if _, err := b.run(t, change); fail.KindOf(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.run(t, func(_ *job.Run, o *Options) { o.Questions, o.Lens = o.Lens, o.Questions }); fail.ExitCode(err) != 65 {
		t.Error(err)
	}
	if n := b.server.Requests(); n != 0 {
		t.Errorf("%d requests", n)
	}
}
