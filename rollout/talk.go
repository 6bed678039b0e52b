package rollout

import (
	"context"
	"fmt"
	"strings"
	"time"

	"searchloop/corpus"
	"searchloop/internal/llm"
	"searchloop/rollout/protocol"
	"searchloop/rollout/tool"
	"searchloop/rollout/trajectory"
)

// Why a trajectory was truncated: texts of Row.Why.
const (
	ToolsExhausted = "tool calls exhausted"
	NoRoom         = "observation does not fit"
	TurnTokens     = "turn tokens used up"
	ResponseTokens = "response tokens used up"
	ContextFull    = "the model's context is full"
	ImageMark      = "the policy wrote an image mark"
	BadTurns       = "too many turns in a row that ask for nothing"
	Repetition     = "the policy repeats itself"
)

// talk is one trajectory in the making.
type talk struct {
	*agent
	q        *corpus.Question
	row      *trajectory.Row
	time     *timing
	policy   *llm.Session
	asked    protocol.Question
	messages []llm.Message
	tokens   ledger
	imageIDs []string // of all images in messages, in order

	// Counts of tokens, by ids or by the server's usage.
	first int // of the first prompt
	used  int // after it, up to the end of the last turn
	known bool

	marked  bool // the last turn ended with an image mark
	inexact bool // the tokens are not known for sure: the row has none
	idless  bool // the server gives no token ids
	pending int  // turns at the end of row.Turns that the policy has not read yet

	rounds int            // tool rounds
	bad    int            // turns in a row that asked for nothing that could be run
	calls  map[string]int // that were run, by tool
}

func (t *talk) run(ctx context.Context) error {
	if err := t.open(ctx); err != nil {
		return err
	}
	p := t.recipe.Protocol
	for turn := 0; ; turn++ {
		reply, stop, err := t.ask(ctx, turn)
		if err != nil || stop {
			return err
		}
		last := t.rounds == p.MaxToolCalls
		said := t.protocol.Read(reply.Text, protocol.Place{Round: t.rounds, Final: last && p.FinalAnswer})
		t.say(reply, said)
		if t.bad++; !wrong(said) {
			t.bad = 0
		}
		switch {
		case t.marked:
			t.truncate(ImageMark)
			return nil
		case reply.Finish == "length":
			t.truncate(t.lengthWhy(reply))
			return nil
		case protocol.Repeats(reply.Text, p.Repetition, p.RepetitionWords):
			t.truncate(Repetition)
			return nil
		case len(said.Calls) == 0 && said.Problem == "":
			t.row.Status = trajectory.OK
			return nil
		case last || t.spent(said.Calls):
			t.truncate(ToolsExhausted)
			return nil
		case p.MaxBadTurns > 0 && t.bad >= p.MaxBadTurns:
			t.truncate(BadTurns)
			return nil
		}
		t.rounds++
		if err := t.observe(ctx, said); err != nil {
			return err
		}
	}
}

// wrong says whether a turn asks for nothing that could be run, and gives no answer.
func wrong(said protocol.Turn) bool {
	for _, c := range said.Calls {
		if c.Problem == "" {
			return false
		}
	}
	return said.Problem != "" || len(said.Calls) > 0
}

// spent says whether the first of the calls is to a tool that has been called as
// often as it may be.
func (t *talk) spent(calls []protocol.Call) bool {
	if len(calls) == 0 {
		return false
	}
	tool, ok := t.recipe.Tool(calls[0].Name)
	return ok && tool.MaxCalls > 0 && t.calls[tool.Name] >= tool.MaxCalls
}

// open writes the system and the user message, and what is looked up before the
// first turn.
func (t *talk) open(ctx context.Context) error {
	t.asked = protocol.Question{Text: t.q.Text, Images: len(t.q.ImageIDs)}
	t.calls = map[string]int{}
	t.messages, t.row.Turns = make([]llm.Message, 0, 8), make([]trajectory.Turn, 0, 8)
	if t.bridge != nil {
		return t.cross()
	}
	if s := protocol.System(t.recipe.Protocol, t.asked); s != "" {
		t.messages = append(t.messages, llm.Message{Role: "system", Text: s})
		t.row.Turns = append(t.row.Turns, trajectory.Turn{Role: "system", Text: s})
	}
	user := llm.Message{Role: "user", Text: t.protocol.User(t.asked)}
	for _, id := range t.q.ImageIDs {
		data, err := t.images.Get(id)
		if err != nil {
			return broken{fmt.Errorf("the question's image %.12s cannot be read: %w", id, innermost(err))}
		}
		user.Images = append(user.Images, data)
		t.imageIDs = append(t.imageIDs, id)
	}
	t.messages = append(t.messages, user)
	t.row.Turns = append(t.row.Turns, trajectory.Turn{Role: "user", Text: user.Text, Images: t.q.ImageIDs})
	for _, c := range t.protocol.Before(t.asked) {
		if err := t.call(ctx, c, false); err != nil {
			return err
		}
	}
	return nil
}

// say adds the policy's turn.
func (t *talk) say(r *llm.Reply, said protocol.Turn) {
	t.pending = 0
	turn := trajectory.Turn{Role: "assistant", Text: r.Text, Tokens: int32(r.ReplyTokens), Finish: r.Finish}
	for i, c := range said.Calls {
		if i == 0 {
			turn.Call, turn.Args = c.Name, c.Args
		}
		if c.Problem != "" && turn.Error == "" {
			turn.Error = c.Problem
		}
	}
	if said.Problem != "" {
		turn.Error = said.Problem
	}
	if said.HasAnswer {
		t.row.Answer, t.row.HasAnswer = said.Answer, true
	}
	t.row.Turns = append(t.row.Turns, turn)
	t.messages = append(t.messages, llm.Message{Role: "assistant", Text: r.Text, TokenIDs: r.TokenIDs})
}

// observe runs the calls of a turn and adds what they give. Every call is
// answered; those beyond CallsPerTurn by one message for all of them. A turn that
// asks for nothing is told so.
func (t *talk) observe(ctx context.Context, said protocol.Turn) error {
	begin := time.Now()
	defer func() { t.time.Tools += time.Since(begin).Seconds() }()
	run := max(1, t.recipe.Protocol.CallsPerTurn)
	calls := said.Calls
	if len(calls) == 0 {
		return t.result(ctx, protocol.Call{}, tool.Result{Text: said.Problem, Problem: said.Problem}, true)
	}
	for i, c := range calls[:min(run, len(calls))] {
		if err := t.call(ctx, c, i+1 == len(calls)); err != nil {
			return err
		}
	}
	if len(calls) > run {
		problem := protocol.TooManyCalls(run)
		return t.result(ctx, protocol.Call{}, tool.Result{Text: problem, Problem: problem}, true)
	}
	return nil
}

// call runs one call; last: nothing more is said before the policy's next turn.
func (t *talk) call(ctx context.Context, c protocol.Call, last bool) error {
	res, err := t.tools.Run(ctx, t.q, c)
	if err != nil {
		return err
	}
	if c.Problem == "" {
		t.calls[c.Name]++
	}
	return t.result(ctx, c, res, last)
}

// result adds what the environment says, cut to its limits, in the protocol's form.
func (t *talk) result(ctx context.Context, c protocol.Call, res tool.Result, last bool) error {
	p := t.recipe.Protocol
	text := protocol.Cut(strings.ToValidUTF8(res.Text, "�"), p.ToolChars)
	text, err := t.policy.Cut(ctx, text, p.ObservationTokens)
	if err != nil {
		return err
	}
	text = t.protocol.Tell(protocol.Observation{Call: c, Text: text, Problem: res.Problem != "" && res.Text == res.Problem, Question: t.asked})
	if last && p.FinalAnswer && t.rounds == p.MaxToolCalls {
		text += "\n\n" + protocol.Final(p)
	}
	role := t.protocol.Role()
	msg := llm.Message{Role: role, Text: text}
	turn := trajectory.Turn{Role: role, Text: text, Call: c.Name, Args: c.Args, Error: res.Problem, Sources: res.Sources}
	for _, img := range res.Images {
		msg.Images = append(msg.Images, img.Data)
		turn.Images = append(turn.Images, img.ID)
		t.imageIDs = append(t.imageIDs, img.ID)
	}
	t.messages = append(t.messages, msg)
	t.row.Turns = append(t.row.Turns, turn)
	t.pending++
	return nil
}

// drop ends the trajectory before the policy reads the last observation: the row
// ends with the turn that asked for it.
func (t *talk) drop(why string) {
	t.row.Turns = t.row.Turns[:len(t.row.Turns)-t.pending]
	t.truncate(why)
}

func (t *talk) truncate(why string) { t.row.Status, t.row.Why = trajectory.Truncated, why }
