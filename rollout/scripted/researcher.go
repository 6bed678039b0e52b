package scripted

import (
	"errors"
	"fmt"
)

func init() { Register("researcher", Func(research)) }

// researchTurns is how many searches the researcher makes before it answers.
const researchTurns = 24

// research plays a text model that goes on from what was seen of an image, in the
// protocol of vision-deepresearch. How a question goes is decided by its rank: rightly,
// with a wrong answer, with a call in it that nobody can read, or without an end.
func research(c Conversation) (string, error) {
	if c.Question == nil || len(c.Question.Answers) == 0 {
		return "", errors.New("the researcher does not know this question")
	}
	turn := 0
	for _, m := range c.Messages {
		if m.Role == "assistant" {
			turn++
		}
	}
	answer := c.Question.Answers[0]
	switch kind := c.Rank % 4; {
	case kind == 1:
		answer = "something else"
	case kind == 2 && turn == 3:
		return "<think>I look once more.</think>\n<tool_call>{search: </tool_call>", nil
	}
	if turn >= researchTurns && c.Rank%4 != 3 {
		return "<think>All steps are certain now.</think>\n<answer>" + answer + "</answer>", nil
	}
	return fmt.Sprintf("<think>Step %d: I look for what comes next.</think>\n<tool_call>{\"name\": \"search\", \"arguments\": {\"query\": [\"step %d %.40s\"]}}</tool_call>", turn, turn, c.Question.Text), nil
}
