package lesson

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"searchloop/corpus/near"
	"searchloop/internal/recipe"
	"searchloop/rollout/protocol"
	"searchloop/rollout/trajectory"
)

// candidate is a right trajectory within the limits.
type candidate struct {
	id     string
	sample int32
	calls  int
	tokens int64
	reward float64
	digest [32]byte // of what the policy said
	words  near.Set // of it; nil when only equal ones count as the same
}

// chooser decides over the rows of questions that it is shown.
type chooser struct {
	rule  recipe.Lessons
	why   map[string]string // by row: why it is not chosen; "" for the chosen
	of    map[string][]candidate
	order []string // questions, as they came
}

func newChooser(rule recipe.Lessons) *chooser {
	return &chooser{rule: rule, why: map[string]string{}, of: map[string][]candidate{}}
}

// look takes a row into the choice, or says why it is out of it.
func (c *chooser) look(row *trajectory.Row, v verdict) {
	if why := c.refuse(row, v); why != "" {
		c.why[row.ID] = why
		return
	}
	k := candidate{id: row.ID, sample: row.Sample, reward: v.reward}
	var said []string
	for i := range row.Turns {
		t := &row.Turns[i]
		if t.Role == "assistant" {
			said = append(said, t.Text)
			k.tokens += int64(t.Tokens)
		}
		if t.Called() {
			k.calls++
		}
	}
	text := strings.Join(said, "\x00")
	k.digest = sha256.Sum256([]byte(row.Question + "\x00" + text))
	if c.rule.Near > 0 {
		k.words = near.Words(near.Plain(text))
	}
	if c.of[row.Question] == nil {
		c.order = append(c.order, row.Question)
	}
	c.of[row.Question] = append(c.of[row.Question], k)
}

// refuse says why a row cannot be learned from at all.
func (c *chooser) refuse(row *trajectory.Row, v verdict) string {
	switch {
	case row.Status == trajectory.Failed:
		return fmt.Sprintf("failed: %s", row.Why)
	case row.Status == trajectory.Truncated:
		return fmt.Sprintf("truncated: %s", row.Why)
	case !v.scored:
		return "no reward"
	case !v.correct:
		return "wrong"
	case v.reward < c.rule.MinReward:
		return fmt.Sprintf("reward too low: %g", v.reward)
	}
	turns, tokens := 0, int64(0)
	for i := range row.Turns {
		t := &row.Turns[i]
		if t.Role != "assistant" {
			continue
		}
		turns++
		tokens += int64(t.Tokens)
		if c.rule.Clean && t.Error != "" {
			return fmt.Sprintf("bad form: turn %d: %s", i+1, t.Error)
		}
		if t.Finish == "length" {
			return fmt.Sprintf("a turn was cut: turn %d", i+1)
		}
		if protocol.Repeats(t.Text, c.rule.Repetition, c.rule.RepetitionWords) {
			return fmt.Sprintf("repeats itself: turn %d", i+1)
		}
	}
	switch {
	case c.rule.MinTurns > 0 && turns < c.rule.MinTurns:
		return fmt.Sprintf("too few turns: %d", turns)
	case c.rule.MaxTurns > 0 && turns > c.rule.MaxTurns:
		return fmt.Sprintf("too many turns: %d", turns)
	case c.rule.MaxTokens > 0 && tokens > int64(c.rule.MaxTokens):
		return fmt.Sprintf("too many tokens: %d", tokens)
	}
	return ""
}

// choose decides over what was looked at. The better of two rows has more reward,
// then fewer calls, then fewer tokens, then the lower sample.
func (c *chooser) choose() {
	for _, q := range c.order {
		list := c.of[q]
		slices.SortFunc(list, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(b.reward, a.reward), cmp.Compare(a.calls, b.calls), cmp.Compare(a.tokens, b.tokens), cmp.Compare(a.sample, b.sample))
		})
		most := c.rule.PerQuestion
		if c.rule.Select != "all" {
			most = 1
		}
		var kept []candidate
		for _, k := range list {
			switch twin := c.twin(kept, k); {
			case twin != "":
				c.why[k.id] = "the same as another: " + twin
			case most > 0 && len(kept) == most:
				c.why[k.id] = "not the best of its question"
			default:
				kept = append(kept, k)
			}
		}
	}
}

// twin is the row among those kept that says the same; "" when there is none.
func (c *chooser) twin(kept []candidate, k candidate) string {
	for _, other := range kept {
		if other.digest == k.digest || c.rule.Near > 0 && near.Jaccard(other.words, k.words) >= c.rule.Near {
			return other.id
		}
	}
	return ""
}
