package rollout

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/llm"
	"searchloop/internal/recipe"
	"searchloop/internal/retry"
	"searchloop/rollout/scripted"
	"searchloop/rollout/tool"
	"searchloop/rollout/trajectory"
)

func TestServerFaultsFailTheTrajectoryWithTheirClass(t *testing.T) {
	for fault, why := range map[string]string{
		"500:9": "ask for a turn: http 500: status 500: fault on demand: 500", "hang:9": "ask for a turn: timeout: no complete response in time",
		"html:9": "ask for a turn: html:", "truncated:9": "ask for a turn: not json:", "empty:9": "ask for a turn: empty reply:",
		"errorobject:9": "ask for a turn: error object:", "cut:9": "ask for a turn: transport: connection closed",
		"422": "ask for a turn: http 422", "context": "ask for a turn: context length: prompt and turn do not fit the model's context",
	} {
		f, err := scripted.ParseFault(fault)
		if err != nil {
			t.Fatal(err)
		}
		f.From = 2 // the first turn is well, so that something half done is there
		if fault == "context" {
			f.From = 1
		}
		s := newStage(t, scripted.Options{Script: says("<answer>no</answer>"+search, answer), Tokens: true, Faults: []scripted.Fault{f}}, nil)
		row := s.play(t, s.shown)
		if row.Status != trajectory.Failed || !strings.HasPrefix(row.Why, why) || row.HasAnswer || row.Answer != "" || len(row.TokenIDs) != 0 || row.LogprobMode != trajectory.LogprobNone {
			t.Errorf("%s: %s %q, answer %q, %d tokens", fault, row.Status, row.Why, row.Answer, len(row.TokenIDs))
		}
	}
}

func TestServerRecovers(t *testing.T) {
	for _, fault := range []string{"500:2", "hang:1", "slow=5s:1", "garbage:2@2", "cut:1@2", "503:3", "empty:1"} {
		f, err := scripted.ParseFault(fault)
		if err != nil {
			t.Fatal(err)
		}
		s := newStage(t, scripted.Options{Script: says(search, answer), Tokens: true, Faults: []scripted.Fault{f}}, nil)
		if row := s.play(t, s.shown); row.Status != trajectory.OK || row.Answer != "Lim" {
			t.Errorf("%s: %s", fault, outline(row))
		}
	}
}

func TestContextFullLater(t *testing.T) {
	s := newStage(t, scripted.Options{Script: says(byLens, answer), Tokens: true, Context: 200}, nil)
	row := s.play(t, s.shown)
	if got := outline(row); got != "truncated system user+1 assistant=image_search_by_lens | the model's context is full" {
		t.Error(got)
	}
	checkTokens(t, row)
}

func TestErrorsThatEndTheJob(t *testing.T) {
	s := newStage(t, scripted.Options{Script: says(answer), Faults: []scripted.Fault{{Kind: "401", From: 1}}}, nil)
	row := trajectory.Row{}
	_, err := s.agent.play(t.Context(), &s.shown, &row)
	if fail.ExitCode(err) != 69 || llm.FaultOf(err).Class != llm.Unauthorised || s.server.Requests() != 1 {
		t.Error(err, s.server.Requests())
	}
	// A search service that is gone is no observation.
	gone := &fail.Error{Kind: fail.Service, Op: "search", Err: &retry.Fault{Verdict: retry.Stop, Class: "gone"}}
	sick := &fail.Error{Kind: fail.Service, Op: "search", Err: &retry.Fault{Verdict: retry.Again, Class: "http 500"}}
	disk := &fail.Error{Kind: fail.Disk, Op: "store image"}
	for _, cause := range []error{gone, sick, disk} {
		s := newStage(t, scripted.Options{Script: says(search, answer), Tokens: true}, nil)
		box, err := tool.New([]recipe.Tool{{Name: tool.TextSearch}}, tool.Sources{Text: shelf{err: cause}})
		if err != nil {
			t.Fatal(err)
		}
		s.agent.tools = box
		row := trajectory.Row{}
		_, err = s.agent.play(t.Context(), &s.shown, &row)
		if cause == sick {
			if err != nil || row.Status != trajectory.Failed || row.Why != "search: http 500" {
				t.Error(err, outline(row))
			}
		} else if !errors.Is(err, cause) {
			t.Error(err)
		}
	}
}

func TestDeadlineAndInterruption(t *testing.T) {
	slow := scripted.Func(func(scripted.Conversation) (string, error) { time.Sleep(150 * time.Millisecond); return search, nil })
	s := newStage(t, scripted.Options{Script: slow, Tokens: true}, func(r *recipe.Recipe) {
		r.Protocol.MaxToolCalls = 50
		r.Rollout.DeadlineSec = 1
	})
	row := s.play(t, s.shown)
	if row.Status != trajectory.Failed || row.Why != deadlinePassed {
		t.Error(outline(row))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.agent.play(ctx, &s.shown, &trajectory.Row{})
	if fail.KindOf(err) != fail.Interrupted {
		t.Error(err)
	}
}

func TestMissingImageFailsTheTrajectory(t *testing.T) {
	s := newStage(t, scripted.Options{Script: says(answer), Tokens: true}, nil)
	s.shown.ImageIDs = []string{strings.Repeat("ab", 32)}
	row := s.play(t, s.shown)
	if row.Status != trajectory.Failed || row.Why != "the question's image abababababab cannot be read: file does not exist" {
		t.Errorf("%q", row.Why)
	}
}

func TestInexactTokens(t *testing.T) {
	spoil := func(only int, f func(r *scripted.ChatResponse)) func(int, *scripted.ChatResponse) {
		return func(n int, r *scripted.ChatResponse) {
			if n == only {
				f(r)
			}
		}
	}
	for name, corrupt := range map[string]func(int, *scripted.ChatResponse){
		"another prompt":       spoil(2, func(r *scripted.ChatResponse) { r.PromptIDs[3]++ }),
		"sampled token lost":   spoil(2, func(r *scripted.ChatResponse) { r.PromptIDs[120]++ }),
		"shorter prompt":       spoil(2, func(r *scripted.ChatResponse) { r.PromptIDs, r.PromptImages = r.PromptIDs[:40], r.PromptImages[:1] }),
		"image missing":        spoil(1, func(r *scripted.ChatResponse) { r.PromptImages = nil }),
		"image too many":       spoil(1, func(r *scripted.ChatResponse) { r.PromptImages = append(r.PromptImages, r.PromptImages[0]) }),
		"image moved":          spoil(2, func(r *scripted.ChatResponse) { r.PromptImages[0].Offset++ }),
		"image on text":        spoil(1, func(r *scripted.ChatResponse) { r.PromptImages[0].Offset-- }),
		"image off the end":    spoil(1, func(r *scripted.ChatResponse) { r.PromptImages[0].Offset = 1 << 20 }),
		"image before start":   spoil(1, func(r *scripted.ChatResponse) { r.PromptImages[0].Offset = -1 }),
		"grid of another area": spoil(1, func(r *scripted.ChatResponse) { r.PromptImages[0].Grid = [3]int32{1, 4, 6} }),
		"grid of zero":         spoil(1, func(r *scripted.ChatResponse) { r.PromptImages[0].Grid = [3]int32{0, 4, 4} }),
		"huge grid":            spoil(1, func(r *scripted.ChatResponse) { r.PromptImages[0].Grid = [3]int32{1 << 30, 1 << 30, 1 << 30} }),
		"tokens stop coming": spoil(2, func(r *scripted.ChatResponse) {
			r.PromptIDs, r.Choices[0].TokenIDs, r.Choices[0].Logprobs = nil, nil, nil
		}),
		"a sampled placeholder": spoil(1, func(r *scripted.ChatResponse) { r.Choices[0].TokenIDs[0] = 258 }),
		"mode changes":          spoil(2, func(r *scripted.ChatResponse) { r.LogprobsMode = "raw" }),
	} {
		for _, strict := range []bool{true, false} {
			s := newStage(t, scripted.Options{Script: says(byLens, answer), Tokens: true, Corrupt: corrupt}, nil)
			s.agent.strict = strict
			row := s.play(t, s.shown)
			switch {
			case len(row.TokenIDs) != 0 || row.LogprobMode != trajectory.LogprobNone:
				t.Errorf("%s: tokens were kept", name)
			case strict && (row.Status != trajectory.Failed || !strings.HasPrefix(row.Why, inexactTokens)):
				t.Errorf("%s: %s", name, outline(row))
			case !strict && (row.Status != trajectory.OK || row.Answer != "Lim"):
				t.Errorf("%s, for evaluation: %s", name, outline(row))
			}
		}
	}
}

func TestServerWithoutTokenIDs(t *testing.T) {
	// Limits are then kept by the server's usage.
	for _, limit := range []int{0, (len(byLens) + 1 + 50 + 10) / 4} {
		s := newStage(t, scripted.Options{Script: says(byLens, answer)}, func(r *recipe.Recipe) { r.Protocol.ResponseTokens = limit })
		row := s.play(t, s.shown)
		want := trajectory.OK
		if limit > 0 {
			want = trajectory.Truncated
		}
		if row.Status != want || len(row.TokenIDs) != 0 || row.LogprobMode != trajectory.LogprobNone || !strings.HasSuffix(row.Policy, "#scripted") || row.Turns[2].Tokens != int32(len(byLens)+4)/4 {
			t.Errorf("%s, policy %s, mode %s", outline(row), row.Policy, row.LogprobMode)
		}
	}
}

func TestImageMarkEndsTheTurn(t *testing.T) {
	for _, mark := range []int32{258, 259, 260} { // placeholder, vision start, vision end
		s := newStage(t, scripted.Options{Script: says(byLens, answer), Tokens: true, Corrupt: func(n int, r *scripted.ChatResponse) {
			if c := &r.Choices[0]; n == 2 {
				c.TokenIDs[len(c.TokenIDs)-1] = mark
			}
		}}, nil)
		row := s.play(t, s.shown)
		if row.Status != trajectory.Truncated || row.Why != ImageMark || row.Answer != "Lim" {
			t.Error(outline(row))
		}
		row.Turns[len(row.Turns)-1].Finish = "length" // no end mark, like a turn that was cut
		checkTokens(t, row)
	}
}

func TestPolicyChangesMidway(t *testing.T) {
	s := newStage(t, scripted.Options{Script: says(search, answer), Tokens: true, Corrupt: func(n int, r *scripted.ChatResponse) {
		if n == 2 {
			r.Policy = "another"
		}
	}}, nil)
	if row := s.play(t, s.shown); row.Status != trajectory.Failed || !strings.Contains(row.Why, "policy changed") {
		t.Error(outline(row))
	}
}
