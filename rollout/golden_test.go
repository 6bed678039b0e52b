package rollout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/recipe"
	"searchloop/rollout/protocol"
	"searchloop/rollout/reward"
	"searchloop/rollout/scripted"
	"searchloop/rollout/tool"
	"searchloop/rollout/trajectory"
)

// setUp sets a stage up with a recipe of the repository.
func setUp(t *testing.T, name string, opt scripted.Options) (stage, *recipe.Recipe) {
	t.Helper()
	rec, err := recipe.Load(filepath.Join("..", recipe.Dir, name+".yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := newStage(t, opt, func(r *recipe.Recipe) { *r = *rec })
	src := tool.Sources{Text: shelf{hit: tool.Hit{Contents: "Vorna\nThe river is Lim.", Link: "passage:7"}}, Store: s.agent.images, Lens: lensOf(s)}
	if name == "vision-deepresearch" {
		rec.Tools = rec.Tools[:1] // the others have tests of their own
	}
	if s.agent.tools, err = tool.New(rec.Tools, src); err != nil {
		t.Fatal(err)
	}
	return s, rec
}

// sampled marks what the policy wrote in a row's tokens: [sampled]rest.
func sampled(row trajectory.Row) string {
	var b strings.Builder
	in := false
	for i, id := range row.TokenIDs {
		if row.LossMask[i] != in {
			b.WriteByte("[]"[map[bool]int{true: 0, false: 1}[row.LossMask[i]]])
			in = row.LossMask[i]
		}
		if id < 256 {
			b.WriteByte(byte(id))
		} else {
			b.WriteByte("{}*()"[id-256])
		}
	}
	if in {
		b.WriteByte(']')
	}
	return b.String()
}

func TestGoldenTrajectories(t *testing.T) {
	const (
		sFind = "<think>t</think>\n<search> Vorna </search>"
		sEnd  = "<think>u</think>\n<answer> Lim </answer>"
		mImg  = "<reason>r</reason><search><img></search>"
		mText = "<reason>r</reason><text_search>Vorna</text_search>"
		mEnd  = "<reason>r</reason><answer>Lim</answer>"
		vFind = "<think>t</think>\n<tool_call>{name: 'search', arguments: {query: ['Vorna']}}</tool_call>"
		vEnd  = "<think>t</think>\n<answer>Lim</answer>"
	)
	info := "\n\n<information>Doc 1(Title: Vorna) The river is Lim.</information>\n\n"
	for _, c := range []struct {
		recipe, name string
		plain        bool
		turns        []string
		outline      string
		tail         string // how the tokens go on after the first prompt
		answer       string
		reward       float64
		scored       bool
	}{
		{"search-r1", "answer at once", true, []string{sEnd}, "ok user assistant | ", "[" + sEnd + "]", "Lim", 1, true},
		{"search-r1", "one search", true, []string{sFind + " and more that is never sampled", sEnd}, "ok user assistant=text_search inline=text_search assistant | ",
			"[" + sFind + "]" + info + "[" + sEnd + "]", "Lim", 1, true},
		{"search-r1", "no action is told in the turn; its end mark stays", true, []string{"hm", sEnd}, "ok user assistant! inline! assistant | ",
			"[hm}]\n" + protocol.NoAction + "\n[" + sEnd + "]", "Lim", 1, true},
		{"search-r1", "four searches, then a fifth", true, []string{sFind, sFind, sFind, sFind, sFind},
			"truncated user assistant=text_search inline=text_search assistant=text_search inline=text_search assistant=text_search inline=text_search assistant=text_search inline=text_search assistant=text_search | tool calls exhausted",
			strings.Repeat("["+sFind+"]"+info, 4) + "[" + sFind + "]", "-", 0, true},
		{"search-r1-format", "wrong in form", true, []string{sFind, "<think>u</think><answer>Drina</answer>"}, "ok user assistant=text_search inline=text_search assistant | ",
			"[" + sFind + "]" + info + "[<think>u</think><answer>Drina</answer>]", "Drina", 0.2, true},
		{"mmsearch-r1", "answer at once", false, []string{mEnd}, "ok user+1 assistant | ", "[" + mEnd + "}]", "Lim", 1, true},
		{"mmsearch-r1", "image, text, answer", false, []string{mImg, mText, mEnd},
			"ok user+1 assistant=image_search_by_lens user=image_search_by_lens+1 assistant=text_search user=text_search assistant | ", "", "Lim", 0.91, true},
		{"mmsearch-r1", "the image twice", false, []string{mImg, mImg}, "truncated user+1 assistant=image_search_by_lens user=image_search_by_lens+1 assistant=image_search_by_lens | tool calls exhausted", "", "-", 0, true},
		{"mmsearch-r1", "three searches", false, []string{mText, mText, mText}, "truncated user+1 assistant=text_search user=text_search assistant=text_search user=text_search assistant=text_search | tool calls exhausted", "", "-", 0, true},
		{"mmsearch-r1", "neither", false, []string{"hm"}, "ok user+1 assistant | ", "[hm}]", "-", 0, true},
		{"vision-deepresearch", "search and answer", false, []string{vFind, vEnd}, "ok system user+1 assistant=search user=search assistant | ",
			"[" + vFind + "}]\n{user\n<tool_response>\n1. [Vorna](passage:7)\nThe river is Lim.\n</tool_response>}\n{assistant\n[" + vEnd + "}]", "Lim", 1, true},
		{"vision-deepresearch", "three bad turns", true, []string{"hm", "<tool_call>{</tool_call>", "so"}, "truncated system user assistant! user! assistant! user! assistant! | too many turns in a row that ask for nothing", "", "-", 0, false},
		{"vision-deepresearch", "bad, bad, good", true, []string{"hm", "hm", vFind, vEnd}, "ok system user assistant! user! assistant! user! assistant=search user=search assistant | ", "", "Lim", 1, true},
		{"rag", "image, query, answer", false, []string{"Vorna", "<answer>Lim</answer>"}, "ok user+1 user=image_search_by_lens+1 assistant=text_search user=text_search assistant | ", "", "Lim", 1, true},
		{"direct", "bare", false, []string{"Lim"}, "ok user+1 assistant | ", "[Lim}]", "Lim", 1, true},
	} {
		t.Run(c.recipe+"/"+c.name, func(t *testing.T) {
			s, rec := setUp(t, c.recipe, scripted.Options{Script: inTurns(c.turns...), Tokens: true})
			q := s.shown
			if c.plain {
				q = s.plain
			}
			row := s.play(t, q)
			row.Answers = q.Answers
			if got := outline(row); got != c.outline {
				t.Errorf("outline\n got %s\nwant %s", got, c.outline)
			}
			if row.HasAnswer != (c.answer != "-") || row.HasAnswer && row.Answer != c.answer {
				t.Errorf("answer %q, %v", row.Answer, row.HasAnswer)
			}
			all := sampled(row)
			if !strings.HasSuffix(all, c.tail) || c.tail != "" && !strings.HasSuffix(strings.TrimSuffix(all, c.tail), "{assistant\n") {
				t.Errorf("tokens\n got %q\nwant %q", all, c.tail)
			}
			// Sampled tokens are the policy's turns, in order, and nothing else.
			var turns, wrote strings.Builder
			for _, turn := range row.Turns {
				if turn.Role == "assistant" {
					turns.WriteString(turn.Text)
				}
			}
			for i, id := range row.TokenIDs {
				if row.LossMask[i] && id < 256 {
					wrote.WriteByte(byte(id))
				}
			}
			if wrote.String() != turns.String() {
				t.Errorf("sampled %q, turns %q", wrote.String(), turns.String())
			}
			r, err := reward.Score(rec.Reward, &row, row.HasAnswer && reward.MatchBy(rec.Reward, row.Answer, row.Answers))
			if err != nil || math.Abs(r.Reward-c.reward) > 1e-12 || r.Scored != c.scored {
				t.Errorf("reward %g, scored %v, want %g, %v (%v)", r.Reward, r.Scored, c.reward, c.scored, err)
			}
		})
	}
}

// The last turn of vision-deepresearch is announced, and its bare text is the answer.
func TestFinalAnswerIsAskedFor(t *testing.T) {
	const find = "<tool_call>{name: 'search', arguments: {query: ['Vorna']}}</tool_call>"
	var all []string
	for range 49 {
		all = append(all, find)
	}
	s, rec := setUp(t, "vision-deepresearch", scripted.Options{Script: inTurns(append(all, "<think>t</think>Lim")...), Tokens: true})
	row := s.play(t, s.plain)
	n := len(row.Turns)
	if row.Status != trajectory.OK || row.Answer != "Lim" || n != 2+2*49+1 || !strings.HasSuffix(row.Turns[n-2].Text, "\n\n"+rec.Protocol.FinalText) || strings.Contains(row.Turns[n-4].Text, rec.Protocol.FinalText) {
		t.Errorf("%d turns, %s %q: %q", n, row.Status, row.Answer, row.Turns[n-2].Text)
	}
}

// An end mark that was sampled is in the row, and is trained on.
func TestG18SampledIdsStay(t *testing.T) {
	s, _ := setUp(t, "search-r1", scripted.Options{Script: inTurns("hm", "<answer>Lim</answer>"), Tokens: true})
	if got := sampled(s.play(t, s.plain)); !strings.Contains(got, "[hm}]\n"+protocol.NoAction) {
		t.Errorf("%q", got)
	}
}

// Evaluation of search-r1 and mmsearch-r1 is greedy, and says so in every request.
func TestG20GreedyEvaluation(t *testing.T) {
	for _, name := range []string{"search-r1", "search-r1-format", "mmsearch-r1", "rag", "direct"} {
		rec, err := recipe.Load(filepath.Join("..", recipe.Dir, name+".yaml"), nil)
		if err != nil || rec.Sampling.Eval.Temperature != 0 || rec.Sampling.Train.Temperature != 1 {
			t.Errorf("%s: %+v %v", name, rec.Sampling, err)
		}
	}
}

// What the recipe of mm-deepresearch gives did not change when others were added.
func TestFirstRecipeIsAsBefore(t *testing.T) {
	h := sha256.New()
	for _, turns := range [][]string{{answer}, {byLens, search, answer}, {search, search, search}, {"<tool_call>", search + byLens, answer}, {"I do not know."}} {
		s := newStage(t, scripted.Options{Script: says(turns...), Tokens: true}, nil)
		row := s.play(t, s.shown)
		if row.TokenSource != trajectory.Sampled {
			t.Errorf("tokens of the source %q", row.TokenSource)
		}
		row.TokenSource = "" // a column that came later
		b, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		h.Write(b)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != "2cb0cdfc46cb3337b042b84911831d96fdc914397a031040df41da538095ea26" {
		t.Errorf("rows have the digest %s", got)
	}
	for key, want := range map[string]string{"mm-deepresearch eval": "e68b9fa5839219ba", "mm-deepresearch train": "40c4f97c19491125", "demo eval": "df9d959b53913a91"} {
		name, mode, _ := strings.Cut(key, " ")
		rec, err := recipe.Load(filepath.Join("..", recipe.Dir, name+".yaml"), nil)
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Questions: "q", Out: "o", Run: "r", Mode: mode, Policy: "p", Epoch: 1}
		if p, err := o.plan(rec); err != nil || p.hash() != want {
			t.Errorf("%s: recipe %s, was %s (%v)", key, p.hash(), want, err)
		}
	}
}

// inTurns is a script of fixed turns that also counts those inside one message.
func inTurns(turns ...string) scripted.Script {
	return scripted.Func(func(c scripted.Conversation) (string, error) {
		if c.Turn >= len(turns) {
			return "", fmt.Errorf("turn %d was not expected", c.Turn)
		}
		return turns[c.Turn], nil
	})
}
