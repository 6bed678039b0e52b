package rollout

import (
	"fmt"
	"slices"
	"strings"

	"searchloop/internal/llm"
	"searchloop/rollout/trajectory"
)

// otherTokens begins the reason of a row whose texts do not make the prompt that the
// server read.
const otherTokens = "the tokenizer and template of --policy-tokenizer do not make the server's prompt"

// retokenise gives a row tokens of its texts, when its server gave none and the
// model's folder was named. The row says so: the policy may have sampled other tokens
// of the same text. That the prompts are right, images included, is checked by the
// number of tokens that the server counted in the last of them.
func (t *talk) retokenise() error {
	tok := t.agent.policy.Tokenizer()
	if !t.idless || tok == nil {
		return nil
	}
	last := len(t.messages) - 1
	for last >= 0 && t.messages[last].Role != "assistant" {
		last--
	}
	if last < 0 {
		return nil // it ended before the first turn
	}
	err := t.encode(tok, t.messages[:last+1])
	switch {
	case err == nil:
		t.row.TokenSource = trajectory.Retokenised
		return nil
	case t.strict:
		return broken{fmt.Errorf("%s: %w", otherTokens, err)}
	}
	t.tokens = ledger{}
	return nil
}

// encode fills the ledger as if the server had told the tokens of each turn.
func (t *talk) encode(tok *llm.Tokenizer, messages []llm.Message) error {
	req := llm.Request{Messages: messages}
	if t.recipe.Protocol.ToolSchemas {
		req.Tools = t.tools.Schemas()
	}
	said := t.lastTurn()
	stopped := slices.ContainsFunc(t.protocol.Stops(), func(s string) bool { return strings.HasSuffix(said.Text, s) })
	ids, turns, images, err := tok.Conversation(req, said.Finish == "length" || stopped)
	if err != nil {
		return innermost(err)
	}
	for _, turn := range turns {
		seen := 0
		for seen < len(images) && int(images[seen].Offset) < turn[0] {
			seen++
		}
		r := &llm.Reply{PromptIDs: ids[:turn[0]], TokenIDs: ids[turn[0]:turn[1]], Images: images[:seen], LogprobMode: trajectory.LogprobNone}
		if err := t.tokens.check(r, t.imageIDs[:min(seen, len(t.imageIDs))]); err != nil {
			return err
		}
		t.tokens.enter(r, t.imageIDs[:seen])
	}
	// What the server counted in its last prompt.
	if read, made := t.first+t.used-int(said.Tokens), turns[len(turns)-1][0]; t.known && read != made {
		return fmt.Errorf("it read %d tokens, and they make %d", read, made)
	}
	return nil
}

// lastTurn is the policy's last turn.
func (t *talk) lastTurn() *trajectory.Turn {
	for i := len(t.row.Turns) - 1; i >= 0; i-- {
		if t.row.Turns[i].Role == "assistant" {
			return &t.row.Turns[i]
		}
	}
	return &trajectory.Turn{}
}
