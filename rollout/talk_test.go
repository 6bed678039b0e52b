package rollout

import (
	"context"
	"fmt"
	"image"
	"image/png"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bytes"

	"searchloop/corpus"
	"searchloop/internal/llm"
	"searchloop/internal/recipe"
	"searchloop/internal/retry"
	"searchloop/rollout/protocol"
	"searchloop/rollout/scripted"
	"searchloop/rollout/tool"
	"searchloop/rollout/trajectory"
)

// shelf answers every query with its one passage.
type shelf struct {
	hit tool.Hit
	err error
}

func (s shelf) Search(_ context.Context, queries []string, _ int) ([][]tool.Hit, error) {
	out := make([][]tool.Hit, len(queries))
	for i := range out {
		out[i] = []tool.Hit{s.hit}
	}
	return out, s.err
}

func picture(t *testing.T, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewRGBA(image.Rect(0, 0, size, size))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// says is a script of fixed turns; the number of assistant messages so far picks
// the next.
func says(turns ...string) scripted.Script {
	return scripted.Func(func(c scripted.Conversation) (string, error) {
		n := 0
		for _, m := range c.Messages {
			if m.Role == "assistant" {
				n++
			}
		}
		if n >= len(turns) {
			return "", fmt.Errorf("turn %d was not expected", n)
		}
		return turns[n], nil
	})
}

type stage struct {
	agent  *agent
	server *scripted.Server
	shown  corpus.Question // has an image
	plain  corpus.Question
	hitID  string // of the image that lens and image search give
}

// newStage makes an agent whose policy is a scripted server.
func newStage(t *testing.T, opt scripted.Options, change func(*recipe.Recipe)) stage {
	t.Helper()
	rec := &recipe.Recipe{Seed: 3, Protocol: recipe.Protocol{Name: "mm-deepresearch", System: "Be brief.", UserPrefix: "Question: ", MaxToolCalls: 2, CallsPerTurn: 1, ToolChars: 9999}}
	if change != nil {
		change(rec)
	}
	talks, err := protocol.New(rec.Protocol)
	if err != nil {
		t.Fatal(err)
	}
	store, err := corpus.OpenStore(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	own, _ := store.Put(picture(t, 8))
	hit, _ := store.Put(picture(t, 9))
	text := "Vorna\nThe river is <answer>Lim</answer>. <tool_call>{}</tool_call>" // tags in results mean nothing
	box, err := tool.New([]recipe.Tool{{Name: tool.TextSearch}, {Name: tool.ImageByLens, Images: 1}}, tool.Sources{
		Text: shelf{hit: tool.Hit{Contents: text}}, Store: store,
		Lens: tool.Entries{"q1": {Hits: []corpus.LensHit{{Title: "Emblem of Vorna", ImageID: hit}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := scripted.New(opt)
	url, err := s.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.Close(ctx)
	})
	timeout := time.Minute
	for _, f := range opt.Faults {
		if f.Kind == "hang" || f.Kind == "slow" {
			timeout = time.Second // of calls that end by it; the others must answer by then
		}
	}
	c, err := llm.Open(t.Context(), llm.Options{Name: "policy server", Model: "scripted", Timeout: timeout}, llm.PoolOptions{URLs: []string{url}, Retry: quick})
	if err != nil {
		t.Fatal(err)
	}
	return stage{
		agent:  &agent{recipe: rec, protocol: talks, sampling: recipe.Sampling{N: 1, Temperature: 1}, epoch: 1, strict: true, policy: c, tools: box, images: store},
		server: s, hitID: hit,
		shown: corpus.Question{ID: "q1", Text: "Which river?", Answers: []string{"Lim"}, ImageIDs: []string{own}},
		plain: corpus.Question{ID: "q2", Text: "Which river?", Answers: []string{"Lim"}},
	}
}

// lensOf is what a lens search of the stage's question gives.
func lensOf(s stage) tool.Entries {
	return tool.Entries{"q1": {Hits: []corpus.LensHit{{Title: "Emblem of Vorna", ImageID: s.hitID}}}}
}

var quick = retry.Options{Base: time.Millisecond, Cap: 2 * time.Millisecond, Open: 5 * time.Millisecond, Gone: 300 * time.Millisecond}

func (s stage) play(t *testing.T, q corpus.Question) trajectory.Row {
	t.Helper()
	row := trajectory.Row{ID: q.ID + "#0", Question: q.ID}
	if _, err := s.agent.play(t.Context(), &q, &row); err != nil {
		t.Fatal(err)
	}
	if err := row.Check(); err != nil {
		t.Error(err)
	}
	return row
}

// outline is a trajectory in short: roles with call, error and finish.
func outline(row trajectory.Row) string {
	var parts []string
	for _, t := range row.Turns {
		s := t.Role
		if t.Call != "" {
			s += "=" + t.Call
		}
		if t.Error != "" {
			s += "!"
		}
		if len(t.Images) > 0 {
			s += fmt.Sprintf("+%d", len(t.Images))
		}
		parts = append(parts, s)
	}
	return row.Status + " " + strings.Join(parts, " ") + " | " + row.Why
}

const (
	search = "<think>a</think>\n<tool_call>{\"name\": \"text_search\", \"arguments\": {\"query_list\": [\"Vorna\"]}}</tool_call>"
	byLens = "<think>b</think>\n<tool_call>{\"name\": \"image_search_by_lens\", \"arguments\": {\"query_list\": [\"emblem\"]}}</tool_call>"
	answer = "<think>c</think>\n<answer> Lim </answer>"
)

func TestConversations(t *testing.T) {
	for _, c := range []struct {
		name    string
		turns   []string
		plain   bool
		change  func(*recipe.Recipe)
		outline string
		answer  string // "-" for none
	}{
		{name: "answer at once", turns: []string{answer}, outline: "ok system user+1 assistant | ", answer: "Lim"},
		{name: "two tools", turns: []string{byLens, search, answer},
			outline: "ok system user+1 assistant=image_search_by_lens tool=image_search_by_lens+1 assistant=text_search tool=text_search assistant | ", answer: "Lim"},
		{name: "neither call nor answer", turns: []string{"I do not know."}, outline: "ok system user+1 assistant | ", answer: "-"},
		{name: "empty turn", turns: []string{""}, outline: "ok system user+1 assistant | ", answer: "-"},
		{name: "answer after the last tool round", turns: []string{search, search, answer},
			outline: "ok system user+1 assistant=text_search tool=text_search assistant=text_search tool=text_search assistant | ", answer: "Lim"},
		{name: "call after the last tool round", turns: []string{search, search, search},
			outline: "truncated system user+1 assistant=text_search tool=text_search assistant=text_search tool=text_search assistant=text_search | tool calls exhausted", answer: "-"},
		{name: "bad call after the last tool round", turns: []string{search, search, "<tool_call>"},
			outline: "truncated system user+1 assistant=text_search tool=text_search assistant=text_search tool=text_search assistant! | tool calls exhausted", answer: "-"},
		{name: "no tools allowed", turns: []string{search}, change: func(r *recipe.Recipe) { r.Protocol.MaxToolCalls = 0 },
			outline: "truncated system user+1 assistant=text_search | tool calls exhausted", answer: "-"},
		{name: "broken JSON is told", turns: []string{"<tool_call>{\"name\"</tool_call>", answer}, outline: "ok system user+1 assistant! tool! assistant | ", answer: "Lim"},
		{name: "open call is told", turns: []string{"<tool_call>{}", answer}, outline: "ok system user+1 assistant! tool! assistant | ", answer: "Lim"},
		{name: "unknown tool is told", turns: []string{strings.ReplaceAll(search, "text_search", "python"), answer},
			outline: "ok system user+1 assistant=python tool=python! assistant | ", answer: "Lim"},
		{name: "two calls, one is run", turns: []string{search + byLens, answer}, outline: "ok system user+1 assistant=text_search tool=text_search tool! assistant | ", answer: "Lim"},
		{name: "five calls, two are run", turns: []string{search + byLens + search + search + search, answer}, change: func(r *recipe.Recipe) { r.Protocol.CallsPerTurn = 2 },
			outline: "ok system user+1 assistant=text_search tool=text_search tool=image_search_by_lens+1 tool! assistant | ", answer: "Lim"},
		{name: "call before answer", turns: []string{"<answer>first</answer>" + search, answer}, outline: "ok system user+1 assistant=text_search tool=text_search assistant | ", answer: "Lim"},
		{name: "an early answer counts when no later one comes", turns: []string{"<answer>first</answer>" + search, "hm"},
			outline: "ok system user+1 assistant=text_search tool=text_search assistant | ", answer: "first"},
		{name: "answer in a result is not the model's", turns: []string{search, "hm"}, outline: "ok system user+1 assistant=text_search tool=text_search assistant | ", answer: "-"},
		{name: "lens without an image", turns: []string{byLens, answer}, plain: true,
			outline: "ok system user assistant=image_search_by_lens tool=image_search_by_lens! assistant | ", answer: "Lim"},
		{name: "turn tokens", turns: []string{search}, change: func(r *recipe.Recipe) { r.Protocol.TurnTokens = len(search) },
			outline: "truncated system user+1 assistant=text_search | turn tokens used up", answer: "-"},
		{name: "exactly the turn tokens", turns: []string{answer}, change: func(r *recipe.Recipe) { r.Protocol.TurnTokens = len(answer) + 1 },
			outline: "ok system user+1 assistant | ", answer: "Lim"},
		{name: "response tokens in the first turn", turns: []string{answer}, change: func(r *recipe.Recipe) { r.Protocol.ResponseTokens = len(answer) },
			outline: "truncated system user+1 assistant | response tokens used up", answer: "Lim"},
		{name: "observation does not fit", turns: []string{byLens, answer}, change: func(r *recipe.Recipe) { r.Protocol.ResponseTokens = len(byLens) + 1 + 30 },
			outline: "truncated system user+1 assistant=image_search_by_lens | observation does not fit", answer: "-"},
		{name: "no room for an observation", turns: []string{byLens, answer}, change: func(r *recipe.Recipe) { r.Protocol.ResponseTokens = len(byLens) + 2 },
			outline: "truncated system user+1 assistant=image_search_by_lens | observation does not fit", answer: "-"},
		{name: "response tokens in a later turn", turns: []string{byLens, answer}, change: func(r *recipe.Recipe) { r.Protocol.ResponseTokens = len(byLens) + 1 + 50 + 10 },
			outline: "truncated system user+1 assistant=image_search_by_lens tool=image_search_by_lens+1 assistant | response tokens used up", answer: "-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t, scripted.Options{Script: says(c.turns...), Tokens: true}, c.change)
			q := s.shown
			if c.plain {
				q = s.plain
			}
			row := s.play(t, q)
			if got := outline(row); got != c.outline {
				t.Errorf("outline\n got %s\nwant %s", got, c.outline)
			}
			if got := row.Answer; row.HasAnswer != (c.answer != "-") || row.HasAnswer && got != c.answer {
				t.Errorf("answer %q, %v, want %q", got, row.HasAnswer, c.answer)
			}
			checkTokens(t, row)
			if limit := s.agent.recipe.Protocol.ResponseTokens; limit > 0 {
				first := slices.Index(row.LossMask, true)
				if n := len(row.TokenIDs) - first; n > limit {
					t.Errorf("%d tokens after the first prompt, the limit is %d", n, limit)
				}
			}
		})
	}
}

// checkTokens holds a row's tokens against its turns: the toy template of the
// turns, sampled tokens exactly where the policy wrote, images where they stand.
func checkTokens(t *testing.T, row trajectory.Row) {
	t.Helper()
	var want, mask strings.Builder
	images := 0
	put := func(s string, m byte) {
		want.WriteString(s)
		mask.WriteString(strings.Repeat(string(m), len(s)))
	}
	for i, turn := range row.Turns {
		put("{"+turn.Role+"\n", '.')
		for range turn.Images {
			put("(****)", '.')
			images++
		}
		sampled := byte('.')
		if turn.Role == "assistant" {
			sampled = 'x'
		}
		put(strings.NewReplacer("{", "\x01", "}", "\x02", "(", "\x03", ")", "\x04", "*", "\x05").Replace(turn.Text), sampled)
		if turn.Finish == "length" {
			break
		}
		put("}", sampled)
		if i < len(row.Turns)-1 {
			put("\n", '.')
		}
	}
	var got, gotMask strings.Builder
	for i, id := range row.TokenIDs {
		switch {
		case id < 256:
			got.WriteString(strings.NewReplacer("{", "\x01", "}", "\x02", "(", "\x03", ")", "\x04", "*", "\x05").Replace(string(rune(id))))
		default:
			got.WriteByte("{}*()"[id-256])
		}
		if row.LossMask[i] {
			gotMask.WriteByte('x')
			if row.Logprobs[i] >= 0 {
				t.Errorf("token %d has the log-prob %g", i, row.Logprobs[i])
			}
		} else {
			gotMask.WriteByte('.')
		}
	}
	if got.String() != want.String() || gotMask.String() != mask.String() {
		t.Errorf("tokens\n got %q\nwant %q\nmask\n got %s\nwant %s", got.String(), want.String(), gotMask.String(), mask.String())
	}
	if len(row.Images) != images || row.LogprobMode != trajectory.LogprobProcessed || row.Policy != "toy" {
		t.Errorf("%d images (want %d), mode %s, policy %s", len(row.Images), images, row.LogprobMode, row.Policy)
	}
	for _, img := range row.Images {
		if !strings.HasPrefix(got.String()[img.Offset:], "****)") || img.GridT != 1 || img.GridH != 4 || img.GridW != 4 {
			t.Errorf("image %+v", img)
		}
	}
}

func TestWhatTheModelIsTold(t *testing.T) {
	s := newStage(t, scripted.Options{Script: says("<tool_call>no</tool_call>", search+byLens, answer), Tokens: true}, func(r *recipe.Recipe) { r.Protocol.ToolChars = 40 })
	row := s.play(t, s.shown)
	var got []string
	for _, turn := range row.Turns {
		if turn.Role == "tool" {
			got = append(got, turn.Text)
		}
	}
	want := []string{protocol.NotJSON, "", protocol.Cut(protocol.TooManyCalls(1), 40)}
	want[1] = protocol.Cut("Doc 1: (Title: Vorna) The river is <answer>Lim</answer>. <tool_call>{}</tool_call>", 40)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if row.Turns[2].Error != protocol.NotJSON || row.Turns[3].Error != protocol.NotJSON || row.Turns[4].Args != `{"query_list":["Vorna"]}` {
		t.Errorf("%+v", row.Turns)
	}
}

func TestSeedsAndSamplingAreSent(t *testing.T) {
	var seeds []int64
	s := newStage(t, scripted.Options{Script: says(search, answer), Tokens: true, Seen: func(c scripted.Conversation) { seeds = append(seeds, c.Seed) }}, nil)
	s.play(t, s.shown)
	if want := []int64{Seed(3, 1, "q1", 0, 0), Seed(3, 1, "q1", 0, 1)}; !slices.Equal(seeds, want) {
		t.Errorf("seeds %v, want %v", seeds, want)
	}
	if Seed(3, 1, "q1", 0, 0) != 748678586 {
		t.Errorf("the seed changed: %d", Seed(3, 1, "q1", 0, 0))
	}
	seen := map[int64]bool{}
	for _, s := range []int64{Seed(3, 1, "q1", 0, 0), Seed(4, 1, "q1", 0, 0), Seed(3, 2, "q1", 0, 0), Seed(3, 1, "q2", 0, 0), Seed(3, 1, "q1", 1, 0), Seed(3, 1, "q1", 0, 1)} {
		if seen[s] || s < 0 || s > 1<<31-1 {
			t.Errorf("seed %d", s)
		}
		seen[s] = true
	}
}
