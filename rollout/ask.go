package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"searchloop/internal/llm"
	"searchloop/internal/manifest"
	"searchloop/rollout/protocol"
)

// ask gets the next turn within the token limits. stop: there was no room for it,
// and the row says so.
func (t *talk) ask(ctx context.Context, turn int) (reply *llm.Reply, stop bool, err error) {
	p := t.recipe.Protocol
	req := llm.Request{
		Messages: t.messages, MaxTokens: p.TurnTokens, TokenIDs: true,
		Temperature: t.sampling.Temperature, TopP: t.sampling.TopP, TopK: t.sampling.TopK,
		Seed: Seed(t.recipe.Seed, t.epoch, t.q.ID, int(t.row.Sample), turn),
		Stop: t.protocol.Stops(),
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
		if err := t.budget.Begin(); err != nil {
			return nil, false, err
		}
		begin := time.Now()
		reply, err = t.policy.Chat(ctx, req)
		t.spend(reply, err)
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
		if reply.Finish == "stop" && reply.Stop == "" && len(reply.TokenIDs) == 0 {
			reply.Text = protocol.Complete(reply.Text, req.Stop) // a server that cuts stop texts off and does not say which
		}
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

// spend keeps what a request took.
func (t *talk) spend(r *llm.Reply, err error) {
	var u manifest.Usage
	if f := llm.FaultOf(err); f != nil {
		u.Requests = int64(f.Attempts)
	}
	if err == nil {
		u = manifest.Usage{Requests: int64(r.Attempts), PromptTokens: int64(r.PromptTokens), CompletionTokens: int64(r.ReplyTokens),
			Cost: (float64(r.PromptTokens)*t.recipe.Rollout.PromptPrice + float64(r.ReplyTokens)*t.recipe.Rollout.Price) / 1e6}
		t.time.Cost += u.Cost
	}
	t.budget.End(u)
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
			t.row.Policy = t.agent.policy.Name()
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
		t.inexact, t.idless = true, true
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
