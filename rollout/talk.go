package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/llm"
	"searchloop/internal/recipe"
	"searchloop/internal/retry"
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

// Why it failed, besides the failures of services.
const (
	deadlinePassed = "deadline passed"
	promptTooLong  = "prompt and turn do not fit the model's context"
	inexactTokens  = "the policy server did not keep the sampled tokens"
)

// agent plays trajectories. Safe for concurrent use.
type agent struct {
	recipe   *recipe.Recipe
	sampling recipe.Sampling
	epoch    int
	strict   bool // tokens must be exact: a row whose tokens are not fails
	policy   *llm.Client
	tools    *tool.Box
	images   *corpus.ImageStore
}

// timing is how long a trajectory took; it is kept beside the rows.
type timing struct {
	ID      string  `json:"id"`
	Seconds float64 `json:"seconds"`
	Policy  float64 `json:"policy_seconds"`
	Tools   float64 `json:"tool_seconds"`
	Turns   int     `json:"turns"`
	Calls   int     `json:"policy_calls"` // HTTP calls, retries included
	Prompt  int64   `json:"prompt_tokens"`
}

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

// broken is an error of this trajectory alone: it fails, the job goes on.
type broken struct{ err error }

func (b broken) Error() string { return b.err.Error() }
func (b broken) Unwrap() error { return b.err }

// play runs one trajectory to its end. The row is complete, or of status failed.
// An error means that there is no row: the job must end (the service is gone, the
// disk is full) or was interrupted.
func (a *agent) play(ctx context.Context, q *corpus.Question, row *trajectory.Row) (timing, error) {
	start := time.Now()
	tm := timing{ID: row.ID}
	parent := ctx
	if d := a.recipe.Rollout.DeadlineSec; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(d)*time.Second, errors.New(deadlinePassed))
		defer cancel()
	}
	t := &talk{agent: a, q: q, row: row, time: &tm}
	err := t.run(ctx)
	tm.Seconds = time.Since(start).Seconds()
	if err == nil {
		t.tokens.fill(row)
		return tm, nil
	}
	if parent.Err() != nil {
		return tm, fail.Wrap(fail.Interrupted, "roll out", "", context.Cause(parent))
	}
	reason, ok := why(ctx, err)
	if !ok {
		return tm, err
	}
	row.Status, row.Why = trajectory.Failed, reason
	row.Answer, row.HasAnswer = "", false
	row.TokenIDs, row.LossMask, row.Logprobs, row.Images, row.LogprobMode = nil, nil, nil, nil, trajectory.LogprobNone
	return tm, nil
}

// why is the reason as it stands in a failed row: without addresses, which differ
// between equal runs. ok is false for errors that end the job.
func why(ctx context.Context, err error) (reason string, ok bool) {
	var e *fail.Error
	var b broken
	f := llm.FaultOf(err)
	switch {
	case ctx.Err() != nil:
		return deadlinePassed, true
	case errors.As(err, &b):
		return b.Error(), true
	case f == nil || f.Verdict == retry.Stop:
		return "", false
	case errors.As(err, &e):
		return e.Op + ": " + f.Error(), true
	}
	return f.Error(), true
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

// ask gets the next turn within the token limits. stop: there was no room for it,
// and the row says so.
func (t *talk) ask(ctx context.Context, turn int) (reply *llm.Reply, stop bool, err error) {
	p := t.recipe.Protocol
	req := llm.Request{
		Messages: t.messages, MaxTokens: p.TurnTokens, TokenIDs: true,
		Temperature: t.sampling.Temperature, TopP: t.sampling.TopP, TopK: t.sampling.TopK,
		Seed: Seed(t.recipe.Seed, t.epoch, t.q.ID, int(t.row.Sample), turn),
	}
	if p.ToolSchemas {
		req.Tools = t.tools.Schemas()
	}
	limit := func(room int) { // MaxTokens 0 means no limit
		if p.ResponseTokens > 0 && (req.MaxTokens == 0 || room < req.MaxTokens) {
			req.MaxTokens = room
		}
	}
	if left := p.ResponseTokens - t.used; turn == 0 || !t.known {
		limit(p.ResponseTokens)
	} else if p.ResponseTokens > 0 && left < 2 { // at least one token of observation and one of turn
		t.drop(NoRoom)
		return nil, true, nil
	} else {
		limit(left - 1)
	}
	for {
		begin := time.Now()
		reply, err = t.policy.Chat(ctx, req)
		t.time.Policy += time.Since(begin).Seconds()
		if f := llm.FaultOf(err); f != nil {
			t.time.Calls += f.Attempts
			if f.Class != llm.ContextLength {
				return nil, false, err
			}
			if turn > 0 {
				t.drop(ContextFull)
				return nil, true, nil
			}
			f.Err = errors.New(promptTooLong)
		}
		if err != nil {
			return nil, false, err
		}
		t.time.Calls += reply.Attempts
		t.time.Turns++
		t.time.Prompt += int64(reply.PromptTokens)
		reply.Text = strings.ToValidUTF8(reply.Text, "�")
		// How long the observation was is known only now.
		if turn == 0 {
			t.first, t.known = reply.PromptTokens, reply.PromptTokens > 0
		}
		before := reply.PromptTokens - t.first
		if p.ResponseTokens > 0 && t.known {
			room := p.ResponseTokens - before
			if room < 1 {
				t.drop(NoRoom)
				return nil, true, nil
			}
			if reply.ReplyTokens > room && req.MaxTokens > room {
				// Sampled past the limit: the same seed gives the same turn, cut in time.
				req.MaxTokens = room
				continue
			}
		}
		reply.Finish = finish(reply, req.MaxTokens)
		err = t.enter(reply)
		t.used = before + reply.ReplyTokens
		return reply, false, err
	}
}

// finish guards against servers that cut a turn without saying so.
func finish(r *llm.Reply, limit int) string {
	if limit > 0 && r.ReplyTokens > limit {
		return "length"
	}
	return r.Finish
}

// enter puts a reply's tokens into the ledger.
func (t *talk) enter(r *llm.Reply) error {
	if t.row.Policy == "" {
		t.row.Policy = r.Policy
		if r.Policy == "" {
			t.row.Policy = t.policy.URL() + "#" + t.policy.Model()
		}
	} else if r.Policy != "" && r.Policy != t.row.Policy {
		return broken{fmt.Errorf("the policy changed within the trajectory, from %.12s to %.12s", t.row.Policy, r.Policy)}
	}
	t.marked = unmark(r)
	var err error
	switch {
	case t.inexact:
		return nil
	case t.marked:
		err = t.tokens.check(r, t.imageIDs)
	case len(r.TokenIDs) == 0 && !t.tokens.used:
		t.inexact = true // a server without token ids
		return nil
	case len(r.TokenIDs) == 0:
		err = errors.New("it stopped sending token ids")
	default:
		err = t.tokens.check(r, t.imageIDs)
	}
	if err == nil {
		t.tokens.enter(r, t.imageIDs)
		return nil
	}
	if t.strict {
		return broken{fmt.Errorf("%s: %w", inexactTokens, err)}
	}
	// For evaluation the text is enough: the row goes on without tokens.
	t.inexact, t.tokens = true, ledger{}
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

// lengthWhy says which limit cut a turn.
func (t *talk) lengthWhy(r *llm.Reply) string {
	p := t.recipe.Protocol
	switch {
	case p.ResponseTokens > 0 && t.known && t.used >= p.ResponseTokens:
		return ResponseTokens
	case p.TurnTokens > 0 && r.ReplyTokens >= p.TurnTokens:
		return TurnTokens
	case r.ReplyTokens == 0:
		return TurnTokens
	}
	return ContextFull
}

func innermost(err error) error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		err = e
	}
	return err
}
