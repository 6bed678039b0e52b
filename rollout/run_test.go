package rollout

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
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
	hold   func() // liveBench: called before a policy answers
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
rollout: {questions: 0, concurrency: 4, timeout_sec: 60, deadline_sec: 600}
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
		PolicyURLs: []string{url}, Out: filepath.Join(b.dir, "out"), Run: "test", Epoch: 1, Mode: Train}
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

// Several servers give what one gives, also when one of them goes away in the middle.
func TestSeveralServersAreOne(t *testing.T) {
	b := newBench(t, 8, scripted.Options{})
	if _, err := b.run(t, func(_ *job.Run, o *Options) { o.Out += "-one" }); err != nil {
		t.Fatal(err)
	}
	var others []*scripted.Server
	urls := b.opt.PolicyURLs
	for range 2 {
		s := scripted.New(scripted.Options{Script: researcher, Questions: b.qs, Tokens: true, Faults: []scripted.Fault{{Kind: "503", From: 4 + len(others), Num: 4}}})
		url, err := s.Start("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(t.Context())
		others, urls = append(others, s), append(urls, url)
	}
	if _, err := b.run(t, func(r *job.Run, o *Options) {
		o.PolicyURLs, r.Set = urls, []string{"rollout.per_server=2"}
	}); err != nil {
		t.Fatal(err)
	}
	for i, s := range others {
		if s.Requests() < 3 {
			t.Errorf("server %d got %d requests", i, s.Requests())
		}
	}
	one, several := b.rows(t, b.opt.Out+"-one"), b.rows(t, b.opt.Out)
	if fmt.Sprint(one) != fmt.Sprint(several) {
		t.Error("the rows depend on who answered")
	}
	// Servers may come and go between two attempts: the dataset is the same.
	before := b.server.Requests()
	if _, err := b.run(t, func(_ *job.Run, o *Options) { o.PolicyURLs = urls[1:] }); err != nil || b.server.Requests() != before {
		t.Error(err)
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

// process runs the job in a process of its own, which victim holds meanwhile.
func (b *bench) process(t *testing.T, victim *atomic.Pointer[os.Process]) error {
	t.Helper()
	o, err := json.Marshal(b.opt)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "ROLLOUT_TEST_JOB="+string(o), "ROLLOUT_TEST_RECIPE="+b.recipe)
	cmd.Stderr = testWriter{t}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	victim.Store(cmd.Process)
	return cmd.Wait()
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
	attempt := func() error { return b.process(t, &victim) }
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

// Killed again and again at random, a run ends with the rows of a quiet one: none
// lost, none twice, and nothing repeated but what was in flight. The long form is
// make test-kill: twenty kills during a thousand trajectories.
func TestKilledAtRandom(t *testing.T) {
	questions, kills := 15, 3
	if os.Getenv("SEARCHLOOP_LONG") != "" {
		questions, kills = 500, 20
	}
	const most, width = 3, 4 // turns of a trajectory, and trajectories at once
	var requests, killAt atomic.Int64
	var victim atomic.Pointer[os.Process]
	b := newBench(t, questions, scripted.Options{Seen: func(scripted.Conversation) {
		if requests.Add(1) == killAt.Load() {
			if p := victim.Load(); p != nil {
				p.Kill()
			}
		}
	}})
	if _, err := b.run(t, func(_ *job.Run, o *Options) { o.Out += "-quiet" }); err != nil {
		t.Fatal(err)
	}
	quiet := requests.Swap(0)
	random := rand.New(rand.NewPCG(7, 1))
	killed := 0
	for {
		killAt.Store(0)
		if killed < kills {
			killAt.Store(requests.Load() + 1 + random.Int64N(2*quiet/int64(kills+1)))
		}
		if b.process(t, &victim) == nil {
			break
		}
		if killed++; killed > kills {
			t.Fatal("it ended badly without being killed")
		}
	}
	victim.Store(nil)
	if killed < kills/2 {
		t.Errorf("killed %d times", killed)
	}
	if extra := requests.Load() - quiet; extra < 0 || extra > int64(killed*width*most) {
		t.Errorf("%d requests, %d in a quiet run: more was repeated than was in flight at %d kills", requests.Load(), quiet, killed)
	}
	if !bytes.Equal(rowBytes(t, b.opt.Out), rowBytes(t, b.opt.Out+"-quiet")) {
		t.Error("the rows differ from those of a quiet run")
	}
	seen := map[string]bool{}
	for _, row := range b.rows(t, b.opt.Out) {
		if seen[row.ID] {
			t.Errorf("%s is there twice", row.ID)
		}
		seen[row.ID] = true
	}
	if len(seen) != 2*questions {
		t.Errorf("%d rows of %d", len(seen), 2*questions)
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("job: %s", bytes.TrimSpace(p))
	return len(p), nil
}

func TestG40FailedRowsAreRetriedOnRequest(t *testing.T) {
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
	// It is still so when there is nothing to do.
	before := b.server.Requests()
	if _, again := b.run(t, nil); fail.ExitCode(again) != 3 || again.Error() != err.Error() || b.server.Requests() != before {
		t.Error(again)
	}
}

func TestUsage(t *testing.T) {
	b := newBench(t, 2, scripted.Options{})
	for name, change := range map[string]func(*job.Run, *Options){
		"mode":          func(_ *job.Run, o *Options) { o.Mode = "play" },
		"two policies":  func(_ *job.Run, o *Options) { o.Script = "teacher" },
		"no policy":     func(_ *job.Run, o *Options) { o.PolicyURLs = nil },
		"no run":        func(_ *job.Run, o *Options) { o.Run = "" },
		"no lens":       func(_ *job.Run, o *Options) { o.Lens = "" },
		"no index":      func(r *job.Run, _ *Options) { r.Set = []string{"retrieval.text_url="} },
		"strange tool":  func(r *job.Run, _ *Options) { r.Set = []string{"tools=[{name: telescope}]"} },
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

// F21: a trajectory during which the process dies each time is left out by the third
// run, with its reason in the row; all others are those of a quiet run.
func TestF21DeadlyTrajectory(t *testing.T) {
	var victim atomic.Pointer[os.Process]
	deadly := ""
	b := newBench(t, 8, scripted.Options{Seen: func(c scripted.Conversation) {
		if p := victim.Load(); p != nil && c.Question != nil && c.Question.ID == deadly {
			p.Signal(syscall.SIGABRT) // as abort() in C code
			for range 10_000 {        // it gets no answer before it is dead
				if p.Signal(syscall.Signal(0)) != nil {
					break
				}
				time.Sleep(time.Millisecond)
			}
		}
	}})
	if _, err := b.run(t, func(_ *job.Run, o *Options) { o.Out += "-quiet" }); err != nil {
		t.Fatal(err)
	}
	quiet := b.rows(t, b.opt.Out+"-quiet")
	deadly = quiet[len(quiet)/2].Question
	runs := 1
	for ; b.process(t, &victim) != nil; runs++ {
		if runs > 8 {
			t.Fatal("it does not come to an end")
		}
	}
	left := 0
	for i, row := range b.rows(t, b.opt.Out) {
		if row.Question != deadly {
			if !reflect.DeepEqual(row, quiet[i]) {
				t.Errorf("%s differs from that of a quiet run", row.ID)
			}
			continue
		}
		if left++; row.Status != trajectory.Failed || row.Why != killsItsProcess || row.HasAnswer || len(row.TokenIDs) > 0 {
			t.Errorf("%+v", row)
		}
	}
	if left != 2 || runs > 5 { // each of the two dies once beside others, once alone
		t.Errorf("%d trajectories left out in %d runs", left, runs)
	}
}

// F16: a policy that is gone for longer than anybody waits ends the job with 69. What had
// ended is kept; when the policy is back, the rest is played, and nothing twice.
func TestF16PolicyIsGoneForGood(t *testing.T) {
	b := newBench(t, 8, scripted.Options{})
	to, err := url.Parse(b.opt.PolicyURLs[0])
	if err != nil {
		t.Fatal(err)
	}
	var asked, most atomic.Int64
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/completions") && asked.Add(1) > most.Load() || most.Load() == 0 {
			panic(http.ErrAbortHandler) // as a server does that dies
		}
		proxy.ServeHTTP(w, r)
	}))
	defer door.Close()
	b.opt.PolicyURLs = []string{door.URL}
	most.Store(1 << 40)
	if _, err := b.run(t, func(_ *job.Run, o *Options) { o.Out += "-quiet" }); err != nil {
		t.Fatal(err)
	}
	quiet := asked.Swap(0)
	most.Store(quiet / 2)
	// With waits as short as quick's, one trajectory could use up its tries before the
	// others have asked at all, and fail by itself: no outage.
	patience.Base, patience.Cap = 30*time.Millisecond, 60*time.Millisecond
	defer func() { patience = quick }()
	began := time.Now()
	_, err = b.run(t, nil)
	if fail.ExitCode(err) != 69 || fail.KindOf(err) != fail.Service {
		t.Fatalf("ended with %v", err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("waited %v", took)
	}
	if _, err := manifest.Open(b.opt.Out); err == nil {
		t.Fatal("there is a manifest")
	}
	asked.Store(0)
	most.Store(1 << 40)
	if _, err := b.run(t, nil); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load(); n < quiet/2 || n > quiet/2+4*3 { // at most four were in flight, of three turns
		t.Errorf("%d requests after the outage, %d in a quiet run", n, quiet)
	}
	if !bytes.Equal(rowBytes(t, b.opt.Out), rowBytes(t, b.opt.Out+"-quiet")) {
		t.Error("the rows differ from those of a quiet run")
	}
}
