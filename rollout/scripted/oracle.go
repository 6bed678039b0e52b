package scripted

import (
	"errors"
	"math"

	"searchloop/rollout/fence"
	"searchloop/rollout/reward"
)

// Oracle answers at once, from the ground truth: rightly for exactly the share
// Right of the questions, spread evenly over their ranks, and with a wrong answer
// for the others.
type Oracle struct{ Right float64 }

// Reply answers the question of the conversation.
func (o Oracle) Reply(c Conversation) (string, error) {
	if c.Question == nil || len(c.Question.Answers) == 0 {
		return "", errors.New("the oracle does not know this question")
	}
	answer := c.Question.Answers[0]
	steps := func(n int) float64 { return math.Floor(float64(n)*o.Right + 1e-9) }
	if steps(c.Rank+1) == steps(c.Rank) {
		answer = wrong(c.Question.Answers)
	}
	return "<think>I know this one.</think>\n<answer>" + answer + "</answer>", nil
}

// wrong is an answer that matches none of the accepted ones.
func wrong(accepted []string) string {
	w := "nothing of the kind"
	for reward.Match(w, accepted) {
		w += " at all"
	}
	return w
}

func init() { Register("judge", Func(judge)) }

// judge compares the fenced ANSWER with the fenced TRUTH and CANDIDATES (one a
// line) of the last user message, in normal form, and says Yes or No.
func judge(c Conversation) (string, error) {
	var prompt string
	for _, m := range c.Messages {
		// A second request after an unreadable verdict repeats the first.
		if _, ok := fence.Find(m.Text, "ANSWER"); m.Role == "user" && ok {
			prompt = m.Text
		}
	}
	answer, ok := fence.Find(prompt, "ANSWER")
	truth, ok2 := fence.Find(prompt, "TRUTH")
	if !ok || !ok2 {
		return "", errors.New("the prompt quotes no ANSWER and TRUTH")
	}
	accepted := []string{truth}
	if more, ok := fence.Find(prompt, "CANDIDATES"); ok {
		accepted = append(accepted, lines(more)...)
	}
	if reward.Match(answer, accepted) {
		return "Yes", nil
	}
	return "No", nil
}
