package rollout

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/journal"
	"searchloop/internal/llm"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
	"searchloop/rollout/scripted"
	"searchloop/rollout/tool"
	"searchloop/rollout/trajectory"
)

// Tests named after defects of the published systems (G9 is defect 9), where no other
// test has the name.

// A call beyond the limit is kept, and said to be why the trajectory ended; as many
// calls are answered as the limit says.
func TestG9LastCallIsNotDropped(t *testing.T) {
	s := newStage(t, scripted.Options{Script: says(search, search, search, search), Tokens: true}, func(r *recipe.Recipe) { r.Protocol.MaxToolCalls = 3 })
	row := s.play(t, s.plain)
	want := "truncated system user" + strings.Repeat(" assistant=text_search tool=text_search", 3) + " assistant=text_search | " + ToolsExhausted
	if got := outline(row); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// A question without images has all tools that need none.
func TestG10TextOnlyQuestions(t *testing.T) {
	s := newStage(t, scripted.Options{Script: says(byLens, search, answer), Tokens: true}, nil)
	row := s.play(t, s.plain)
	if row.Turns[3].Text != tool.NoImage || !strings.Contains(row.Turns[5].Text, "Vorna") || row.Turns[5].Error != "" || row.Answer != "Lim" {
		t.Error(outline(row))
	}
}

// An observation that does not fit ends the trajectory with the turn before it, and
// the row says so; a turn has a budget of its own.
func TestG11NoDanglingObservation(t *testing.T) {
	s := newStage(t, scripted.Options{Script: says(search, answer), Tokens: true}, func(r *recipe.Recipe) {
		r.Protocol.ResponseTokens, r.Protocol.TurnTokens = len(search)+20, len(search)+1
	})
	row := s.play(t, s.plain)
	if last := row.Turns[len(row.Turns)-1]; row.Why != NoRoom || last.Role != "assistant" || last.Call != tool.TextSearch || last.Finish != "stop" {
		t.Error(outline(row))
	}
}

// Training and evaluation are one world: only sampling and the choice of questions
// differ between their modes.
func TestG12TrainingAndEvaluationAreOneWorld(t *testing.T) {
	b := newBench(t, 3, scripted.Options{Script: says(byLens, search, answer)})
	talk := map[string]string{}
	for _, mode := range []string{Train, Eval} {
		if _, err := b.run(t, set("sampling.eval.n=2", func(o *Options) { o.Mode, o.Out, o.Epoch = mode, o.Out+mode, 0 })); err != nil {
			t.Fatal(err)
		}
		for _, row := range b.rows(t, b.opt.Out+mode) {
			for _, turn := range row.Turns {
				talk[mode] += row.ID + turn.Role + turn.Text + strings.Join(turn.Images, ",") + "\n"
			}
		}
	}
	if talk[Train] == "" || talk[Train] != talk[Eval] {
		t.Errorf("training\n%s\nevaluation\n%s", talk[Train], talk[Eval])
	}
}

// Every turn of the policy is in the next request, in every round.
func TestG17TurnsStayInTheConversation(t *testing.T) {
	var last scripted.Conversation
	s := newStage(t, scripted.Options{Script: says(byLens, search, answer), Tokens: true, Seen: func(c scripted.Conversation) { last = c }}, nil)
	s.play(t, s.shown)
	var roles []string
	for _, m := range last.Messages {
		roles = append(roles, m.Role)
	}
	if got := strings.Join(roles, " "); got != "system user assistant tool assistant tool" {
		t.Error(got)
	}
}

// An error of a search service is tried again a few times and never read by the
// policy; one trajectory that fails leaves the others alone.
func TestG26G28ServiceErrors(t *testing.T) {
	calls := 0
	sick := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.WriteHeader(http.StatusServiceUnavailable)
		w.Write([]byte(`{"detail": "the body of an error"}`))
	}))
	defer sick.Close()
	s := newStage(t, scripted.Options{Script: says(search, answer), Tokens: true}, nil)
	remote, err := tool.NewRemote("text search", sick.URL, quick, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.agent.tools, err = tool.New([]recipe.Tool{{Name: tool.TextSearch}}, tool.Sources{Text: remote}); err != nil {
		t.Fatal(err)
	}
	row := s.play(t, s.plain)
	if row.Status != trajectory.Failed || row.Why != "search: http 503" || row.HasAnswer || len(row.Turns) != 3 || calls < 2 || calls > 10 {
		t.Errorf("%s after %d calls", outline(row), calls)
	}
	// One question whose image is gone fails alone.
	b := newBench(t, 4, scripted.Options{})
	b.qs[2].ImageIDs = []string{strings.Repeat("ab", 32)}
	dataset(t, b.dir+"/broken", "questions", b.qs)
	if _, err := b.run(t, set("", func(o *Options) { o.Questions = b.dir + "/broken" })); err != nil {
		t.Fatal(err)
	}
	failed := 0
	for _, row := range b.rows(t, b.opt.Out) {
		if row.Status == trajectory.Failed {
			failed++
			if row.Question != "q02" || row.HasAnswer || row.Why == "" {
				t.Errorf("%s: %s", row.ID, row.Why)
			}
		}
	}
	if failed != 2 {
		t.Errorf("%d trajectories failed", failed)
	}
}

// Images of tools are in the row with the grid and the place of each, in the order of
// the conversation: a trainer can give them the same positions as the policy's server
// did, in all of their rows.
func TestG16ImagesOfToolsHavePlaces(t *testing.T) {
	s := newStage(t, scripted.Options{Script: says(byLens, answer), Tokens: true}, nil)
	row := s.play(t, s.shown)
	if len(row.Images) != 2 || row.Images[0].ID != s.shown.ImageIDs[0] || row.Images[1].ID != s.hitID || row.TokenSource != trajectory.Sampled {
		t.Fatalf("%+v", row.Images)
	}
	for i, img := range row.Images {
		n := int(img.GridT*img.GridH*img.GridW) / mergedPatches
		for j := range n {
			if at := int(img.Offset) + j; row.TokenIDs[at] != row.TokenIDs[img.Offset] || row.LossMask[at] {
				t.Errorf("image %d: token %d of %d", i, j, n)
			}
		}
	}
	if before, after := row.Images[0], row.Images[1]; after.Offset <= before.Offset {
		t.Error("out of order")
	}
}

// Groups are of one question, whatever number it has in its own source: sources may be
// mixed, and an id that two of them share is refused.
func TestG21GroupsAreOfOneQuestion(t *testing.T) {
	b := newBench(t, 4, scripted.Options{})
	for i, id := range []string{"nq_7", "hotpotqa_7", "nq_8", "hotpotqa_8"} {
		b.qs[i].ID, b.qs[i].DataSource = id, strings.TrimRight(id, "_78")
	}
	dataset(t, b.dir+"/mixed", "questions", b.qs)
	if _, err := b.run(t, set("", func(o *Options) { o.Questions = b.dir + "/mixed" })); err != nil {
		t.Fatal(err)
	}
	groups := map[string]map[string]int{}
	for _, row := range b.rows(t, b.opt.Out) {
		if groups[row.Group] == nil {
			groups[row.Group] = map[string]int{}
		}
		groups[row.Group][row.DataSource+" "+row.Text]++
	}
	if len(groups) != 4 {
		t.Errorf("%d groups of 4 questions", len(groups))
	}
	for group, questions := range groups {
		if len(questions) != 1 {
			t.Errorf("the group %s is of %v", group, questions)
		}
	}
	b.qs[1].ID = b.qs[0].ID
	dataset(t, b.dir+"/twice", "questions", b.qs)
	if _, err := b.run(t, set("", func(o *Options) { o.Questions = b.dir + "/twice" })); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), b.qs[0].ID) {
		t.Error(err)
	}
}

// A prompt that does not fit fails its own trajectory, under a reason of its own that
// is counted, and no other one.
func TestG28OverlongPromptsAreCounted(t *testing.T) {
	b := newBench(t, 4, scripted.Options{Context: 4000})
	b.qs[1].Text = strings.Repeat("very long ", 1000)
	dataset(t, b.dir+"/long", "questions", b.qs)
	log, err := b.run(t, set("", func(o *Options) { o.Questions = b.dir + "/long" }))
	if err != nil {
		t.Fatal(err, log)
	}
	var s Summary
	for _, row := range b.rows(t, b.opt.Out) {
		s.add(&row)
		if (row.Status == trajectory.Failed) != (row.Question == "q01") {
			t.Errorf("%s: %s %s", row.ID, row.Status, row.Why)
		}
	}
	if s.Failed != 2 || s.Why["ask for a turn: context length: "+promptTooLong] != 2 || s.OK+s.Truncated != 6 {
		t.Errorf("%+v", s)
	}
}

// What the conversation is made of goes to the server, and nothing else: no notes of
// the environment, no names of files.
func TestG30MessagesHoldNothingOfOurs(t *testing.T) {
	var bodies [][]byte
	server := scripted.New(scripted.Options{Script: says(`<tool_call>{"name": "nope"}</tool_call>`, byLens, answer), Tokens: true})
	url, err := server.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close(t.Context())
	spy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, body)
		req, _ := http.NewRequest(r.Method, strings.TrimSuffix(url, "/v1")+r.URL.Path, bytes.NewReader(body))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			w.WriteHeader(500)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		io.Copy(w, resp.Body)
	}))
	defer spy.Close()
	s := newStage(t, scripted.Options{Script: says(answer)}, nil)
	if s.agent.policy, err = llm.Open(t.Context(), llm.Options{Name: "policy server", Model: "scripted"}, llm.PoolOptions{URLs: []string{spy.URL}, Retry: quick}); err != nil {
		t.Fatal(err)
	}
	defer s.agent.policy.Close()
	if row := s.play(t, s.shown); row.Answer != "Lim" {
		t.Fatal(outline(row))
	}
	seen := 0
	for _, body := range bodies {
		var in struct {
			Messages []map[string]json.RawMessage `json:"messages"`
		}
		if json.Unmarshal(body, &in) != nil {
			continue
		}
		for _, m := range in.Messages {
			seen++
			for key := range m {
				if key != "role" && key != "content" && key != "token_ids" {
					t.Errorf("a message holds %q", key)
				}
			}
			if bytes.Contains(m["content"], []byte("image_url")) && !bytes.Contains(m["content"], []byte(`"url":"data:image/png;base64,`)) {
				t.Errorf("an image that is no data URL: %.200s", m["content"])
			}
		}
	}
	if seen < 12 {
		t.Errorf("%d messages", seen)
	}
}

// No address of a private network, and no model's name, is built into tools, rewards,
// prompts or recipes: they come from the recipe of whoever runs it, or from flags.
func TestG41NoAddressIsBuiltIn(t *testing.T) {
	private := regexp.MustCompile(`\b(10\.\d{1,3}|192\.168|172\.(1[6-9]|2\d|3[01]))\.\d{1,3}\.\d{1,3}\b`)
	seen := 0
	for _, root := range []string{".", filepath.Join("..", recipe.Dir)} {
		if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") || filepath.Ext(path) != ".go" && filepath.Ext(path) != ".yaml" {
				return err
			}
			text, err := os.ReadFile(path)
			if found := private.Find(text); found != nil {
				t.Errorf("%s holds %s", path, found)
			}
			seen++
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if seen < 50 {
		t.Errorf("%d files", seen)
	}
}

// Nobody waits for the slowest: while one trajectory hangs in its first turn, all others
// are played to their ends and kept.
func TestG42TheSlowestHoldsNobodyUp(t *testing.T) {
	var b *bench
	ended := make(chan struct{})
	b = newBench(t, 8, scripted.Options{Seen: func(c scripted.Conversation) {
		if c.Question.ID == "q00" && len(c.Observations()) == 0 && c.Turn == 0 {
			select {
			case <-ended:
			case <-time.After(20 * time.Second):
			}
		}
	}})
	done := make(chan error, 1)
	go func() {
		_, err := b.run(t, set("rollout.timeout_sec=30", func(*Options) {}))
		done <- err
	}()
	kept := map[string]bool{}
	for began := time.Now(); len(kept) < 14 && time.Since(began) < 15*time.Second; time.Sleep(5 * time.Millisecond) {
		files, _ := filepath.Glob(filepath.Join(b.opt.Out, ".work", "*.journal"))
		for _, f := range files {
			tail := journal.NewTail(f)
			for {
				key, _, ok, err := tail.Next()
				if !ok || err != nil {
					break
				}
				kept[key] = true
			}
			tail.Close()
		}
	}
	if len(kept) != 14 || kept["q00#0"] || kept["q00#1"] {
		t.Errorf("kept while two hang: %v", kept)
	}
	close(ended)
	if err := <-done; err != nil || len(b.rows(t, b.opt.Out)) != 16 {
		t.Error(err)
	}
}

// A row says which policy played by which recipe with which sampling, and its dataset
// with which prompts and tools on which inputs.
func TestG43RowsSayWhereTheyAreFrom(t *testing.T) {
	b := newBench(t, 2, scripted.Options{})
	if _, err := b.run(t, nil); err != nil {
		t.Fatal(err)
	}
	for _, row := range b.rows(t, b.opt.Out) {
		if row.Policy == "" || len(row.Recipe) != 16 || row.Temperature != 1 || row.TopP != 1 || row.Seed == 0 || row.Run == "" {
			t.Errorf("%s: policy %q, recipe %q, temperature %g, top_p %g, seed %d", row.ID, row.Policy, row.Recipe, row.Temperature, row.TopP, row.Seed)
		}
	}
	m, err := manifest.Open(b.opt.Out)
	if err != nil {
		t.Fatal(err)
	}
	var p plan
	if err := json.Unmarshal(m.Params, &p); err != nil || p.Protocol.UserPrefix == "" || len(p.Tools) != 2 || p.Seed != 11 {
		t.Errorf("%s %v", m.Params, err)
	}
	for _, in := range m.Inputs {
		if len(in.SHA256) != 64 {
			t.Errorf("%+v", in)
		}
	}
	if len(m.Inputs) != 2 {
		t.Errorf("%d inputs", len(m.Inputs))
	}
}

// set overrides a recipe field and changes the options of a run.
func set(field string, change func(*Options)) func(*job.Run, *Options) {
	return func(r *job.Run, o *Options) {
		if field != "" {
			r.Set = append(r.Set, field)
		}
		change(o)
	}
}
