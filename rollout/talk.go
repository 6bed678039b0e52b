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
)

// talk is one trajectory in the making.
type talk struct {
	*agent
	q        *corpus.Question
	row      *trajectory.Row
	time     *timing
	messages []llm.Message
	tokens   ledger
	imageIDs []string // of all images in messages, in order

	// Counts of tokens, by ids or by the server's usage.
	first int // of the first prompt
	used  int // after it, up to the end of the last turn
	known bool

	marked  bool // the last turn ended with an image mark
	inexact bool // the tokens are not known for sure: the row has none
	pending int  // turns at the end of row.Turns that the policy has not read yet
}

func (t *talk) run(ctx context.Context) error {
	if err := t.open(); err != nil {
		return err
	}
	for turn, rounds := 0, 0; ; turn++ {
		reply, stop, err := t.ask(ctx, turn)
		if err != nil || stop {
			return err
		}
		said := protocol.Parse(reply.Text)
		t.say(reply, said)
		switch {
		case t.marked:
			t.truncate(ImageMark)
			return nil
		case reply.Finish == "length":
			t.truncate(t.lengthWhy(reply))
			return nil
		case len(said.Calls) == 0:
			t.row.Status = trajectory.OK
			return nil
		case rounds == t.recipe.Protocol.MaxToolCalls:
			t.truncate(ToolsExhausted)
			return nil
		}
		rounds++
		if err := t.observe(ctx, said.Calls); err != nil {
			return err
		}
	}
}

// open writes the system and the user message.
func (t *talk) open() error {
	if s := t.recipe.Protocol.System; s != "" {
		t.messages = append(t.messages, llm.Message{Role: "system", Text: s})
		t.row.Turns = append(t.row.Turns, trajectory.Turn{Role: "system", Text: s})
	}
	user := llm.Message{Role: "user", Text: t.recipe.Protocol.UserPrefix + t.q.Text}
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
	if said.HasAnswer {
		t.row.Answer, t.row.HasAnswer = said.Answer, true
	}
	t.row.Turns = append(t.row.Turns, turn)
	t.messages = append(t.messages, llm.Message{Role: "assistant", Text: r.Text, TokenIDs: r.TokenIDs})
}

// observe runs the calls of a turn and adds what they give. Every call is
// answered; those beyond CallsPerTurn by one message for all of them.
func (t *talk) observe(ctx context.Context, calls []protocol.Call) error {
	begin := time.Now()
	defer func() { t.time.Tools += time.Since(begin).Seconds() }()
	run := max(1, t.recipe.Protocol.CallsPerTurn)
	for i, c := range calls {
		var res tool.Result
		if i < run {
			var err error
			if res, err = t.tools.Run(ctx, t.q, c); err != nil {
				return err
			}
		} else {
			res = tool.Result{Text: protocol.TooManyCalls(run), Problem: protocol.TooManyCalls(run)}
			c = protocol.Call{}
		}
		t.result(c, res)
		if i == run {
			return nil
		}
	}
	return nil
}

// result adds one tool message.
func (t *talk) result(c protocol.Call, res tool.Result) {
	text := protocol.Cut(strings.ToValidUTF8(res.Text, "�"), t.recipe.Protocol.ToolChars)
	msg := llm.Message{Role: "tool", Text: text}
	turn := trajectory.Turn{Role: "tool", Text: text, Call: c.Name, Args: c.Args, Error: res.Problem}
	for _, img := range res.Images {
		msg.Images = append(msg.Images, img.Data)
		turn.Images = append(turn.Images, img.ID)
		t.imageIDs = append(t.imageIDs, img.ID)
	}
	t.messages = append(t.messages, msg)
	t.row.Turns = append(t.row.Turns, turn)
	t.pending++
}

// drop ends the trajectory before the policy reads the last observation: the row
// ends with the turn that asked for it.
func (t *talk) drop(why string) {
	t.row.Turns = t.row.Turns[:len(t.row.Turns)-t.pending]
	t.truncate(why)
}

func (t *talk) truncate(why string) { t.row.Status, t.row.Why = trajectory.Truncated, why }
