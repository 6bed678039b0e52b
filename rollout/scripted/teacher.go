package scripted

import (
	"errors"
	"math/rand/v2"

	"searchloop/corpus/world"
)

// carefulShare is how often the teacher of the demo decides rightly. Half is
// enough for a policy to learn every tool, and leaves reinforcement learning most
// of the way to go.
const carefulShare = 0.5

// eagerShare is how often the eager teacher does.
const eagerShare = 0.95

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

func init() { Register("eager", Func(eager)) }

// eager plays one turn of the demo world as a teacher who decides nearly always
// rightly, but mostly looks an image up before saying what anybody can see in it: the
// habit that a penalty on searching is to take away.
func eager(c Conversation) (string, error) {
	if c.Question == nil || len(c.Question.Answers) == 0 {
		return "", errors.New("the teacher does not know this question")
	}
	rng := rand.New(rand.NewPCG(uint64(c.Seed), 0xea6e5))
	q, seen := c.Question, c.Observations()
	attr := attribute(q.Text)
	switch {
	case q.Category == world.None && len(seen) > 0:
		return look(attr, q.Answers[0]), nil
	case q.Category == world.None && rng.IntN(4) > 0:
		return call("Which place has this emblem?", "image_search_by_lens", "emblem"), nil
	}
	return teacher{eagerShare}.play(q.Category, q.Text, q.Answers[0], seen, rng), nil
}
