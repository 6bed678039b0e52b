package scripted

import (
	"errors"
	"math/rand/v2"
)

// carefulShare is how often the teacher of the demo decides rightly. Half is
// enough for a policy to learn every tool, and leaves reinforcement learning most
// of the way to go.
const carefulShare = 0.5

func init() { Register("teacher", Func(teach)) }

// teach plays one turn of the demo world as a careless teacher.
func teach(c Conversation) (string, error) {
	if c.Question == nil || len(c.Question.Answers) == 0 {
		return "", errors.New("the teacher does not know this question")
	}
	rng := rand.New(rand.NewPCG(uint64(c.Seed), 0x7eac4e5))
	q := c.Question
	return teacher{carefulShare}.play(q.Category, q.Text, q.Answers[0], c.Observations(), rng), nil
}
